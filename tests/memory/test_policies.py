"""Each policy by itself, over a store of a few entries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from crossmem.contract import Json
from crossmem.memory import policies as p
from crossmem.memory.arms import ARMS, ORACLE, Arm, arms
from crossmem.memory.entry import Entry
from crossmem.memory.events import BudgetSet, Carried, DiffsHanded, Truth, VersionsRead
from crossmem.memory.memory import Memory
from crossmem.memory.store import Held, Store

from .world import answer, changed, fix, memory_of, observed, plain_held, task

X = Entry(("place", "a"), "T", "a", "x", "1", cacheable=True)
Y = replace(X, value="y")


def holding(*entries: Entry) -> Store:
    store = Store()
    for entry in entries:
        store.put(entry)
    return store


def values(store: Store) -> list[Json]:
    return [held.entry.value for held in sorted(store, key=lambda held: held.order)]


def learn(store: Store, entry: Entry, conflict: p.Conflict = p.keep_latest) -> list[p.Action]:
    return list(p.learn(store, entry, p.admit_everything, conflict, p.evict_least_used))


def kinds(actions: Iterable[p.Action]) -> list[str]:
    return [action.kind for action in actions]


# -- admission ---------------------------------------------------------------------------------------


def test_admit_nothing_refuses_and_says_why() -> None:
    assert p.admit_nothing(X)


def test_admit_everything_ignores_the_hint_and_a_missing_stamp() -> None:
    assert p.admit_everything(replace(X, cacheable=False, version=None, table=None)) is None


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (X, None),
        (replace(X, cacheable=False), "not marked cacheable by the server"),
        (replace(X, version=None), "came without a version stamp"),
        (replace(X, table=None), "came without a version stamp"),
    ],
)
def test_admit_cacheable_wants_the_hint_and_a_stamp(entry: Entry, why: str | None) -> None:
    assert p.admit_cacheable(entry) == why


# -- conflict ----------------------------------------------------------------------------------------


def test_keep_first_is_a_hit_for_any_value_of_a_held_key() -> None:
    store = holding(X)

    assert kinds(learn(store, Y, p.keep_first)) == ["hit"]
    assert kinds(learn(store, X, p.keep_first)) == ["hit"]
    assert values(store) == ["x"]


def test_keep_all_moves_a_value_learned_again_to_the_end() -> None:
    store = holding(X, Y)

    assert kinds(learn(store, X, p.keep_all)) == ["confirm"]
    assert values(store) == ["y", "x"]


def test_keep_latest_replaces_and_says_by_what() -> None:
    store = holding(X)
    (action,) = learn(store, replace(Y, version="2"))

    assert (action.kind, action.from_version, action.to_version) == ("relearn", "1", "2")
    assert action.why == 'replaces "x"'
    assert values(store) == ["y"]


def test_the_same_value_suggested_again_confirms_and_takes_the_new_stamp() -> None:
    store = holding(X)
    (action,) = learn(store, replace(X, version="2"))

    assert (action.kind, action.from_version, action.to_version) == ("confirm", "1", "2")
    assert [held.entry.version for held in store] == ["2"]


def test_a_key_that_was_dropped_is_relearned_and_not_admitted_anew() -> None:
    store = holding(X)
    store.drop(*store.at(X.key))

    assert kinds(learn(store, Y)) == ["relearn"]
    assert kinds(learn(store, replace(X, key=("place", "b")))) == ["admit"]


# -- budget ------------------------------------------------------------------------------------------


def place(name: str, value: str = "x") -> Entry:
    """An entry of the same size under another key."""
    return replace(X, key=("place", name), row=name, value=value)


def test_shrink_evicts_the_fewest_uses_first_and_of_equals_the_oldest() -> None:
    store = holding(place("a"), place("b"), place("c"), place("d"))
    for name in "aad":
        store.used(*store.at(("place", name)))
    store.budget = X.size
    evicted = [action.key for action in p.evict_least_used(store)]

    assert evicted == [("place", "b"), ("place", "c"), ("place", "d")]


def test_without_a_budget_nothing_is_evicted() -> None:
    store = holding(place("a"), place("b"))

    assert list(p.evict_least_used(store)) == []


def test_a_store_that_just_fits_keeps_all() -> None:
    store = holding(place("a"), place("b"))
    store.budget = store.bytes

    assert list(p.evict_least_used(store)) == []


def test_others_make_room_for_a_new_entry_even_if_they_served_more_often() -> None:
    store = holding(place("a"))
    store.used(*store.at(("place", "a")))
    store.budget = X.size
    actions = learn(store, place("b"))

    assert [(action.kind, action.key) for action in actions] == [
        ("evict", ("place", "a")),
        ("admit", ("place", "b")),
    ]


def test_an_entry_larger_than_the_budget_is_refused_and_nothing_makes_way() -> None:
    store = holding(place("a"))
    store.budget = store.bytes
    actions = learn(store, place("b", "a value with a few bytes more"))

    assert kinds(actions) == ["refuse"]
    assert "exceed the budget" in actions[0].why
    assert values(store) == ["x"]


def test_replacing_a_key_evicts_nobody_where_the_new_value_fits_in_its_place() -> None:
    store = holding(place("a"), place("b"))
    store.budget = store.bytes

    assert kinds(learn(store, place("a", "y"))) == ["relearn"]


def test_tightening_evicts_at_once_and_recovery_brings_nothing_back() -> None:
    memory = memory_of(ARMS["A3"])
    memory.observe(observed(answer([fix("a", "x"), fix("b", "x"), fix("c", "x")], T="1", U="1")))

    assert kinds(memory.observe(BudgetSet(bytes=memory.store.bytes - 1))) == ["evict"]
    assert memory.observe(BudgetSet(bytes=None)) == []
    assert kinds(memory.observe(BudgetSet(bytes=0))) == ["evict", "evict"]


# -- invalidation ------------------------------------------------------------------------------------

BUMP = p.Bump("T", "1", "2")
OTHER = Entry(("place", "c"), "U", "c", "x", "1", cacheable=True)


def test_invalidate_never_drops_nothing() -> None:
    store = holding(X, OTHER)

    assert list(p.invalidate_never(store, BUMP)) == []
    assert store.count == 2


def test_restamp_keeps_all_and_speaks_once_for_the_table() -> None:
    store = holding(X, place("b"), OTHER)
    (action,) = p.revalidate(store, BUMP)

    assert (action.kind, action.table, action.key) == ("restamp", "T", None)
    assert store.count == 3
    assert list(p.revalidate(holding(OTHER), BUMP)) == []


def test_drop_table_drops_that_table_alone() -> None:
    store = holding(X, place("b"), OTHER)
    actions = list(p.drop_table(store, BUMP))

    assert kinds(actions) == ["invalidate", "invalidate"]
    assert {(action.from_version, action.to_version) for action in actions} == {("1", "2")}
    assert [held.entry for held in store] == [OTHER]


def test_drop_unconfirmed_keeps_what_the_response_confirmed() -> None:
    store = holding(X, place("b"), OTHER)
    confirmed = store.at(X.key)
    actions = list(p.drop_unconfirmed(store, replace(BUMP, confirmed=confirmed)))

    assert [(action.kind, action.key) for action in actions] == [
        ("invalidate", ("place", "b")),
        ("restamp", None),
    ]
    assert [held.entry for held in store] == [X, OTHER]


def test_drop_unconfirmed_without_a_confirmation_is_drop_table() -> None:
    store = holding(X, place("b"))

    assert kinds(p.drop_unconfirmed(store, BUMP)) == ["invalidate", "invalidate"]


def test_drop_untrue_drops_what_the_live_rows_lack_of_that_table() -> None:
    store = holding(X, place("b", "y"), OTHER)
    (action,) = p.drop_untrue(store, "T", "1", lambda entry: entry.value == "x")

    assert (action.kind, action.key) == ("invalidate", ("place", "b"))
    assert store.count == 2


# -- diffs -------------------------------------------------------------------------------------------


def removed(**categories: list[str]) -> dict[str, Json]:
    return {"shape": "list", "added": {}, "removed": categories}


def added(**categories: list[str]) -> dict[str, Json]:
    return {"shape": "list", "added": categories, "removed": {}}


def rows(
    *, added: Iterable[str] = (), removed: Iterable[str] = (), changed: Iterable[str] = ()
) -> Json:
    listed = {"added": list(added), "removed": list(removed), "changed": list(changed)}
    return {"shape": "dict", **listed}


def aware(*fixes: dict[str, Json]) -> Memory:
    """An A2D that learned `fixes` under version 1 of all tables."""
    memory = memory_of(ARMS["A2D"])
    memory.observe(observed(answer(fixes, T="1", U="1")))
    return memory


def hand(memory: Memory, *chain: tuple[str, str, Json], table: str = "T") -> None:
    for old, new, diff in chain:
        assert memory.observe(DiffsHanded(diffs=changed(table, old, new, diff))) == []


def stamped(memory: Memory, **stamps: str) -> list[tuple[str, str | None]]:
    actions = memory.observe(observed(answer(**stamps)))
    return [(each.kind, each.key[1] if each.key else None) for each in actions]


A, B = fix("a", "x"), fix("b", "x")


def test_a_diff_of_a_list_shaped_table_drops_the_value_removed_from_its_category() -> None:
    memory = aware(A, B)
    hand(memory, ("1", "2", removed(a=["x"])))

    assert stamped(memory, T="2") == [("invalidate", "a"), ("restamp", None)]


def test_a_value_removed_from_another_category_survives() -> None:
    memory = aware(A)
    hand(memory, ("1", "2", removed(b=["x"], a=["z"])))

    assert stamped(memory, T="2") == [("restamp", None)]
    assert [each.version for each in memory.recall(task())] == ["2"]


def test_list_changes_net_out_over_the_chain() -> None:
    memory = aware(A, B)
    hand(memory, ("1", "2", removed(a=["x"])), ("2", "3", added(a=["x"])), ("3", "4", removed(b=["x"])))

    assert stamped(memory, T="4") == [("invalidate", "b"), ("restamp", None)]


def test_a_dict_row_is_touched_by_its_key_whatever_values_say() -> None:
    memory = aware(A, B)
    hand(memory, ("1", "2", rows(changed=["a", "x"])))

    assert stamped(memory, T="2") == [("invalidate", "a"), ("restamp", None)]


@pytest.mark.parametrize("how", ["added", "removed", "changed"])
def test_dict_changes_are_a_union_over_the_chain(how: str) -> None:
    memory = aware(A, B)
    hand(memory, ("1", "2", rows(**{how: ["a"]})), ("2", "3", rows(changed=["other"])))

    assert stamped(memory, T="3") == [("invalidate", "a"), ("restamp", None)]


@pytest.mark.parametrize(
    ("chain", "why"),
    [
        ([], "none was handed over"),
        ([("2", "3", rows())], "they lead from 2"),
        ([("1", "2", rows()), ("3", "4", rows())], "they lead from 3"),
        ([("1", "2", rows())], "they lead to 2"),
        ([("1", "3", None)], "unknown shape"),
        ([("1", "2", rows()), ("2", "3", added(b=["z"]))], "mix shapes"),
    ],
)
def test_a_chain_that_cannot_be_used_drops_the_table_and_says_why(
    chain: list[tuple[str, str, Json]], why: str
) -> None:
    memory = aware(A, fix("c", "x"))
    hand(memory, *chain)
    actions = memory.observe(observed(answer(T="3")))

    assert [(each.kind, each.key) for each in actions] == [("invalidate", ("place", "a"))]
    assert why in actions[0].why
    assert memory.store.count == 1


def test_a_diff_for_another_table_is_no_diff_for_this_one() -> None:
    memory = aware(A, fix("c", "x"))
    hand(memory, ("1", "2", rows()), table="U")

    assert stamped(memory, T="2") == [("invalidate", "a")]
    assert stamped(memory, U="2") == [("restamp", None)]


def test_a_diff_is_applied_once() -> None:
    memory = aware(A, B)
    hand(memory, ("1", "2", removed(a=["x"])))
    stamped(memory, T="2")
    memory.observe(observed(answer([A], T="2")))
    hand(memory, ("2", "3", removed(b=["x"])))

    assert stamped(memory, T="3") == [("invalidate", "b"), ("restamp", None)]


def test_a_rollback_to_a_seen_version_neither_loops_nor_misroutes() -> None:
    memory = aware(A, B)
    for _ in range(2):
        hand(memory, ("1", "2", removed(a=["x"])))
        assert stamped(memory, T="2")[-1] == ("restamp", None)
        hand(memory, ("2", "1", added(a=["x"])))
        assert stamped(memory, T="1") == [("restamp", None)]
        memory.observe(observed(answer([A], T="1")))
    assert memory.store.count == 2


def test_a_bump_and_its_rollback_unseen_in_between_touch_nothing() -> None:
    memory = aware(A, B)
    hand(memory, ("1", "2", removed(a=["x"])), ("2", "1", added(a=["x"])))

    assert stamped(memory, T="1") == []
    hand(memory, ("1", "3", removed(b=["x"])))
    assert stamped(memory, T="3") == [("invalidate", "b"), ("restamp", None)]


def test_a_silent_change_takes_effect_with_the_next_stamp() -> None:
    memory = aware(A, B)
    hand(memory, ("1", "1", removed(a=["x"])))
    assert stamped(memory, T="1") == []
    hand(memory, ("1", "2", removed(b=["z"])))

    assert stamped(memory, T="2") == [("invalidate", "a"), ("restamp", None)]


def test_what_was_learned_after_a_silent_change_is_not_touched_by_it() -> None:
    memory = aware(A, B)
    hand(memory, ("1", "1", removed(a=["y"], b=["x"])))
    memory.observe(observed(answer([fix("a", "y")], T="1")))
    hand(memory, ("1", "2", removed(a=["z"])))

    assert stamped(memory, T="2") == [("invalidate", "b"), ("restamp", None)]


# -- what an observation confirms ----------------------------------------------------------------------


def sent(memory: Memory, *refused: str) -> list[Carried]:
    return [Carried(entry, entry.key[1] in refused) for entry in memory.recall(task())]


def test_a2c_keeps_what_passed_inside_a_refusal() -> None:
    memory = memory_of(ARMS["A2C"])
    memory.observe(observed(answer([A, B], T="1")))
    again = [fix("b", "y")]
    actions = memory.observe(observed(answer(again, T="2"), sent(memory, "b")))

    assert [(each.kind, each.key and each.key[1]) for each in actions] == [
        ("invalidate", "b"),
        ("restamp", None),
        ("relearn", "b"),
    ]
    assert [(each.value, each.version) for each in memory.recall(task())] == [("x", "2"), ("y", "2")]


def test_a2c_is_not_confirmed_by_a_response_that_did_not_consult_the_table() -> None:
    memory = memory_of(ARMS["A2C"])
    memory.observe(observed(answer([A, fix("c", "x")], T="1", U="1")))
    memory.observe(observed(answer(U="2"), sent(memory)))

    assert [(each.key[1], each.version) for each in memory.recall(task())] == [("a", "1"), ("c", "2")]


def test_versions_read_invalidate_without_an_attempt() -> None:
    memory = memory_of(ARMS["A2V"])
    memory.observe(observed(answer([A, fix("c", "x")], T="1", U="1")))

    assert kinds(memory.observe(VersionsRead(stamps={"T": "2", "U": "1"}))) == ["invalidate"]
    assert [each.key[1] for each in memory.recall(task())] == ["c"]


def test_the_oracle_drops_exactly_what_is_not_true_even_under_the_same_version() -> None:
    memory = memory_of(ORACLE)
    memory.observe(observed(answer([A, B, fix("c", "x")], T="1", U="1")))
    actions = memory.observe(Truth(tables={"T": ("1", {"a": "x", "b": "y"}), "U": ("2", {"c": "x"})}))

    assert kinds(actions) == ["invalidate", "restamp"]
    assert [(each.key[1], each.version) for each in memory.recall(task())] == [("a", "1"), ("c", "2")]


def test_a_use_is_an_entry_carried_and_not_refused() -> None:
    memory = memory_of(ARMS["A2"])
    memory.observe(observed(answer([A, B], T="1")))
    memory.observe(observed(answer([fix("b", "x")], T="1"), sent(memory, "b")))

    (held,) = memory.store.at(("place", "a"))
    assert held.uses == 1
    assert plain_held(memory.store.least_used()) == plain_held(*memory.store.at(("place", "b")))


def test_an_entry_dropped_by_the_same_response_is_not_used() -> None:
    memory = memory_of(ARMS["A2"])
    memory.observe(observed(answer([A], T="1")))
    actions = memory.observe(observed(answer(T="2"), sent(memory)))

    assert kinds(actions) == ["invalidate"]
    assert memory.store.least_used() is None


def test_an_observation_without_stamps_teaches_a_governed_arm_nothing() -> None:
    memory = memory_of(ARMS["A2"])

    assert kinds(memory.observe(observed(answer([A])))) == ["refuse"]


# -- the table of arms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", [*ARMS.values(), ORACLE], ids=lambda arm: arm.name)
def test_an_arm_describes_itself_in_plain_words(arm: Arm) -> None:
    described = arm.describe()

    assert described["name"] == arm.name
    assert described["admission"] == arm.admission.__name__
    assert all(isinstance(each, str | None) for each in described.values())


def test_the_oracle_is_no_arm_to_be_asked_for() -> None:
    assert ORACLE.name not in ARMS
    assert [arm.name for arm in arms(list(ARMS))] == list(ARMS)


def held_values(held: Iterable[Held]) -> list[Json]:
    return [each.entry.value for each in held]


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("A0", []),
        ("A1F", ["x"]),
        ("A1", ["y", "x"]),
        ("LW", ["x"]),
        ("LWG", ["x"]),
        ("A2", ["x"]),
    ],
)
def test_what_an_arm_lists_for_a_key_taught_x_then_y_then_x(name: str, listed: list[str]) -> None:
    memory = memory_of(ARMS[name])
    for value in ("x", "y", "x"):
        memory.observe(observed(answer([fix("a", value)], T="1")))

    assert held_values(memory.store.at(("place", "a"))) == listed


def test_true_in_the_place_of_1_is_relearned_and_not_confirmed() -> None:
    store = holding(replace(X, value=1))

    assert kinds(learn(store, replace(X, value=True))) == ["relearn"]
