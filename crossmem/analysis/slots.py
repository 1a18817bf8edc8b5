"""A stale-attempt slot, opened: what memory held, what was sent, what came back, what the arm did.

The slot is the first episode after a drift whose task depends on the drifting table. What is shown is
read from the results file alone; the task's Input Data from its stream, if that is still the same.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossmem.analysis import metrics
from crossmem.domains import domain
from crossmem.domains.base import value_at
from crossmem.errors import InputError, unknown
from crossmem.harness.history import stream_of
from crossmem.memory.entry import same

if TYPE_CHECKING:
    from jinja2 import Template

    from crossmem.harness.records import Attempt, MemoryEvent, Row
    from crossmem.harness.results import Run
    from crossmem.memory.entry import Entry


@dataclass(frozen=True)
class Line:
    """A line of a request and whether it is `same`, `new` or `gone` against the request before."""

    kind: str
    text: str


@dataclass(frozen=True)
class Fix:
    """One suggestion of a refusal: the place, what was sent there and what the API suggests."""

    action: str
    field: str
    sent: Any
    suggested: Any


@dataclass(frozen=True)
class Step:
    """One attempt of the slot: the request as changed since the one before, and the answer."""

    attempt: Attempt
    lines: list[Line]
    fixes: list[Fix]
    stamps: dict[str, str]


@dataclass(frozen=True)
class Slot:
    """One slot of one arm and replicate. `later` is the next episode that depends on the same half."""

    run: Run
    row: Row
    outcome: str
    steps: list[Step]
    events: list[MemoryEvent]
    later: Row | None
    later_outcome: str | None

    @property
    def recalled(self) -> list[dict[str, Any]]:
        """The entries that memory put before the agent.

        Each with `words` for its key, and what it was `worth` in the first request if it stood there.
        """
        what = domain(self.run.config["domain"])
        first = self.steps[0].attempt
        return [
            {**asdict(entry), "words": what.describe(entry.key), "worth": _worth(first, entry)}
            for entry in first.recalled
        ]

    @property
    def title(self) -> str:
        """One line that says what the slot is and how it ended."""
        row = self.row
        return (
            f"Epoch {row.drift_epoch}, {row.arm}: {self.outcome} at episode {row.index} "
            f"({row.drift_row}), {row.attempts} {'attempt' if row.attempts == 1 else 'attempts'}"
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
    return Folds(list(_slots(run)))


def opened(run: Run, epoch: int, arm: str, replicate: int = 0) -> Folds:
    """Return one slot, unfolded. Raises InputError for an epoch or arm that the run has no slot for."""
    found = list(_slots(run, replicate))
    epochs = {str(slot.row.drift_epoch): None for slot in found}
    if not found:
        raise InputError(f"{run.path.name} has no stale-attempt slot: nothing drifted in it")
    if str(epoch) not in epochs:
        raise unknown("epoch", epoch, epochs)
    if arm not in run.arms:
        raise unknown("arm", arm, run.arms)
    return Folds([s for s in found if (s.row.drift_epoch, s.row.arm) == (epoch, arm)], is_open=True)


def _slots(run: Run, replicate: int = 0) -> Iterator[Slot]:
    rows = metrics.slots(run)
    rows = rows[rows["replicate"] == replicate].sort_values(["drift_epoch", "arm"])
    for arm, index, outcome in zip(rows["arm"], rows["index"], rows["outcome"], strict=True):
        yield _slot(run, (str(arm), replicate), int(index), str(outcome))


def _slot(run: Run, who: tuple[str, int], index: int, outcome: str) -> Slot:
    episodes = run.of(*who)
    slot = episodes[index]
    after = (each.row for each in episodes[index + 1 :])
    later = next((row for row in after if row.drift_row == slot.row.drift_row), None)
    return Slot(
        run=run,
        row=slot.row,
        outcome=outcome,
        steps=list(_steps(slot.attempts, _input_data(run, index))),
        events=slot.events,
        later=later,
        later_outcome=metrics.outcome_of(later) if later else None,
    )


def _worth(first: Attempt, entry: Entry) -> str:
    """Return the verdict on a recalled entry in the first request."""
    same_entry = (
        each.verdict
        for each in first.carried
        if each.entry.key == entry.key and same(each.entry.value, entry.value)
    )
    return next(same_entry, "not carried")


def _steps(attempts: list[Attempt], raw: dict[str, Any] | None) -> Iterator[Step]:
    before = raw
    for attempt in attempts:
        request = attempt.request or {}
        fixes = [
            Fix(each.action, each.field, value_at(request, each.field), each.suggested_value)
            for each in attempt.suggestions
        ]
        lines = _lines(request if before is None else before, request)
        yield Step(attempt, lines, fixes, attempt.stamps)
        before = request


def _lines(before: dict[str, Any], after: dict[str, Any]) -> list[Line]:
    """Return the lines of `after`, with what changed against `before`; member order is ignored."""
    kinds = {"  ": "same", "+ ": "new", "- ": "gone"}
    old, new = (
        json.dumps(body, indent=2, ensure_ascii=False, sort_keys=True).splitlines()
        for body in (before, after)
    )
    compared = difflib.ndiff(old, new)
    return [Line(kinds[line[:2]], line[2:]) for line in compared if line[:2] in kinds]


def _input_data(run: Run, index: int) -> dict[str, Any] | None:
    """Return the task's Input Data, None where the stream at hand is not the one that was run."""
    with suppress(InputError):
        return stream_of(run).episodes[index].task.input
    return None


@cache
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader

    folder = Path(__file__).parent
    loader = FileSystemLoader(folder)
    made = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    made.filters["json"] = lambda value: json.dumps(value, ensure_ascii=False)
    return made.get_template("slot.html.j2")
