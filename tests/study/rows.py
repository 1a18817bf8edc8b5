"""The runs that tests read, and what their rows and events say: who paid what, where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from running import events_of, rows_of

from crossmem.harness.results import Run
from crossmem.memory.arms import REFERENCES

if TYPE_CHECKING:
    from collections.abc import Callable

    from crossmem.harness.records import Row

    from .conftest import Scripted

PHASE1_ARMS = "A0,A1F,A1,LW,LWG,A2,A3"
WORLDS: dict[str, dict[str, Any]] = {
    **{f"phase1-{keying}": {"arms": PHASE1_ARMS, "keying": keying} for keying in ("task", "request")},
    **{
        f"phase2-{pattern}-{keying}": {"pattern": pattern, "keying": keying}
        for pattern in ("v2", "v4", "churn", "silent", "rollback")
        for keying in ("task", "request")
    },
    **{f"phase3-m1-{keying}": {"keying": keying} for keying in ("task", "request")},
    **{f"acme-{stream}": {"stream": stream} for stream in ("acme_m1", "acme_sanity")},
}
"""What `scripted` is given for every stream and keying; the name begins with the phase."""


def world(scripted: Scripted, name: str) -> Run:
    """Return the run of one of the `WORLDS`."""
    return scripted(name.partition("-")[0], **WORLDS[name])


def only(run: Run, arms: str) -> Run:
    """Return a run as if no other arms had been asked for: none leaves a trace in another's rows."""
    names = arms.split(",")
    config = {**run.config, "arms": [arm for arm in run.config["arms"] if arm["name"] in names]}
    return Run(run.path, config, [each for each in run.episodes if each.row.arm in names])


def rows(run: Run, line: str) -> list[Row]:
    return [row for row in rows_of(run) if row.arm == line]


def events(run: Run, line: str, kind: str) -> list[Any]:
    return [event for event in events_of(run) if (event.arm, event.kind) == (line, kind)]


def table_events(run: Run, line: str) -> list[Any]:
    """Return what an arm did about stamps, in order."""
    kinds = {"invalidate", "restamp"}
    return [event for event in events_of(run) if event.arm == line and event.kind in kinds]


def where(run: Run, line: str, of: Callable[[Row], object]) -> list[int]:
    """Return the episodes of an arm whose row is so."""
    return [row.index for row in rows(run, line) if of(row)]


def totals(run: Run) -> dict[str, int]:
    """Return the attempts of every line."""
    found: dict[str, int] = {}
    for row in rows_of(run):
        found[row.arm] = found.get(row.arm, 0) + row.attempts
    return found


def best(run: Run) -> set[str]:
    """Return the arms with the fewest attempts."""
    attempts = {arm: number for arm, number in totals(run).items() if arm not in REFERENCES}
    return {arm for arm, number in attempts.items() if number == min(attempts.values())}


def paid(run: Run, line: str) -> str:
    """Return attempts and stale attempts as CONTRACT.md writes them."""
    stale = sum(row.stale_attempt for row in rows(run, line))
    return f"{totals(run)[line]}({stale})" if stale else f"{totals(run)[line]}"


@dataclass
class Kept:
    """A key's value at the end of a run and the version it is held under."""

    key: tuple[str, ...]
    table: str | None
    value: Any
    version: str | None


def kept_of(run: Run, line: str) -> dict[tuple[str, ...], Kept]:
    """Replay the event log of an arm that keeps one value a key; return what it ends with."""
    kept: dict[tuple[str, ...], Kept] = {}
    for event in events_of(run):
        if event.arm != line:
            continue
        key = tuple(event.key or ())
        if event.kind in {"admit", "relearn", "confirm"}:
            kept[key] = Kept(key, event.table, event.value, event.to_version)
        elif event.kind in {"invalidate", "evict"}:
            del kept[key]
        elif event.kind == "restamp":
            for each in kept.values():
                if each.table == event.table:
                    each.version = event.to_version
    return kept
