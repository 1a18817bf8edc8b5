"""A memory as a fold over events: the same events give the same state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from crossmem.contract import Json
from crossmem.memory.entry import Entry
from crossmem.memory.events import (
    BudgetSet,
    Carried,
    DiffsHanded,
    EpisodeBegun,
    Event,
    Observation,
    Truth,
    VersionsRead,
)
from crossmem.memory.policies import (
    Action,
    Bump,
    Evict,
    drop_untrue,
    evict_least_used,
    follow,
    invalidate_never,
    learn,
    update_untrue,
)
from crossmem.memory.store import Held, Store

if TYPE_CHECKING:
    from crossmem.domains.base import Domain, Keying, Task
    from crossmem.memory.arms import Arm


class Sizes(Protocol):
    """How much a memory holds, and under which byte budget (None = unlimited)."""

    @property
    def count(self) -> int:
        """Number of things held."""

    @property
    def bytes(self) -> int:
        """Their bytes, as the memory's kind counts them."""

    @property
    def budget(self) -> int | None:
        """The byte budget in force."""


class MemoryBackend(Protocol):
    """What the harness asks of a memory, of whatever kind."""

    @property
    def arm(self) -> Arm:
        """The arm whose memory it is."""

    @property
    def store(self) -> Sizes:
        """Its sizes, as they stand in a row."""

    def recall(self, task: Task) -> tuple[Entry, ...]:
        """Return what to put before the agent; reads only. Of a place's entries the last leads."""

    def observe(self, event: Event) -> list[Action]:
        """Take in one event and return what was done about it."""


@dataclass(frozen=True)
class SummaryRequest:
    """A text that a memory wants written by the agent's model, as JSON of `schema`."""

    about: str
    instruction: str
    material: str
    schema: dict[str, Json]


@runtime_checkable
class NarrativeMemory(MemoryBackend, Protocol):
    """A memory that works with words beside entries: what the harness asks of such memories only."""

    def remind(self, task: Task) -> str:
        """Return what to put before the agent after a refusal, empty for nothing; reads only."""

    def summary_requests(self, task: Task) -> Sequence[SummaryRequest]:
        """Return what it wants written before it is next asked for anything; reads only.

        With the scripted agent nothing is written: a memory must do without.
        """


class Memory:
    """One arm's memory over one domain."""

    evict: ClassVar[Evict] = staticmethod(evict_least_used)
    """How it comes down to its byte budget."""

    def __init__(self, arm: Arm, domain: Domain, keying: Keying) -> None:
        self.arm = arm
        self.domain = domain
        self.keying = keying
        self.store = Store()

    def recall(self, task: Task) -> tuple[Entry, ...]:
        """Return the entries that match `task`, key by key, oldest first, under the version they hold.

        Reads only: recalling changes nothing.
        """
        return tuple(
            replace(held.entry, version=self.store.version(held))
            for key in self.domain.keys(task)
            for held in self.store.at(key)
        )

    def observe(self, event: Event) -> list[Action]:
        """Take in one event and return what was done about it."""
        return list(self._observe(event))

    def _observe(self, event: Event) -> Iterator[Action]:
        match event:
            case Observation():
                yield from self._learn(event)
            case DiffsHanded(diffs=diffs):
                for diff in diffs:
                    self.store.diffs.setdefault(diff.table, []).append(diff)
            case BudgetSet(bytes=limit):
                self.store.budget = limit
                yield from self.evict(self.store)
            case VersionsRead(stamps=stamps):
                yield from self._check_stamps(stamps, ())
            case EpisodeBegun(index=index):
                self.store.episode = index
            case Truth(tables=tables):
                for table, (version, rows) in tables.items():
                    if self.arm.invalidation is follow:
                        current = partial(self.domain.current, rows=rows)
                        yield from update_untrue(self.store, table, version, current)
                    else:
                        holds = partial(self.domain.holds, rows=rows)
                        yield from drop_untrue(self.store, table, version, holds)
                    yield from self._check_stamps({table: version}, ())

    def _learn(self, seen: Observation) -> Iterator[Action]:
        """Invalidate first, then count uses, then learn."""
        good = [held for held in map(self._held, seen.carried) if held]
        yield from self._check_stamps(seen.response.stamps, good)
        for held in good:
            if held.order:  # not dropped just now
                self.store.used(held)
        for suggestion in seen.response.suggestions:
            entry = self.domain.lesson(seen.task, seen.request, suggestion, self.keying)
            if entry is not None:
                stamp = seen.response.stamps.get(entry.table) if entry.table else None
                stamped = replace(entry, version=stamp)
                policies = self.arm.admission, self.arm.conflict, self.evict
                yield from learn(self.store, stamped, *policies)

    def _held(self, carried: Carried) -> Held | None:
        """Return the store's record of an entry that was carried and passed."""
        entry = carried.entry
        return None if carried.refused else self.store.find(entry.key, entry.value)

    def _check_stamps(self, stamps: Mapping[str, str], good: Sequence[Held]) -> Iterator[Action]:
        """Invalidate what a stamp shows to be of another version; an absent stamp does nothing."""
        if self.arm.invalidation is invalidate_never:
            return
        store = self.store
        for table, stamp in stamps.items():
            old = store.stamps.get(table, stamp)
            if old != stamp:
                confirmed = [held for held in good if held.entry.table == table]
                yield from self.arm.invalidation(store, Bump(table, old, stamp, confirmed))
            if old != stamp or table not in store.stamps:
                store.stamps[table] = stamp
                store.positions[table] = len(store.diffs.get(table, ()))
