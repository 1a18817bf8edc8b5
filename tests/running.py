"""Runs of the study in this process, and what their episodes hold as flat lists."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from crossmem import study
from crossmem.cli import notebook_settings
from crossmem.contract import Suggestion, read_suggestion
from crossmem.harness.log import RunLog, has_ended
from crossmem.harness.records import EpisodeRecord
from crossmem.harness.results import load
from crossmem.settings import RunSettings, read_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from crossmem.harness.records import Row
    from crossmem.harness.results import Run


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


def logs_of(results: Path, *, ended: bool) -> list[Path]:
    """Return the logs of a results folder that have their last line, or those that lack it."""
    return sorted(path for path in results.glob("*.jsonl") if has_ended(path) is ended)


def log_lines(results: Path) -> int:
    """Count the whole lines of all logs: a config each, and an episode each."""
    return sum(path.read_bytes().count(b"\n") for path in results.glob("*.jsonl"))


def log_of(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read a log past all code of the study: its first line, and its episodes."""
    first, *rest = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return first, [line["episode"] for line in rest if "episode" in line]


def rewritten(
    run: Run,
    path: Path,
    change: Callable[[dict[str, Any]], None] = lambda _: None,
    **config: Any,
) -> Run:
    """Write the log of a run anew, its episodes changed in place and its config too; read it back."""
    first, episodes = log_of(run.path)
    for each in episodes:
        change(each)
    return written(path, {**first["config"], **config}, episodes)


def written(path: Path, config: dict[str, Any], episodes: list[dict[str, Any]]) -> Run:
    """Write a finished run and read it back."""
    path.parent.mkdir(exist_ok=True)
    log = RunLog.create(path.parent, path.stem, config)
    for each in episodes:
        log.append(EpisodeRecord.model_validate(each))
    log.end("2026-01-01T00:00:00+00:00")
    log.close()
    return load(log.path)


ALL: dict[str, Any] = {"mock": True, "arms": "A0,A1F,A1,LW,LWG,A2,A3"}


def replayed(**given: Any) -> Run:
    """Run Phase 1 with the scripted agent, all its arms unless others are named."""
    return run_phase("phase1", **{**ALL, **given})


def outcome(run: Run, *arms: str) -> list[dict[str, Any]]:
    """Return the episodes of `arms` (all if none) as they stand in the log, arm by arm.

    Without `latency_s`, which a clock says.
    """
    _, episodes = log_of(run.path)
    for each in episodes:
        del each["row"]["latency_s"]
    place = ("arm", "replicate", "index")
    return sorted(
        (each for each in episodes if not arms or each["row"]["arm"] in arms),
        key=lambda each: [each["row"][name] for name in place],
    )
