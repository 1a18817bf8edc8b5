"""A budget that forgives: what fades, in which order, and what may come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory.world import Places, answer, fix, observed, task

from crossmem.experience.forgiving import A3C, FadingStore, Forgiving, Trace, compact_size, digest
from crossmem.memory.entry import canonical_json
from crossmem.memory.events import BudgetSet, Carried
from crossmem.memory.policies import Action


def memory(*places: str) -> Forgiving:
    """A memory that holds one entry per place, learned in this order."""
    made = Forgiving(A3C, Places(), "task")
    for place in places:
        made.observe(observed(answer([fix(place, f"the long value of {place}")], T="1", U="1")))
    return made


def budget(held: Forgiving, limit: int | None) -> list[str]:
    return [f"{each.kind} {each.key[1]}" for each in held.observe(BudgetSet(bytes=limit)) if each.key]


def served(held: Forgiving) -> list[str]:
    return [str(entry.value) for entry in held.recall(task())]


def only_one_serves(held: Forgiving) -> int:
    """The bytes at which all but the last are traces."""
    *others, last = held.store
    traces = sum(Trace(each.entry.key, digest(each.entry), 0).size for each in others)
    return traces + compact_size(last.entry)


def recounted(store: FadingStore) -> int:
    """Bytes by the definition of the states, entry by entry."""
    total = sum(trace.size for trace in store.traces.values())
    for held in store:
        entry = held.entry
        bare = [list(entry.key), entry.table, entry.row, entry.value]
        total += len(canonical_json(bare)) if held.order in store.compact else entry.size
    return total


def test_a_tight_budget_makes_the_oldest_unused_entry_compact_and_serves_it_still() -> None:
    held = memory("a", "b", "c")
    assert budget(held, held.store.bytes - 1) == ["demote a"]
    assert served(held) == ["the long value of a", "the long value of b", "the long value of c"]


def test_a_used_entry_fades_after_unused_ones() -> None:
    held = memory("a", "b")
    (first, _) = held.recall(task())
    held.observe(observed(answer(T="1"), [Carried(first, refused=False)]))
    assert budget(held, held.store.bytes - 1) == ["demote b"]


def test_all_are_compact_before_one_is_a_trace_and_a_trace_is_not_served() -> None:
    held = memory("a", "b")
    compact = sum(compact_size(each.entry) for each in held.store)
    assert budget(held, compact - 1) == ["demote a", "demote b", "demote a"]
    assert served(held) == ["the long value of b"]
    assert list(held.store.traces) == [("place", "a")]


def test_what_was_just_learned_is_made_compact_before_another_entry_is_lost() -> None:
    held = memory("a", "b")
    held.observe(BudgetSet(bytes=3 * compact_size(next(iter(held.store)).entry)))
    held.observe(observed(answer([fix("c", "the long value of c")], U="1")))
    assert len(served(held)) == 3


def test_what_faded_is_rebuilt_whole_when_the_budget_recovers() -> None:
    held = memory("a", "b")
    before, size = held.recall(task()), held.store.bytes
    budget(held, only_one_serves(held))
    assert sorted(budget(held, None)) == ["rebuild a", "rebuild b"]
    assert sorted(held.recall(task()), key=lambda entry: entry.key) == list(before)
    assert (held.store.bytes, held.store.traces, held.store.compact) == (size, {}, set())


def test_a_trace_whose_table_has_moved_on_is_not_rebuilt() -> None:
    held = memory("a", "c")
    budget(held, only_one_serves(held))
    held.observe(observed(answer(T="2")))
    assert "refuse a" in budget(held, None)
    assert served(held) == ["the long value of c"]


def test_a_trace_whose_record_was_altered_is_not_rebuilt() -> None:
    held = memory("a", "b")
    budget(held, only_one_serves(held))
    (trace,) = held.store.traces.values()
    (other,) = (each.entry for each in held.store)
    held.store.archive[trace.digest] = other
    assert digest(other) != trace.digest
    assert f"refuse {trace.key[1]}" in budget(held, None)


def test_a_key_learned_again_leaves_no_trace() -> None:
    held = memory("a", "b")
    budget(held, only_one_serves(held))
    assert ("place", "a") in held.store.traces
    held.store.budget = 300  # room for it, and nothing brought back yet
    held.observe(observed(answer([fix("a", "new")], T="1")))
    assert ("place", "a") not in held.store.traces
    assert "new" in served(held)


@pytest.mark.parametrize("limit", [0, 1, 20])
def test_a_budget_below_the_smallest_trace_leaves_nothing_and_refuses_what_comes(limit: int) -> None:
    held = memory("a", "b", "c")
    held.observe(BudgetSet(bytes=limit))
    (action,) = held.observe(observed(answer([fix("a", "new")], T="1")))
    assert action.kind == "refuse"
    assert (served(held), held.store.bytes, held.store.count) == ([], 0, 0)
    assert budget(held, None) == []


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("budget"), st.one_of(st.none(), st.integers(0, 400))),
            st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "longer value"])),
            st.tuples(st.just("bump"), st.integers(1, 3)),
        ),
        max_size=30,
    )
)
def test_the_bytes_are_those_of_the_states_and_within_the_budget(
    events: list[tuple[str, int | str | None]],
) -> None:
    held = memory()
    version = "1"
    for what, value in events:
        actions: list[Action]
        if what == "budget":
            assert value is None or isinstance(value, int)
            actions = held.observe(BudgetSet(bytes=value))
        elif what == "bump":
            version = str(value)
            actions = held.observe(observed(answer(T=version, U=version)))
        else:
            actions = held.observe(observed(answer([fix(what, value)], T=version, U=version)))
        assert all(action.why for action in actions)
        assert held.store.bytes == recounted(held.store)
        assert held.store.budget is None or held.store.bytes <= held.store.budget
