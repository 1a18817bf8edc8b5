"""The server process: whose Python, what is on its path, what it is told and what it is not."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from running import run_phase

from crossmem import paths
from crossmem.errors import CrossmemError, InputError
from crossmem.harness.results import Run
from crossmem.upstream import process

from .conftest import Builder, nobody_left
from .foreign import ACME, PLAIN, facts, servers

STRIPE = "sk_test_4eC39HqLyjWDarjtT1zdp7dc"


def log_of(played: Run, arm: str = "A0") -> Path:
    return paths.results() / f"{played.path.stem}.logs" / f"{arm}-0.log"


def test_the_app_runs_in_a_group_of_its_own_over_its_copy(watched: Builder, results: Path) -> None:
    repository = watched(PLAIN)
    played = run_phase("phase1", mock=True, arms="A0", api=str(repository))
    said = facts(log_of(played))
    copy = Path(said["file"]).parents[1]
    assert copy.name == "A0-0"
    assert copy.is_relative_to(results.with_name("copies"))
    assert said["path"][0] == str(copy)
    assert said["cwd"] == str(copy)
    number, group, session = said["group"]
    assert (group, session) == (number, number)
    assert group != os.getpgid(0)
    assert "crossmem" not in {name.partition(".")[0] for name in said["modules"]}
    assert not said["compat"]
    assert said["environment"]["PYTHONDONTWRITEBYTECODE"] == "1"


def test_nothing_of_the_checkout_is_on_the_path_even_if_a_person_put_it_there(
    watched: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = watched(PLAIN)
    monkeypatch.setenv("PYTHONPATH", str(repository))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    played = run_phase("phase1", mock=True, arms="A0", api=str(repository))
    said = facts(log_of(played))
    assert not said["file"].startswith(str(repository))
    assert said["path"].index(str(repository)) > 0


def test_a_src_layout_is_started_where_the_profile_says(watched: Builder, results: Path) -> None:
    for cwd in (".", "tables"):
        plan = replace(PLAIN, path="src", module="kitchen/web.py", server=f'cwd = "{cwd}"')
        repository = watched(plan, name=f"theirs-{cwd}")
        played = run_phase("phase1", mock=True, arms="A0", api=str(repository))
        said = facts(log_of(played))
        copy = Path(said["file"]).parents[2]
        assert (said["path"][0], said["cwd"]) == (str(copy / "src"), str(copy / cwd).removesuffix("/."))


SECRETS = {
    "ANTHROPIC_API_KEY": "sk-ant-recognisable-1",
    "ANTHROPIC_AUTH_TOKEN": "recognisable-2",
    "OPENAI_API_KEY": "sk-recognisable-3",
    "GEMINI_API_KEY": "recognisable-4",
    "STRIPE_SECRET_KEY": "sk_test_recognisable5",
}


def test_no_key_reaches_a_recipe_app(watched: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {**SECRETS, "STRIPE_API_KEY": STRIPE, "SHOP": "rk_live_recognisable6"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HARMLESS", "kept")
    played = run_phase("phase1", mock=True, arms="A0", api=str(watched(PLAIN)))
    given = facts(log_of(played))["environment"]
    assert not secrets.keys() & given.keys()
    assert given["HARMLESS"] == "kept"
    assert not [value for value in secrets.values() if value in log_of(played).read_text()]


def test_the_acme_app_gets_the_stripe_key_and_the_stand_in(
    watched: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**SECRETS, "STRIPE_API_KEY": STRIPE}.items():
        monkeypatch.setenv(name, value)
    played = run_phase("acme", stream="acme_sanity", mock=True, arms="A0", api=str(watched(ACME)))
    said = facts(log_of(played))
    assert said["compat"]
    compat = said["path"].index(str(paths.root() / "acme_compat"))
    assert said["path"].index(str(Path(said["file"]).parents[1])) < compat
    assert said["environment"]["STRIPE_API_KEY"] == STRIPE
    assert not SECRETS.keys() & said["environment"].keys()
    assert STRIPE not in played.path.read_text()


@pytest.mark.parametrize(
    "key", ["sk_live_4eC39HqLyjWDarjtT1zdp7dc", "rk_live_4eC39Hq", "pk_test_1", "x"]
)
def test_a_key_that_is_not_of_test_mode_is_refused_before_anything_starts(
    key: str, watched: Builder, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", key)
    with pytest.raises(InputError, match=r"STRIPE_API_KEY holds") as caught:
        run_phase("acme", mock=True, arms="A0", api=str(watched(ACME)))
    assert key == "x" or key not in str(caught.value)
    assert not results.exists()


def test_an_acme_app_without_its_key_says_so_in_its_last_lines(watched: Builder, results: Path) -> None:
    with pytest.raises(CrossmemError, match="STRIPE_API_KEY is not set; it must hold a test-mode key"):
        run_phase("acme", stream="acme_sanity", mock=True, arms="A0", api=str(watched(ACME)))


def test_a_virtual_environment_given_as_a_relative_path_is_the_one_that_runs(
    watched: Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    wrapper = tmp_path / "bin/their-python"
    wrapper.write_text(f'#!/bin/sh\nexport WRAPPED=1\nexec "{sys.executable}" "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    repository = watched(PLAIN)
    for given in ("bin/their-python", "their-python"):
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        played = run_phase("phase1", mock=True, arms="A0", api=repository.name, api_python=given)
        assert facts(log_of(played))["environment"]["WRAPPED"] == "1"


def test_the_log_of_a_resumed_run_keeps_what_was_said_before(watched: Builder, results: Path) -> None:
    repository = watched(PLAIN, die_at=40)
    with pytest.raises(CrossmemError, match="the last words of this app"):
        run_phase("phase1", mock=True, arms="A0", api=str(repository))
    played = run_phase("phase1", mock=True, arms="A0", api=str(repository), resume=True)
    text = log_of(played).read_text()
    assert "the last words of this app" in text
    assert text.count("FACTS ") == 2


def test_an_app_that_takes_its_time_is_waited_for(watched: Builder) -> None:
    played = run_phase("phase1", mock=True, arms="A0", api=str(watched(PLAIN, slow=1.5)))
    assert played.rows["success"].all()


def test_no_more_servers_run_at_once_than_asked_for(
    watched: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    most, began = 0, process._wait_until_up

    def begun(*given: Any) -> None:
        nonlocal most
        began(*given)
        most = max(most, len(servers(paths.results())))

    monkeypatch.setattr(process, "_wait_until_up", begun)
    run_phase("phase1", mock=True, arms="A0,A1,A2,LW", api=str(watched(PLAIN)), max_concurrency=2)
    assert most == 2


def test_a_port_of_the_profile_is_used_by_one_arm_after_the_other(
    watched: Builder, free_port: int, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls, began = [], process._wait_until_up

    def begun(served: Any, url: str, *given: Any) -> None:
        urls.append(url)
        began(served, url, *given)

    monkeypatch.setattr(process, "_wait_until_up", begun)
    repository = watched(replace(PLAIN, server=f"port = {free_port}"))
    played = run_phase("phase1", mock=True, arms="A0,A1,A2", api=str(repository))
    assert played.rows["success"].all()
    assert urls == [f"http://127.0.0.1:{free_port}/healthz"] * 3
    nobody_left(results, within_s=0)
