"""A stale-attempt slot, opened: what memory held, what was sent, what came back, what the arm did.

The slot is the first episode after a drift whose task depends on the drifting table. What is shown is
read from the results file alone; the task's Input Data from its stream, if that is still the same.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crossmem.analysis import metrics
from crossmem.analysis.display import count
from crossmem.domains import domain
from crossmem.domains.base import value_at
from crossmem.errors import InputError, unknown
from crossmem.harness.history import stream_of
from crossmem.memory.entry import same

if TYPE_CHECKING:
    from jinja2 import Template

    from crossmem.domains.base import Domain
    from crossmem.harness.records import Attempt, MemoryEvent, Row
    from crossmem.harness.results import Run
    from crossmem.memory.entry import Entry


class Step(NamedTuple):
    """One attempt of the slot, and the lines of its request against the request before.

    Each line comes after the word `same`, `new` or `gone`; member order is ignored.
    """

    attempt: Attempt
    lines: list[tuple[str, str]]


@dataclass(frozen=True)
class Slot:
    """One slot of one arm and replicate. `later` is the next episode that depends on the same half."""

    domain: Domain
    row: Row
    steps: list[Step]
    events: list[MemoryEvent]
    later: Row | None

    @property
    def recalled(self) -> list[dict[str, Any]]:
        """The entries that memory put before the agent.

        Each with `words` for its key, and what it was `worth` in the first request if it stood there.
        """
        first = self.steps[0].attempt
        return [
            {**asdict(entry), "words": self.domain.describe(entry.key), "worth": _worth(first, entry)}
            for entry in first.recalled
        ]

    @property
    def title(self) -> str:
        """One line that says what the slot is and how it ended."""
        row = self.row
        return (
            f"Epoch {row.drift_epoch}, {row.arm}: {metrics.outcome_of(row)} at episode {row.index} "
            f"({row.drift_row}), {count(row.attempts, 'attempt')}"
        )


@dataclass(frozen=True)
class Folds:
    """Slots as fold-out blocks of HTML, which need no kernel and no script."""

    slots: list[Slot]
    is_open: bool = False

    def _repr_html_(self) -> str:
        if not self.slots:
            return "<p>Nothing drifted in this run, so there is no slot.</p>"
        return "".join(_template().render(slot=slot, is_open=self.is_open) for slot in self.slots)

    def __repr__(self) -> str:
        return "\n".join(slot.title for slot in self.slots)


def folds(run: Run) -> Folds:
    """Return every slot of a run's first replicate, epoch by epoch, arm by arm."""
    return Folds([*_slots(run, 0)])


def opened(run: Run, epoch: int, arm: str, replicate: int = 0) -> Folds:
    """Return one slot, unfolded. Raises InputError for an epoch or arm that the run has no slot for."""
    if epoch not in (known := epochs(run)):
        raise unknown("epoch", epoch, map(str, known))
    if arm not in run.arms:
        raise unknown("arm", arm, run.arms)
    chosen = [s for s in _slots(run, replicate) if (s.row.drift_epoch, s.row.arm) == (epoch, arm)]
    return Folds(chosen, is_open=True)


def epochs(run: Run) -> list[int]:
    """Return the drift epochs that have a slot; raises InputError where there is none."""
    known = sorted({int(epoch) for epoch in metrics.slot_rows(run)["drift_epoch"]})
    if not known:
        raise InputError(f"{run.path.name} has no stale-attempt slot: nothing drifted in it")
    return known


def _slots(run: Run, replicate: int) -> Iterator[Slot]:
    try:
        tasks = [episode.task.input for episode in stream_of(run).episodes]
    except InputError:  # gone or changed since: its Input Data is not that of the run
        tasks = None
    rows = metrics.slot_rows(run)
    rows = rows[rows["replicate"] == replicate].sort_values(["drift_epoch", "arm"])
    for arm, index in zip(rows["arm"], rows["index"], strict=True):
        record, *after = run.of(str(arm), replicate)[index:]
        yield Slot(
            domain=domain(run.config["domain"]),
            row=record.row,
            steps=list(_steps(record.attempts, tasks[index] if tasks else None)),
            events=record.events,
            later=next((e.row for e in after if e.row.drift_row == record.row.drift_row), None),
        )


def _worth(first: Attempt, entry: Entry) -> str:
    """Return the verdict on a recalled entry in the first request."""
    verdicts = (
        each.verdict
        for each in first.carried
        if each.entry.key == entry.key and same(each.entry.value, entry.value)
    )
    return next(verdicts, "not carried")


def _steps(attempts: list[Attempt], before: dict[str, Any] | None) -> Iterator[Step]:
    kinds = {"  ": "same", "+ ": "new", "- ": "gone"}
    for attempt in attempts:
        request = attempt.request or {}
        old, new = (
            json.dumps(body, indent=2, ensure_ascii=False, sort_keys=True).splitlines()
            for body in (request if before is None else before, request)
        )
        lines = [(line[:2], line[2:]) for line in difflib.ndiff(old, new)]
        yield Step(attempt, [(kinds[mark], text) for mark, text in lines if mark in kinds])
        before = request


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader

    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(
        json=lambda value: json.dumps(value, ensure_ascii=False),
        outcome=metrics.outcome_of,
        attempts=lambda row: count(row.attempts, "attempt"),
        value_at=value_at,
    )
    return environment.get_template("slot.html.j2")
