"""What a list of reports says of a run; a report carries it as data beside what people read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from crossmem.memory.arms import REFERENCES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from crossmem.harness.results import Run

MIME = "application/vnd.crossmem.runs+json"
"""The type of a cell's output that holds `{"runs": [...]}`, an `About` each; nothing shows it."""


class About(BaseModel):
    """One run, as its results file has it; what the file lacks is None or empty."""

    scripted: bool
    model: str
    phase: str | None = None
    stream: str | None = None
    pattern: str | None = None
    arms: list[str] = []
    started: str | None = None
    ended: str | None = None


def about(runs: Iterable[Run]) -> dict[str, Any]:
    """Return the content of an output of type `MIME`."""
    return {"runs": [_about(run).model_dump() for run in runs]}


def _about(run: Run) -> About:
    served = (run.config.get("model") or {}).get("id")  # None for the scripted agent
    return About(
        scripted=run.scripted,
        model=served or run.config["parameters"]["model"],
        arms=[arm for arm in run.arms if arm not in REFERENCES],
        **{name: run.config.get(name) for name in ("phase", "stream", "pattern", "started", "ended")},
    )
