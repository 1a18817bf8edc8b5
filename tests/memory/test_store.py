"""The store's indices against a list that is scanned."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from crossmem.contract import TableDiff
from crossmem.memory.entry import Entry
from crossmem.memory.store import Held, Store

from .world import assert_consistent, rank

KEYS = [("k", name) for name in "abc"]
TABLES = [None, "T", "U"]
ROWS = [None, "r", "s"]
VALUES = ["x", "y", 1, 1.5, "é"]

entries = st.builds(
    Entry,
    st.sampled_from(KEYS),
    st.sampled_from(TABLES),
    st.sampled_from(ROWS),
    st.sampled_from(VALUES),
)


class StoreMachine(RuleBasedStateMachine):
    """A store beside the plain list of what was put and not dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store()
        self.kept: list[Held] = []
        self.most_kept = 0

    @rule(entry=entries)
    def put(self, entry: Entry) -> None:
        if self.store.find(entry.key, entry.value) is None:
            self.kept.append(self.store.put(entry))
        self.most_kept = max(self.most_kept, len(self.kept))

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.kept))
        self.kept.remove(held)
        self.store.drop(held)
        assert held.order == 0
        assert self.store.find(held.entry.key, held.entry.value) is None

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), times=st.integers(1, 200))
    def use(self, data: st.DataObject, times: int) -> None:
        """Often enough that the ranks are built anew."""
        held = data.draw(st.sampled_from(self.kept))
        for _ in range(times):
            self.store.used(held)

    @rule(table=st.sampled_from(["T", "U"]))
    def hand_a_diff_over(self, table: str) -> None:
        self.store.diffs.setdefault(table, []).append(TableDiff(table=table))

    @invariant()
    def every_index_equals_a_scan(self) -> None:
        assert sorted(self.store, key=lambda held: held.order) == self.kept
        assert_consistent(self.store)

    @invariant()
    def the_least_used_is_found_whatever_is_spared(self) -> None:
        for spare in self.kept[-2:]:
            others = [held for held in self.kept if held is not spare]
            assert self.store.least_used(spare) is min(others, key=rank, default=None)
        assert self.store.least_used() is min(self.kept, key=rank, default=None)

    @invariant()
    def outlived_ranks_do_not_pile_up(self) -> None:
        assert len(self.store._heap) <= 64 + 4 * self.most_kept + 1


def test_indices_equal_scans_whatever_is_put_used_and_dropped() -> None:
    settled: Any = settings(max_examples=60, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(StoreMachine, settings=settled)


def entry(name: str, value: str = "v", table: str | None = "T", row: str | None = "r") -> Entry:
    return Entry(("k", name), table, row, value, "1")


def test_an_empty_store_answers() -> None:
    store = Store()

    assert list(store) == store.of_table("T") == store.of_rows("T", ["r", None]) == []
    assert store.at(("k", "a")) == ()
    assert store.find(("k", "a"), "v") is None
    assert store.count_of("T") == store.count == store.bytes == 0
    assert store.least_used() is None


def test_what_is_listed_under_a_key_stays_as_it_was_while_the_store_changes() -> None:
    store = Store()
    held = store.put(entry("a"))
    listed = store.at(("k", "a"))
    store.drop(held)

    assert listed == (held,)


def test_a_value_is_found_by_json_equality() -> None:
    store = Store()
    number = store.put(Entry(("k",), None, None, 1))

    assert store.find(("k",), 1.0) is number
    assert store.find(("k",), True) is None


def test_entries_without_a_table_or_row_are_found_among_their_like() -> None:
    store = Store()
    loose = store.put(entry("a", table=None, row=None))
    bound = store.put(entry("b"))
    rowless = store.put(entry("c", row=None))

    assert store.of_rows("T", [None]) == [rowless]
    assert store.of_rows("T", [None, "r"]) == [rowless, bound]
    assert store.of_table("") == [loose]


def test_an_entry_remembers_how_much_of_its_tables_diff_list_it_has_seen() -> None:
    store = Store()
    before = store.put(entry("a"))
    store.diffs["T"] = [TableDiff(table="T")]
    after = store.put(entry("b"))

    assert (before.position, after.position) == (0, 1)
    assert store.learned_at("T") == {0: 1, 1: 1}
    store.drop(before)
    assert store.learned_at("T") == {1: 1}


def test_the_version_of_an_entry_is_its_tables_stamp_and_else_the_one_it_was_learned_under() -> None:
    store = Store()
    bound, loose = store.put(entry("a")), store.put(entry("b", table=None))
    assert store.version(bound) == "1"
    store.stamps["T"] = "2"

    assert store.version(bound) == "2"
    assert store.version(loose) == "1"


def test_a_dropped_key_stays_known() -> None:
    store = Store()
    store.drop(store.put(entry("a")))

    assert store.known == {("k", "a")}


def test_ranks_stay_few_however_often_an_entry_is_used() -> None:
    store = Store()
    held = store.put(entry("a"))
    for _ in range(10_000):
        store.used(held)

    assert len(store._heap) < 100
    assert store.least_used() is held
