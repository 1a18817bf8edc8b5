"""A live model over a checkout: the preflight's copy is private too, and found if it is left."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from live.fakes import Provider, providing
from live.helpers import KEY, SHORT, short, start
from running import run_phase

from crossmem import streams

from .conftest import Builder, nobody_left
from .foreign import ODD, PACKAGE, PLAIN, Plan, copies, facts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, results: Path) -> Iterator[Provider]:
    """A provider that answers well, and streams of six episodes."""
    load = streams.load
    monkeypatch.setattr(streams, "load", lambda name: short(load(name)))
    with providing() as provider:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        yield provider


@pytest.mark.parametrize("plan", [ODD, PACKAGE])
def test_a_live_run_over_a_checkout_gives_the_rows_of_one_over_the_embedded_api(
    plan: Plan, watched: Builder, provider: Provider, results: Path
) -> None:
    given = {"model": "haiku", "arms": "A0,A2"}
    theirs = run_phase("phase1", api=str(watched(plan)), **given)
    ours = run_phase("phase1", **given)
    columns = ["arm", "index", "attempts", "success", "stale_attempt", "recalled", "entries"]
    assert theirs.rows[columns].equals(ours.rows[columns])
    assert theirs.config["preflight"]
    assert copies(results) == []
    nobody_left(results, within_s=0)
    log = results / f"{theirs.path.stem}.logs" / "A0-0.log"
    assert KEY not in log.read_text()
    assert "ANTHROPIC_API_KEY" not in facts(log)["environment"]


@pytest.mark.slow
def test_the_copy_of_a_preflight_that_was_killed_is_removed_by_the_next_run(
    watched: Builder, provider: Provider, results: Path
) -> None:
    repository = watched(PLAIN, grandchild=True)
    kill = "import crossmem.study as s\ns.prompter_for = lambda *_: os.kill(os.getpid(), 9)"
    process: subprocess.Popen[str] = start(SHORT, kill, api=str(repository))
    _, err = process.communicate(timeout=60)
    assert process.returncode == -9, err
    nobody_left(results)
    (copy,) = copies(results)
    assert (copy / "app/main.py").is_file()
    run_phase("phase1", mock=True, arms="A0")
    assert copies(results) == []
