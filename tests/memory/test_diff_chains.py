"""Diffs compose: what A2D keeps over a chain of changes, and why it drops. A2C inside a refusal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossmem.memory.arms import ARMS
from crossmem.memory.events import Carried, DiffsHanded, VersionsRead

from .world import PLACES, answer, assert_consistent, changed, fix, memory_of, observed, task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from crossmem.contract import Json
    from crossmem.memory.memory import Memory
    from crossmem.memory.policies import Action

Rows = dict[str, list[str]]


def listed(removed: Mapping[str, list[str]], added: Mapping[str, list[str]]) -> dict[str, Json]:
    return {"shape": "list", "added": dict(added), "removed": dict(removed)}


def keyed(*keys: str) -> dict[str, Json]:
    return {"shape": "dict", "changed": list(keys)}


def warm(values: Mapping[str, Json], arm: str = "A2D", version: str = "1") -> Memory:
    """A memory that learned `values`, place by place, of table T at one version."""
    memory = memory_of(ARMS[arm])
    learn(memory, values, version)
    return memory


def learn(memory: Memory, values: Mapping[str, Json], version: str) -> list[Action]:
    fixes = [fix(place, value, table="T") for place, value in values.items()]
    return memory.observe(observed(answer(fixes, T=version)))


def hand(memory: Memory, old: str, new: str, diff: dict[str, Json] | None, table: str = "T") -> None:
    assert memory.observe(DiffsHanded(diffs=changed(table, old, new, diff))) == []


def see(memory: Memory, version: str, carried: Sequence[Carried] = ()) -> list[Action]:
    """Let an accepted request reveal the version of T."""
    return memory.observe(observed(answer(T=version), carried))


def held(memory: Memory) -> dict[str, Json]:
    return {each.key[1]: each.value for each in memory.recall(task())}


def versions(memory: Memory) -> set[str | None]:
    return {each.version for each in memory.recall(task())}


def why(actions: Iterable[Action]) -> str:
    """The one reason that all invalidations of a bump give."""
    (reason,) = {action.why for action in actions if action.kind == "invalidate"}
    return reason


# -- chains that lead all the way ------------------------------------------------------------------


def test_changes_that_no_stamp_exposed_are_composed_when_one_does() -> None:
    memory = warm({"a": "x", "b": "y", "c": "z"})
    hand(memory, "1", "2", listed({"a": ["x"]}, {"a": ["x2"]}))
    hand(memory, "2", "3", listed({"b": ["y"]}, {}))
    hand(memory, "3", "4", listed({}, {"c": ["more"]}))
    assert held(memory) == {"a": "x", "b": "y", "c": "z"}
    actions = see(memory, "4")
    assert held(memory) == {"c": "z"}
    assert versions(memory) == {"4"}
    assert [action.kind for action in actions] == ["invalidate", "invalidate", "restamp"]
    assert {(action.from_version, action.to_version) for action in actions} == {("1", "4")}
    assert why(actions) == "the diff removed or changed it"


def test_a_value_removed_and_added_again_survives() -> None:
    memory = warm({"a": "x", "b": "y"})
    hand(memory, "1", "2", listed({"a": ["x"], "b": ["y"]}, {"a": ["x2"]}))
    hand(memory, "2", "3", listed({}, {"a": ["x"]}))
    see(memory, "3")
    assert held(memory) == {"a": "x"}


def test_a_value_added_and_removed_again_drops() -> None:
    memory = warm({"b": "y"})
    hand(memory, "1", "2", listed({}, {"a": ["x"], "b": ["y2"]}))
    hand(memory, "2", "3", listed({"a": ["x"]}, {}))
    learned_at_2 = warm({"b": "y"})
    hand(learned_at_2, "1", "2", listed({}, {"a": ["x"]}))
    learn(learned_at_2, {"a": "x"}, "2")
    hand(learned_at_2, "2", "3", listed({"a": ["x"]}, {}))
    see(memory, "3")
    see(learned_at_2, "3")
    assert held(memory) == held(learned_at_2) == {"b": "y"}


def test_dict_shaped_changes_are_a_union_of_row_keys() -> None:
    memory = warm({"a": "x", "b": "y", "c": "z", "d": "w"})
    hand(memory, "1", "2", {"shape": "dict", "changed": ["a"]})
    hand(memory, "2", "3", {"shape": "dict", "removed": ["b"]})
    hand(memory, "3", "4", {"shape": "dict", "added": ["b", "e"]})
    actions = see(memory, "4")
    assert held(memory) == {"c": "z", "d": "w"}
    assert [action.kind for action in actions].count("restamp") == 1


def test_a_dict_row_that_changes_and_changes_back_is_dropped_all_the_same() -> None:
    memory = warm({"a": "x", "b": "y"})
    hand(memory, "1", "2", keyed("a"))
    hand(memory, "2", "3", keyed("a"))
    see(memory, "3")
    assert held(memory) == {"b": "y"}


def test_a_dict_row_is_matched_by_its_key_and_never_by_its_value() -> None:
    """`annual` is the value of one row and the key of another; `b` is a value here and a row there."""
    memory = warm({"a": "annual", "b": "partner", "c": "b"})
    hand(memory, "1", "2", {"shape": "dict", "removed": ["annual"], "changed": ["partner", "b"]})
    actions = see(memory, "2")
    assert held(memory) == {"a": "annual", "c": "b"}
    assert [action.key for action in actions if action.kind == "invalidate"] == [("place", "b")]


def test_a_list_value_is_matched_within_its_category() -> None:
    memory = warm({"a": "x", "b": "x"})
    hand(memory, "1", "2", listed({"b": ["x"]}, {}))
    see(memory, "2")
    assert held(memory) == {"a": "x"}


def test_entries_learned_at_different_places_of_the_list_see_only_what_came_after() -> None:
    memory = warm({"a": "x", "b": "y"})
    hand(memory, "1", "1", listed({"a": ["x"], "c": ["z"]}, {}))  # silent: no stamp tells of it
    learn(memory, {"c": "z"}, "1")  # learned after the change that would have removed it
    hand(memory, "1", "2", listed({}, {"b": ["more"]}))
    actions = see(memory, "2")
    assert held(memory) == {"b": "y", "c": "z"}
    assert [action.key for action in actions if action.kind == "invalidate"] == [("place", "a")]


def test_a_restamp_moves_the_survivors_past_the_changes_applied() -> None:
    memory = warm({"a": "x", "b": "y"})
    hand(memory, "1", "2", keyed("a"))
    see(memory, "2")
    learn(memory, {"a": "x2"}, "2")
    hand(memory, "2", "3", keyed("c"))
    see(memory, "3")
    assert held(memory) == {"a": "x2", "b": "y"}
    assert versions(memory) == {"3"}


def test_a_rollback_to_a_version_seen_before_neither_loops_nor_misroutes() -> None:
    memory = warm({"a": "x", "b": "y"})
    hand(memory, "1", "2", listed({"a": ["x"]}, {"a": ["x2"]}))
    see(memory, "2")
    learn(memory, {"a": "x2"}, "2")
    hand(memory, "2", "1", listed({"a": ["x2"]}, {"a": ["x"]}))
    see(memory, "1")
    assert held(memory) == {"b": "y"}
    for round_trip in range(3):
        hand(memory, "1", "2", listed({"a": ["x"]}, {"a": ["x2"]}))
        hand(memory, "2", "1", listed({"a": ["x2"]}, {"a": ["x"]}))
        assert see(memory, "1") == [], round_trip
    learn(memory, {"a": "x"}, "1")
    hand(memory, "1", "3", listed({"b": ["y"]}, {}))
    see(memory, "3")
    assert held(memory) == {"a": "x"}


def test_a_round_trip_that_no_response_saw_is_part_of_the_next_chain() -> None:
    memory = warm({"a": "x", "b": "y"})
    hand(memory, "1", "2", listed({"a": ["x"], "b": ["y"]}, {}))
    hand(memory, "2", "1", listed({}, {"a": ["x"]}))
    hand(memory, "1", "3", listed({}, {}))
    see(memory, "3")
    assert held(memory) == {"a": "x"}


# -- chains that do not ----------------------------------------------------------------------------

BROKEN: dict[str, tuple[list[tuple[str, str, dict[str, Json] | None, str]], str]] = {
    "no diff at all": ([], "none was handed over for 1 -> 3"),
    "of another table": ([("1", "3", keyed("z"), "U")], "none was handed over for 1 -> 3"),
    "a gap at the start": ([("2", "3", keyed("z"), "T")], "they lead from 2, the entries are at 1"),
    "a gap in the middle": (
        [("1", "2", keyed("z"), "T"), ("2b", "3", keyed("z"), "T")],
        "they lead from 2b, the entries are at 2",
    ),
    "an end too early": ([("1", "2", keyed("z"), "T")], "they lead to 2, the response says 3"),
    "an end too late": (
        [("1", "3", keyed("z"), "T"), ("3", "4", keyed("z"), "T")],
        "they lead to 4, the response says 3",
    ),
    "an unknown shape": ([("1", "3", {"shape": "tree"}, "T")], "1 -> 3 has an unknown shape"),
    "no shape": ([("1", "3", None, "T")], "1 -> 3 has an unknown shape"),
    "mixed shapes": (
        [("1", "2", keyed("z"), "T"), ("2", "3", listed({}, {"a": ["n"]}), "T")],
        "they mix shapes",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_chain_that_does_not_lead_there_drops_the_table_and_says_why(case: str) -> None:
    chain, reason = BROKEN[case]
    memory = warm({"a": "x", "b": "y"})
    learn_other(memory)
    for old, new, diff, table in chain:
        hand(memory, old, new, diff, table)
    actions = see(memory, "3")
    assert held(memory) == {"c": "kept"}, "only its own table is dropped"
    assert [action.kind for action in actions] == ["invalidate", "invalidate"]
    assert why(actions) == f"cannot use the diffs: {reason}"
    assert_consistent(memory.store)


def learn_other(memory: Memory) -> None:
    memory.observe(observed(answer([fix("c", "kept")], U="1")))


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_chain_is_left_behind(case: str) -> None:
    """What is learned afterwards is judged by what is handed over afterwards."""
    chain, _ = BROKEN[case]
    memory = warm({"a": "x"})
    for old, new, diff, table in chain:
        hand(memory, old, new, diff, table)
    see(memory, "3")
    learn(memory, {"a": "new", "b": "y"}, "3")
    hand(memory, "3", "5", keyed("a"))
    see(memory, "5")
    assert held(memory) == {"b": "y"}


def test_an_entry_without_a_row_is_dropped_since_nobody_can_tell() -> None:
    memory = warm({"a": "x", "b": "y"})
    (entry,) = memory.recall(task(["a"]))
    memory.store.drop(memory.store.at(entry.key)[0])
    memory.store.put(replace(entry, row=None))
    hand(memory, "1", "2", keyed("z"))
    see(memory, "2")
    assert held(memory) == {"b": "y"}


def test_nothing_is_said_of_a_table_of_which_nothing_is_held() -> None:
    memory = warm({})
    hand(memory, "1", "2", keyed("a"))
    assert see(memory, "2") == []


def test_one_restamp_event_per_table_however_many_entries_survive() -> None:
    memory = warm(dict.fromkeys(PLACES, "x"))
    hand(memory, "1", "2", keyed("z"))
    (action,) = see(memory, "2")
    assert (action.kind, action.table, action.key) == ("restamp", "T", None)
    assert action.why == "not touched by the diff: 4"


def test_two_tables_that_moved_get_a_restamp_each() -> None:
    memory = warm({"a": "x", "b": "y"})
    learn_other(memory)
    hand(memory, "1", "2", keyed("z"))
    hand(memory, "1", "2", keyed("z"), "U")
    actions = memory.observe(observed(answer(T="2", U="2")))
    assert sorted((action.kind, action.table) for action in actions) == [
        ("restamp", "T"),
        ("restamp", "U"),
    ]


# -- any chain, against a naive reading of the tables ----------------------------------------------


@dataclass
class Table:
    """A list-shaped table that drifts, and what a memory of it must keep."""

    version: str = "1"
    rows: Rows = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    seen: str | None = None

    def drift(self, version: str, rows: Rows) -> dict[str, Json]:
        """Change; return the true diff."""
        old, self.rows, self.version = self.rows, rows, version
        names = [*old, *(name for name in rows if name not in old)]
        gone = {name: minus(old.get(name, []), rows.get(name, [])) for name in names}
        came = {name: minus(rows.get(name, []), old.get(name, [])) for name in names}
        return listed({k: v for k, v in gone.items() if v}, {k: v for k, v in came.items() if v})

    def expose(self) -> None:
        """A stamp is seen: what the table does not hold any more is forgotten, if the stamp moved."""
        if self.seen not in {None, self.version}:
            self.kept = {
                place: value for place, value in self.kept.items() if value in self.rows.get(place, [])
            }
        self.seen = self.version


def minus(left: list[str], right: list[str]) -> list[str]:
    return [value for value in left if value not in right]


VALUES = ("x", "y", "z")
some_rows = st.fixed_dictionaries(
    {place: st.lists(st.sampled_from(VALUES), unique=True, max_size=3) for place in PLACES}
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("drift"), st.sampled_from("1234"), some_rows),
        st.tuples(st.just("learn"), st.sets(st.sampled_from(PLACES), min_size=1), st.none()),
        st.tuples(st.just("see"), st.none(), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=300, deadline=None)
@given(some_rows, steps)
def test_a_survivor_is_what_the_final_table_still_holds(
    rows: Rows, steps: list[tuple[str, Any, Any]]
) -> None:
    table, memory = Table(rows=rows), memory_of(ARMS["A2D"])
    for what, first, second in [*steps, ("drift", "9", rows), ("see", "", "")]:
        actions: list[Action] = []
        if what == "drift":
            old = table.version
            diff = table.drift(first, second)
            hand(memory, old, first, diff)
        elif what == "learn":
            values = {place: table.rows[place][0] for place in sorted(first) if table.rows[place]}
            table.expose()
            actions = learn(memory, values, table.version)
            table.kept.update(values)
        else:
            table.expose()
            actions = see(memory, table.version)
        assert held(memory) == table.kept
        assert versions(memory) <= {table.seen}
        assert [action.kind for action in actions].count("restamp") <= 1
        assert_consistent(memory.store)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("123"),
            st.sets(st.sampled_from(PLACES)),
            st.sets(st.sampled_from(PLACES)),
            st.booleans(),
        ),
        max_size=10,
    )
)
def test_a_dict_row_survives_iff_no_change_since_it_was_last_validated_names_it(
    steps: list[tuple[str, set[str], set[str], bool]],
) -> None:
    memory, version = warm(dict.fromkeys(PLACES, "same word")), "1"
    seen = version
    touched: dict[str, bool] = dict.fromkeys(PLACES, False)
    for new, rows, learned, exposed in steps:
        hand(memory, version, new, keyed(*rows))
        version = new
        touched.update({place: True for place in rows if place in touched})
        if exposed or learned:
            learn(memory, dict.fromkeys(sorted(learned), "same word"), version)
            if version != seen:
                touched = dict.fromkeys((p for p, changed in touched.items() if not changed), False)
            touched.update(dict.fromkeys(learned, False))
            seen = version
        assert set(held(memory)) == set(touched)


# -- A2C and A2V -----------------------------------------------------------------------------------


def test_a2c_keeps_what_a_refusal_consulted_and_did_not_refuse() -> None:
    """Inside a 422: a was carried and passed, b was carried and refused, d was not carried."""
    memory = warm({"a": "x", "b": "y", "d": "w"}, "A2C")
    a, b, _ = memory.recall(task(["a", "b", "d"]))
    refused = answer([fix("b", "y2")], T="2")
    actions = memory.observe(observed(refused, [Carried(a, False), Carried(b, True)]))
    assert held(memory) == {"a": "x", "b": "y2"}
    assert versions(memory) == {"2"}
    dropped = [action.key for action in actions if action.kind == "invalidate"]
    assert dropped == [("place", "b"), ("place", "d")]
    assert why(actions) == "its table has another version now and this response did not confirm it"
    (restamp,) = [action for action in actions if action.kind == "restamp"]
    assert (restamp.table, restamp.to_version) == ("T", "2")
    assert restamp.why == "confirmed by this response: 1"
    assert [action.kind for action in actions].index("restamp") < len(actions) - 1, "then it learns"


def test_a2c_keeps_nothing_that_was_carried_where_its_table_was_not_consulted() -> None:
    memory = warm({"a": "x"}, "A2C")
    learn_other(memory)
    entries = memory.recall(task(["a", "c"]))
    actions = memory.observe(observed(answer(U="2"), [Carried(each, False) for each in entries]))
    assert held(memory) == {"a": "x", "c": "kept"}, "T was not consulted: nothing is known of it"
    assert [(action.kind, action.table) for action in actions] == [("restamp", "U")]
    assert see(memory, "2")[0].key == ("place", "a")


def test_a2c_with_nothing_confirmed_is_a2() -> None:
    memories = [warm({"a": "x", "b": "y"}, arm) for arm in ("A2", "A2C")]
    for memory in memories:
        see(memory, "2")
    assert [held(memory) for memory in memories] == [{}, {}]


@pytest.mark.parametrize("arm", ["A2", "A2D", "A2V"])
def test_only_a2c_spares_what_a_response_confirmed(arm: str) -> None:
    memory = warm({"a": "x"}, arm)
    (entry,) = memory.recall(task(["a"]))
    see(memory, "2", [Carried(entry, False)])
    assert held(memory) == {}


def test_a2v_drops_on_versions_read_before_anything_is_recalled() -> None:
    memory = warm({"a": "x", "b": "y"}, "A2V")
    learn_other(memory)
    actions = memory.observe(VersionsRead(stamps={"T": "2", "U": "1"}))
    assert memory.recall(task()) != ()
    assert held(memory) == {"c": "kept"}
    assert {(action.kind, action.table, action.to_version) for action in actions} == {
        ("invalidate", "T", "2")
    }
    assert memory.observe(VersionsRead(stamps={"T": "2", "U": "1"})) == []
