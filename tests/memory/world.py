"""A small world for memories: a domain of three places, answers as an API gives them, no server."""

# ruff: noqa: ARG002 (a protocol asks for arguments that a small world has no use for)

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar

from crossmem.contract import Json, Response, Suggestion, TableDiff, read_reload, read_response
from crossmem.domains.base import Body, Domain, Keying, Task
from crossmem.memory.arms import Arm
from crossmem.memory.entry import Entry, Key, canonical_json
from crossmem.memory.events import Carried, Observation
from crossmem.memory.memory import Memory
from crossmem.memory.store import Held, Store

TABLE_OF = {"a": "T", "b": "T", "c": "U", "d": None}
"""Place -> the table behind it: two share one, one has its own, one has none."""
PLACES = tuple(TABLE_OF)
TABLES = ("T", "U")


class Places(Domain):
    """A request is a list per place; a lesson is keyed by its place, whichever of the list it mends."""

    name: ClassVar[str] = "places"
    families: ClassVar[tuple[str, ...]] = PLACES
    drifting_table: ClassVar[str] = "T"
    slot_family: ClassVar[str] = "a"
    role: ClassVar[str] = "none"

    def endpoint(self, task: Task) -> str:
        return "/places"

    def places(self, task: Task) -> dict[Key, list[str]]:
        return {
            ("place", place): [f"/{place}/{index}" for index in range(len(listed))]
            for place, listed in task.input.items()
        }

    def lesson(self, task: Task, request: Body, suggestion: Suggestion, keying: Keying) -> Entry | None:
        place = suggestion.field.split("/")[1]
        if place not in PLACES:
            return None
        value = suggestion.suggested_value
        return Entry(("place", place), suggestion.table, place, value, cacheable=suggestion.cacheable)

    def holds(self, entry: Entry, rows: Mapping[str, Json]) -> bool:
        return bool(rows.get(entry.row or "") == entry.value)

    def current(self, entry: Entry, rows: Mapping[str, Json]) -> Entry | None:
        value = rows.get(entry.row or "")
        return None if value is None else replace(entry, value=value)

    def intent_kept(self, criterion: Mapping[str, Json], request: Body) -> bool:
        return True

    def drift_row(self, task: Task) -> str | None:
        return None

    def describe(self, key: Key) -> str:
        return " ".join(key)


def memory_of(arm: Arm) -> Memory:
    memory = arm.memory(Places(), "task")
    assert isinstance(memory, Memory)
    return memory


def task(places: Iterable[str] = PLACES) -> Task:
    return Task(id="t", description="", input={place: [None, None] for place in places})


def fix(
    place: str, value: Json, *, cacheable: bool = True, index: int = 0, table: str | None = None
) -> dict[str, Json]:
    """A suggestion as it stands in a response; its table is the place's own unless named."""
    return {
        "action": "MODIFY_PARAMS",
        "parameters": {"field": f"/{place}/{index}", "suggested_value": value},
        "table": table or TABLE_OF.get(place),
        "cache_hint": {"cacheable": cacheable},
    }


def answer(fixes: Sequence[dict[str, Json]] = (), /, **stamps: str) -> Response:
    """A refusal with `fixes`, or an acceptance where there are none."""
    body: dict[str, Json] = {"table_versions": stamps}
    if fixes:
        body["recovery_feedback"] = {"suggestions": list(fixes)}
    return read_response(422 if fixes else 200, body)


def observed(response: Response, carried: Sequence[Carried] = ()) -> Observation:
    return Observation(task(), {}, response, carried)


def changed(
    table: str, old: str, new: str, diff: dict[str, Json] | None = None
) -> tuple[TableDiff, ...]:
    item = {"table": table, "from_version": old, "to_version": new, "diff": diff}
    return read_reload({"reloaded": [item]})


# -- the state of a store, to compare ------------------------------------------------------------


def state(store: Store) -> dict[str, Any]:
    """Everything that decides what a store does next, heap and index layout aside."""
    public = {f.name: getattr(store, f.name) for f in fields(store) if not f.name.startswith("_")}
    plain = {name: value.copy() if hasattr(value, "copy") else value for name, value in public.items()}
    plain["diffs"] = {table: list(listed) for table, listed in store.diffs.items()}
    held = [asdict(each) for each in store]
    return {**plain, "held": held, "next": store._order, "victim": plain_held(store.least_used())}


def plain_held(held: Held | None) -> dict[str, Any] | None:
    return asdict(held) if held else None


def assert_consistent(store: Store) -> None:
    """The store's books equal a recount from the entries alone."""
    listed = list(store)
    assert store.count == len(listed)
    assert store.bytes == sum(recounted(held.entry) for held in listed)
    assert all(held.size == recounted(held.entry) for held in listed)
    assert len({held.order for held in listed}) == len(listed)
    assert all(held.order > 0 for held in listed)
    assert {held.entry.key for held in listed} <= store.known
    for key in {held.entry.key for held in listed}:
        under = [held for held in listed if held.entry.key == key]
        assert list(store.at(key)) == sorted(under, key=lambda held: held.order)
        for held in under:
            assert store.find(key, held.entry.value) is held
    for table in {held.entry.table or "" for held in listed} | set(TABLES):
        of_table = [held for held in listed if (held.entry.table or "") == table]
        assert by_order(store.of_table(table)) == by_order(of_table)
        assert store.count_of(table) == len(of_table)
        positions = [held.position for held in of_table]
        assert store.learned_at(table) == {each: positions.count(each) for each in positions}
        for row in {held.entry.row for held in of_table}:
            of_row = [held for held in of_table if held.entry.row == row]
            assert by_order(store.of_rows(table, [row])) == by_order(of_row)
    assert store.least_used() is min(listed, key=rank, default=None)


def by_order(listed: Iterable[Held]) -> list[Held]:
    return sorted(listed, key=lambda held: held.order)


def rank(held: Held) -> tuple[int, int]:
    return held.uses, held.order


def recounted(entry: Entry) -> int:
    """Bytes of an entry as DESIGN.md counts them: key, table, row or category, value, version."""
    names = ("key", "table", "row", "value", "version")
    return len(canonical_json({name: getattr(entry, name) for name in names}).encode())


# -- the naive reference of a governed, latest-wins memory -----------------------------------------


@dataclass
class Naive:
    """What A2 (and, with a budget, A3) must hold, by lists and scans alone."""

    budget: int | None = None
    kept: list[tuple[Entry, int]] = field(default_factory=list)
    """Entry and its uses, oldest first."""
    evicted: list[Entry] = field(default_factory=list)

    def set_budget(self, limit: int | None) -> None:
        self.budget = limit
        self._shrink(spare=None)

    def see(self, stamps: Mapping[str, str]) -> None:
        """Forget what a stamp shows to be of another version."""
        self.kept = [
            (entry, uses)
            for entry, uses in self.kept
            if stamps.get(entry.table or "", entry.version) == entry.version
        ]

    def observe(self, seen: Observation, entries: Sequence[Entry]) -> None:
        """Take in an observation whose suggestions teach `entries`, stamped."""
        self.see(seen.response.stamps)
        good = [(each.entry.key, each.entry.value) for each in seen.carried if not each.refused]
        self.kept = [(entry, uses + good.count((entry.key, entry.value))) for entry, uses in self.kept]
        for entry in entries:
            self._learn(entry)

    def _learn(self, entry: Entry) -> None:
        if not entry.cacheable or entry.version is None:
            return
        if self.budget is not None and recounted(entry) > self.budget:
            return
        self.kept = [(held, uses) for held, uses in self.kept if held.key != entry.key]
        self.kept.append((entry, 0))
        self._shrink(spare=entry)

    def _shrink(self, spare: Entry | None) -> None:
        while self.budget is not None and sum(recounted(e) for e, _ in self.kept) > self.budget:
            others = [held for held in self.kept if held[0] is not spare]
            victim = min(others, key=lambda held: held[1])  # the first of equals is the oldest
            self.kept.remove(victim)
            self.evicted.append(victim[0])
