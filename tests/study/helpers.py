"""Runs of the whole study in this process, and what of two runs must be equal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from running import run_phase

if TYPE_CHECKING:
    from pathlib import Path

    from crossmem.harness.results import Run

ARMS = ("A0", "A1", "A1N", "LW", "LWG", "A2", "A3")
ALL: dict[str, Any] = {"mock": True, "arms": ",".join(ARMS)}


def replayed(**given: Any) -> Run:
    """Run Phase 1 with the scripted agent, all arms unless others are named."""
    return run_phase("phase1", **{**ALL, **given})


def outcome(of: Run, *arms: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows, events and attempts of `arms` (all if none) as they stand in the file.

    Without `latency_s`, which a clock says.
    """
    content = read(of.path)
    return {
        part: [
            {name: value for name, value in record.items() if name != "latency_s"}
            for record in content[part]
            if not arms or record["arm"] in arms
        ]
        for part in ("rows", "events", "attempts")
    }


def read(path: Path) -> dict[str, Any]:
    """Read a JSON file, past all code of the study."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def visible(folder: Path) -> list[str]:
    """Return the names of everything in a results folder but the folder of runs going on."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".runs")


def unfinished(folder: Path) -> list[Path]:
    """Return the folders of runs that did not come to their end."""
    return sorted((folder / ".runs").iterdir())
