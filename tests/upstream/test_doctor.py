"""`crossmem doctor`: what would run, what is missing, on one screen, and no key on it."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from crossmem.cli import main
from crossmem.paths import RESULTS_VARIABLE

from .conftest import Builder
from .foreign import ACME, PLAIN

KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "STRIPE_API_KEY")


@pytest.fixture(autouse=True)
def _own_results(results: Path) -> None:
    """Look at a results folder of this test."""


def asked(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


def line_of(result: Result, what: str) -> str:
    (line,) = [line for line in result.stdout.splitlines() if line[9:].startswith(what)]
    return line


def test_here_the_mock_study_can_run() -> None:
    result = asked()
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "The mock study can run."
    for what in ("Python", "packages", "results folder", "loopback port", "streams"):
        assert line_of(result, what).startswith("ok ")
    assert len(result.stdout.splitlines()) < 25
    assert "checkout" not in result.stdout


def test_keys_are_said_to_be_there_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(KEYS):
        monkeypatch.setenv(name, f"sk_test_recognisable{number}")
    monkeypatch.setenv("OPENAI_BASE_URL", "https://user:recognisable@example.org")
    result = asked()
    assert result.exit_code == 0
    assert "recognisable" not in result.output
    for name in KEYS:
        assert line_of(result, name).endswith("present (not shown)")
    assert line_of(result, "OPENAI_BASE_URL").endswith(" set")


def test_keys_that_are_not_there_are_said_and_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    result = asked()
    assert result.exit_code == 0
    for name in KEYS:
        assert line_of(result, name).startswith("absent ")


@pytest.mark.parametrize(("phase", "plan"), [("phase1", PLAIN), ("acme", ACME)])
def test_a_checkout_that_can_run_is_judged(phase: str, plan: object, watched: Builder) -> None:
    result = asked("--api", watched(plan), "--phase", phase)  # type: ignore[arg-type]
    assert result.exit_code == 0, result.output
    said = line_of(result, "checkout")
    assert said.startswith("ok ")
    assert "main:app" in said
    assert said.endswith("as expected")


def test_a_checkout_at_another_branch_is_usable_and_said(watched: Builder) -> None:
    result = asked("--api", watched(replace(PLAIN, branch="main")))
    assert result.exit_code == 0
    assert "expected feature/versionable-tables, but the checkout is at main" in result.stdout


def test_an_unusable_checkout_is_missing(watched: Builder, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    for path in (tmp_path / "none", tmp_path / "bare"):
        result = asked("--api", path)
        assert result.exit_code == 1
        assert line_of(result, "checkout").startswith("MISSING ")
        assert result.stderr == "crossmem: the mock study cannot run: checkout\n"
    result = asked("--api", watched(PLAIN), "--phase", "acme")
    assert result.exit_code == 1
    assert "tables/active_csm_codes.json is missing, and the stream acme_m1 needs it" in result.stdout


def test_a_python_for_the_checkout_that_lacks_uvicorn_is_missing(watched: Builder) -> None:
    result = asked("--api", watched(PLAIN), "--python", "/none/such/python")
    assert result.exit_code == 1
    assert "api_python: cannot run /none/such/python" in result.stdout
    assert asked("--api", watched(PLAIN, name="b"), "--python", sys.executable).exit_code == 0


def test_an_unknown_phase_is_refused_with_the_choices(watched: Builder) -> None:
    result = asked("--api", watched(PLAIN), "--phase", "phase9")
    assert result.exit_code != 0
    assert "unknown phase 'phase9'" in result.output


def test_a_live_mode_key_of_stripe_is_missing_for_acme(
    watched: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", "sk_live_recognisable")
    result = asked("--api", watched(ACME), "--phase", "acme")
    assert result.exit_code == 1
    assert "live-mode key" in result.stdout
    assert "recognisable" not in result.output


def test_a_results_folder_that_cannot_be_written_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(RESULTS_VARIABLE, str(tmp_path / "file/results"))
    result = asked()
    assert result.exit_code == 1
    assert line_of(result, "results folder").startswith("MISSING ")
    assert result.stderr == "crossmem: the mock study cannot run: results folder\n"


def test_a_disk_without_room_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**20))
    assert line_of(asked(), "results folder").startswith("MISSING ")


def test_another_python_and_absent_packages_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 0))
    monkeypatch.setattr(
        importlib.import_module("crossmem.cli.environment"),
        "requires",
        lambda _: ["nosuchpackage~=1.0", "pytest; extra == 'dev'"],
    )
    result = asked()
    assert result.exit_code == 1
    assert line_of(result, "Python").startswith("MISSING ")
    assert "missing: nosuchpackage; `make study` installs them" in line_of(result, "packages")


def test_without_a_browser_or_a_local_model_the_mock_study_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    result = asked()
    assert result.exit_code == 0
    assert line_of(result, "Chromium").startswith("absent ")
    assert line_of(result, "local model").startswith("absent ")
