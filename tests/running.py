"""Runs of the study in this process, and what their episodes hold as flat lists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from crossmem import study
from crossmem.cli import notebook_settings
from crossmem.contract import Suggestion, read_suggestion
from crossmem.settings import RunSettings, read_settings

if TYPE_CHECKING:
    from crossmem.run.records import Row
    from crossmem.run.results import Run


def suggestion_of(item: Any) -> Suggestion:
    """Read one suggestion as a response carries it."""
    suggestion = read_suggestion(item)
    assert suggestion is not None
    return suggestion


def settings_of(phase: str, **given: Any) -> RunSettings:
    """Read the settings of a phase, as its notebook does."""
    settings = read_settings(notebook_settings()[phase], given)
    assert isinstance(settings, RunSettings)
    return settings


def run_phase(phase: str, **given: Any) -> Run:
    """Run a phase, or load the results file named."""
    return study.run(settings_of(phase, **given))


def rows_of(run: Run) -> list[Row]:
    """Return the rows of a run, arm by arm."""
    return [each.row for each in run.episodes]


def events_of(run: Run) -> list[Any]:
    """Return the memory events of a run, each with its arm, replicate and episode."""
    return _flat(run, "events")


def attempts_of(run: Run) -> list[Any]:
    """Return the attempts of a run, each with its arm, replicate and episode."""
    return _flat(run, "attempts")


def _flat(run: Run, part: str) -> list[Any]:
    return [
        SimpleNamespace(
            arm=each.row.arm, replicate=each.row.replicate, episode=each.row.index, **vars(item)
        )
        for each in run.episodes
        for item in getattr(each, part)
    ]
