"""Entries with the indices that keep recall, admission and invalidation flat in their number.

The store knows no policy: it holds, finds and drops. Costs: `at`, `put`, `drop` are O(1) in the number
of entries; `of_table` and `of_rows` walk only what they yield; `least_used` is O(log n) amortised.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from crossmem.contract import Json, TableDiff
from crossmem.memory.entry import Entry, Key, same


@dataclass(slots=True, eq=False)
class Held:
    """An entry in the store: when it was learned, how often it served, how many diffs it has seen."""

    entry: Entry
    order: int
    size: int
    position: int
    uses: int = 0


@dataclass(slots=True)
class Store:
    """The state of one memory.

    `stamps` is the version per table that all its entries are validated under (kept per table, so that
    re-stamping survivors touches none of them); arms that never invalidate leave it empty.
    `diffs` is the ordered list of changes handed over per table and `positions` how much of it the
    table's entries have been re-stamped past. `known` holds every key ever held, to tell a relearned
    key from a new one; it is bookkeeping for the event log and not part of the memory's bytes.
    `episode` is the number of the episode going on, for arms whose signal is the clock.
    """

    budget: int | None = None
    bytes: int = 0
    count: int = 0
    stamps: dict[str, str] = field(default_factory=dict)
    diffs: dict[str, list[TableDiff]] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    known: set[Key] = field(default_factory=set)
    episode: int | None = None
    _by_key: dict[Key, list[Held]] = field(default_factory=dict)
    _by_row: dict[str, dict[str | None, dict[int, Held]]] = field(default_factory=dict)
    _learned_at: dict[str, Counter[int]] = field(default_factory=dict)
    _heap: list[tuple[int, int, Held]] = field(default_factory=list)
    _order: int = 0

    def __iter__(self) -> Iterator[Held]:
        """Yield what is held, key by key in the order in which the keys came."""
        for held in self._by_key.values():
            yield from held

    def at(self, key: Key) -> tuple[Held, ...]:
        """Return what is held under `key`, oldest first."""
        return tuple(self._by_key.get(key, ()))

    def find(self, key: Key, value: Json) -> Held | None:
        """Return the entry under `key` that holds `value`."""
        return next((held for held in self.at(key) if same(held.entry.value, value)), None)

    def version(self, held: Held) -> str | None:
        """Return the version the entry was learned or re-stamped under."""
        table = held.entry.table
        return self.stamps.get(table, held.entry.version) if table else held.entry.version

    def put(self, entry: Entry) -> Held:
        """Hold `entry` as the newest under its key."""
        self._order += 1
        table = entry.table or ""
        held = Held(entry, self._order, entry.size, len(self.diffs.get(table, ())))
        self._by_key.setdefault(entry.key, []).append(held)
        self._by_row.setdefault(table, {}).setdefault(entry.row, {})[held.order] = held
        self._learned_at.setdefault(table, Counter())[held.position] += 1
        self.known.add(entry.key)
        self.bytes += held.size
        self.count += 1
        self._rank(held)
        return held

    def drop(self, held: Held) -> None:
        """Forget an entry that is held."""
        key, table, row = held.entry.key, held.entry.table or "", held.entry.row
        beside = self._by_key[key]
        beside.remove(held)
        if not beside:
            del self._by_key[key]
        rows = self._by_row[table]
        del rows[row][held.order]
        if not rows[row]:
            del rows[row]
        positions = self._learned_at[table]
        positions[held.position] -= 1
        if not positions[held.position]:
            del positions[held.position]
        held.order = 0  # what still ranks it in the heap is void
        self.bytes -= held.size
        self.count -= 1

    def used(self, held: Held) -> None:
        """Count one use of an entry."""
        held.uses += 1
        self._rank(held)

    def of_table(self, table: str) -> list[Held]:
        """Return the entries of `table`, oldest first within a row."""
        return [held for row in self._by_row.get(table, {}).values() for held in row.values()]

    def count_of(self, table: str) -> int:
        """Return how many entries of `table` are held."""
        return sum(self.learned_at(table).values())

    def learned_at(self, table: str) -> Counter[int]:
        """Count the entries of `table` by the length of its diff list when they were learned."""
        return self._learned_at.get(table, Counter())

    def of_rows(self, table: str, rows: Iterable[str | None]) -> list[Held]:
        """Return the entries of `table` that belong to one of the `rows`."""
        held = self._by_row.get(table, {})
        return [found for row in rows for found in held.get(row, {}).values()]

    def least_used(self, spare: Held | None = None) -> Held | None:
        """Return the entry with the fewest uses, the oldest of several, other than `spare`."""
        aside = []
        found = None
        while self._heap and found is None:
            uses, order, held = self._heap[0]
            if (uses, order) != (held.uses, held.order):
                heapq.heappop(self._heap)  # outlived: used again or dropped since
            elif held is spare:
                aside.append(heapq.heappop(self._heap))
            else:
                found = held
        for item in aside:
            heapq.heappush(self._heap, item)
        return found

    def _rank(self, held: Held) -> None:
        """Keep the eviction order; only a memory under budget evicts, but a budget may come later."""
        heapq.heappush(self._heap, (held.uses, held.order, held))
        if len(self._heap) > 64 + 4 * self.count:  # mostly outlived ranks: build it anew
            self._heap = [(each.uses, each.order, each) for each in self]
            heapq.heapify(self._heap)
