"""A budget that forgives: entries fade under a byte budget and come back when it recovers.

After CrystalMem (arXiv 2608.00303), in this study's setting. Where A3 evicts, this memory demotes an
entry through three states, the least used first, ties the oldest, and all of a state before the next:

* *whole*: the entry's canonical JSON, as every other arm holds it;
* *compact*: the bare array `[key, table, row, value]`, served like a whole one; its version is the one
  that its table is validated under;
* *trace*: key and a digest of 8 hex digits; not served;
* and then gone.

What lies outside the budget: the lessons as they stand in the run's journal, which every arm has and no
arm else reads. When the budget grows, a trace is rebuilt from there, provided the digest of what is
found is the trace's and the table's current stamp is the one it was learned under.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from crossmem.memory.arms import ARMS, Arm
from crossmem.memory.entry import Entry, Key, canonical_json
from crossmem.memory.events import BudgetSet, Event
from crossmem.memory.memory import Memory, MemoryBackend
from crossmem.memory.policies import Action, Evict, Kind
from crossmem.memory.store import Held, Store

if TYPE_CHECKING:
    from crossmem.domains.base import Domain, Keying


@dataclass(frozen=True, slots=True)
class Trace:
    """What is left of an entry that no longer serves. `size` is in bytes."""

    key: Key
    digest: str
    uses: int

    @property
    def size(self) -> int:
        """Bytes of the trace as canonical JSON."""
        return len(canonical_json([list(self.key), self.digest]).encode())


@dataclass(slots=True)
class FadingStore(Store):
    """A store whose entries have a fidelity. `bytes` counts traces too, `count` only what serves.

    `archive` is the way into the run's journal: what was learned, by digest, and no part of the bytes.
    """

    compact: set[int] = field(default_factory=set)
    traces: dict[Key, Trace] = field(default_factory=dict)
    archive: dict[str, Entry] = field(default_factory=dict)

    def put(self, entry: Entry) -> Held:
        """Hold `entry` whole; a trace of its key has done its service."""
        self.forget(entry.key)
        self.archive[digest(entry)] = entry
        return Store.put(self, entry)

    def drop(self, held: Held) -> None:
        """Forget an entry whatever its state."""
        self.compact.discard(held.order)
        Store.drop(self, held)

    def resize(self, held: Held, size: int) -> None:
        """Let an entry take `size` bytes from now on."""
        self.bytes += size - held.size
        held.size = size

    def forget(self, key: Key) -> None:
        """Let the trace of a key go, if there is one."""
        if trace := self.traces.pop(key, None):
            self.bytes -= trace.size

    @property
    def room(self) -> float:
        """Bytes left under the budget, infinite without one."""
        return float("inf") if self.budget is None else self.budget - self.bytes


def digest(entry: Entry) -> str:
    """Return 8 hex digits of the SHA-256 of the entry's canonical JSON."""
    return hashlib.sha256(entry.canonical.encode()).hexdigest()[:8]


def compact_size(entry: Entry) -> int:
    """Return the bytes of an entry as a bare array."""
    return len(canonical_json([list(entry.key), entry.table, entry.row, entry.value]).encode())


def fade(store: FadingStore, spare: Held | None = None) -> Iterator[Action]:
    """Demote until the store fits its budget; `spare` is the last to be made compact and stays that."""
    if store.room >= 0:
        return
    ranked = sorted((held for held in store if held is not spare), key=_rank)
    for held in [*ranked, *([spare] if spare else [])]:
        if store.room >= 0:
            return
        if held.order not in store.compact:
            yield _action("demote", held.entry, "whole -> compact", store)
            store.compact.add(held.order)
            store.resize(held, compact_size(held.entry))
    for held in ranked:
        if store.room >= 0:
            return
        entry = held.entry
        yield _action("demote", entry, "compact -> trace", store)
        store.drop(held)
        trace = store.traces[entry.key] = Trace(entry.key, digest(entry), held.uses)
        store.bytes += trace.size
    for trace in sorted(store.traces.values(), key=lambda each: each.uses):
        if store.room >= 0:
            return
        store.forget(trace.key)
        yield Action("evict", "trace -> gone", None, trace.key)


def rebuild(store: FadingStore) -> Iterator[Action]:
    """Bring back what fits, the most used first: traces from the journal, then compact ones to whole.

    A trace whose table has moved on, or whose record does not have its digest, is let go.
    """
    for trace in sorted(store.traces.values(), key=lambda each: -each.uses):
        entry = store.archive.get(trace.digest)
        why = ""
        if entry is None or digest(entry) != trace.digest:
            why = "the journal holds nothing with the trace's digest"
        elif entry.version != (now := store.stamps.get(entry.table or "")):
            why = f"learned under {entry.version}, its table is at {now}"
        if entry is None or why:
            store.forget(trace.key)
            yield Action("refuse", why, None, trace.key)
        elif entry.size - trace.size <= store.room:
            held = store.put(entry)
            held.uses = trace.uses - 1
            store.used(held)
            yield _action("rebuild", entry, "trace -> whole, its digest and stamp verified", store)
    for held in sorted(store, key=_rank, reverse=True):
        if held.order in store.compact and held.entry.size - held.size <= store.room:
            store.compact.discard(held.order)
            store.resize(held, held.entry.size)
            yield _action("rebuild", held.entry, "compact -> whole", store)


class Forgiving(Memory):
    """A governed memory under a budget that forgives."""

    evict: ClassVar[Evict] = staticmethod(fade)
    store: FadingStore

    def __init__(self, arm: Arm, domain: Domain, keying: Keying) -> None:
        super().__init__(arm, domain, keying)
        self.store = FadingStore()

    def _observe(self, event: Event) -> Iterator[Action]:
        yield from super()._observe(event)
        if isinstance(event, BudgetSet):
            yield from rebuild(self.store)


class ForgivingArm(Arm):
    """The row of an arm whose memory is `Forgiving`."""

    def memory(self, domain: Domain, keying: Keying, seed: str = "") -> MemoryBackend:  # noqa: ARG002
        """Return an empty memory."""
        return Forgiving(self, domain, keying)


_A3 = ARMS["A3"]
A3C = ForgivingArm(
    "A3C", "budget that forgives", _A3.admission, _A3.conflict, _A3.invalidation, signal=_A3.signal
)


def _rank(held: Held) -> tuple[int, int]:
    return held.uses, held.order


def _action(kind: Kind, entry: Entry, why: str, store: FadingStore) -> Action:
    version = store.stamps.get(entry.table or "", entry.version)
    why = f"{why}; {store.bytes} bytes, budget {store.budget}"
    return Action(kind, why, entry.table, entry.key, entry.value, from_version=version)
