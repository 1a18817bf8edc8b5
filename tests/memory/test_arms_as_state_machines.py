"""Every arm of the table, driven through random worlds; what it promises holds after every event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from crossmem.contract import Json
from crossmem.memory import policies as p
from crossmem.memory.arms import ARMS, ORACLE, Arm
from crossmem.memory.entry import Entry, Key
from crossmem.memory.events import (
    BudgetSet,
    Carried,
    DiffsHanded,
    Event,
    Observation,
    Truth,
    VersionsRead,
)

from .world import (
    PLACES,
    TABLE_OF,
    TABLES,
    Naive,
    answer,
    assert_consistent,
    changed,
    fix,
    memory_of,
    recounted,
    state,
    task,
)

VALUES: tuple[Json, ...] = ("x", "y", 7, "çé", "a value that takes more bytes than the others do")
VERSIONS = ("1", "2", "3", "3.0.1-longer")

values = st.sampled_from(VALUES)
places = st.sampled_from(PLACES)
some_tables = st.sets(st.sampled_from(TABLES))
fixes = st.lists(
    st.builds(fix, places, values, cacheable=st.booleans(), index=st.integers(0, 1)), max_size=4
)


class ArmMachine(RuleBasedStateMachine):
    """One arm; the model beside it keeps what it was told and what it said it did."""

    def __init__(self, arm: Arm) -> None:
        super().__init__()
        self.arm = arm
        self.memory = memory_of(arm)
        self.events: list[Event] = []
        self.actions: list[p.Action] = []
        self.explained: dict[Key, list[tuple[Json, str | None]]] = {}
        self.live = dict.fromkeys(TABLES, "1")
        self.last_stamp: dict[str, str] = {}
        self.budget: int | None = None
        self.admissible: list[Entry] = []
        self.naive = Naive()
        self.rows: dict[str, dict[str, Json]] = {table: {} for table in TABLES}

    # -- what happens ---------------------------------------------------------------------------

    @initialize(warm=st.booleans())
    def learn_something(self, warm: bool) -> None:
        if warm:
            self.attempt(set(PLACES), False, [fix(place, "x") for place in PLACES], set(TABLES))

    @rule(
        table=st.sampled_from(TABLES),
        version=st.sampled_from(VERSIONS),
        shape=st.integers(0, 3),
        rows=st.dictionaries(places, values),
    )
    def drift(self, table: str, version: str, shape: int, rows: dict[str, Json]) -> None:
        """The world changes, perhaps under its old version; the memory hears what its arm is told."""
        old, self.live[table] = self.live[table], version
        self.rows[table] = rows
        diff: dict[str, Json] | None = None
        if shape == 1:
            diff = {"shape": "list", "added": {"a": ["y"]}, "removed": {"a": ["x"]}}
        elif shape == 2:
            diff = {"shape": "dict", "changed": ["a"]}
        if self.arm.signal == "diffs" and shape:
            self.fold(DiffsHanded(diffs=changed(table, old, version, diff)))
        if self.arm.signal == "truth":
            self.fold(Truth(tables={name: (self.live[name], self.rows[name]) for name in TABLES}))

    @precondition(lambda self: self.arm.signal == "versions")
    @rule(read=some_tables)
    def read_versions(self, read: set[str]) -> None:
        self.fold(VersionsRead(stamps={table: self.live[table] for table in read}))

    @rule(asked=st.sets(places, min_size=1), follows=st.booleans(), fixes=fixes, stamped=some_tables)
    def attempt(
        self, asked: set[str], follows: bool, fixes: list[dict[str, Json]], stamped: set[str]
    ) -> None:
        """An agent is shown what memory recalls, sends it or not, and gets some answer."""
        asks = task(sorted(asked))
        recalled = self.memory.recall(asks)
        draft = self.memory.domain.apply(recalled if follows else (), asks)
        stamps = {table: self.live[table] for table in stamped}
        response = answer(fixes, **stamps)
        carried = [
            Carried(entry, response.refuses(pointers))
            for entry, pointers in self.memory.domain.carried(recalled, asks, draft.body)
        ]
        self.fold(Observation(asks, draft.body, response, carried))

    @precondition(lambda self: self.arm.has_budget)
    @rule(limit=st.none() | st.integers(0, 400))
    def set_budget(self, limit: int | None) -> None:
        self.fold(BudgetSet(bytes=limit))

    @precondition(lambda self: self.arm.has_budget)
    @rule()
    def leave_no_room(self) -> None:
        self.fold(BudgetSet(bytes=self.memory.store.bytes))

    @rule()
    def serve_all(self) -> None:
        """Every entry is carried and passes."""
        self.attempt(set(PLACES), True, [], set())

    def fold(self, event: Event) -> None:
        """Fold an event and check what it did against what was there before."""
        before = self.held()
        actions = self.memory.observe(event)
        self.events.append(event)
        self.actions += actions
        self.explain(actions)
        match event:
            case BudgetSet(bytes=limit):
                self.budget = limit
                self.naive.set_budget(limit)
                assert {action.kind for action in actions} <= {"evict"}
            case VersionsRead(stamps=stamps):
                self.last_stamp.update(stamps)
                self.naive.see(stamps)
                self.check_stamps(stamps, actions)
            case Truth(tables=tables):
                self.last_stamp.update({table: version for table, (version, _) in tables.items()})
                self.check_truth(tables, before)
            case Observation():
                self.last_stamp.update(event.response.stamps)
                lessons = self.lessons(event)
                self.admissible += [each for each in lessons if each.cacheable and each.version]
                self.naive.observe(event, lessons)
                self.check_stamps(event.response.stamps, actions)
                self.check_lessons(actions, before, lessons)
            case DiffsHanded():
                assert not actions
                assert self.held() == before, "a diff handed over changes nothing by itself"

    def explain(self, actions: Sequence[p.Action]) -> None:
        """Replay the event log: what is held, in which order and under which version."""
        for action in actions:
            if action.kind == "restamp":
                self.restamped(action)
                continue
            assert action.key is not None
            assert action.why
            now = self.explained.setdefault(action.key, [])
            rest = [held for held in now if held[0] != action.value]
            if action.kind in {"admit", "relearn", "confirm"}:
                assert (action.kind == "admit") <= (not now)
                assert (action.kind == "confirm") == (len(rest) < len(now))
                rest = rest if self.arm.conflict is p.keep_all else []
                now[:] = [*rest, (action.value, action.to_version)]
            elif action.kind in {"invalidate", "evict"}:
                assert len(rest) < len(now)
                now[:] = rest

    def restamped(self, action: p.Action) -> None:
        for key, listed in self.explained.items():
            if TABLE_OF[key[1]] == action.table:
                listed[:] = [(value, action.to_version) for value, _ in listed]

    def lessons(self, seen: Observation) -> list[Entry]:
        """The entries that an observation teaches, with the stamp of their table if it has one."""
        found = []
        for suggestion in seen.response.suggestions:
            table = suggestion.table
            stamp = seen.response.stamps.get(table) if table else None
            place = suggestion.field.split("/")[1]
            value = suggestion.suggested_value
            found.append(Entry(("place", place), table, place, value, stamp, suggestion.cacheable))
        return found

    def check_stamps(self, stamps: Mapping[str, str], actions: Sequence[p.Action]) -> None:
        """Only a stamp that was there and differed may invalidate or re-stamp, and it comes first."""
        kinds = [action.kind for action in actions]
        for action in actions:
            if action.kind in {"invalidate", "restamp"}:
                assert action.table in stamps, "an absent stamp invalidates nothing"
                assert action.from_version != action.to_version == stamps[action.table or ""]
        last = max((i for i, k in enumerate(kinds) if k in {"invalidate", "restamp"}), default=-1)
        first = min((i for i, k in enumerate(kinds) if k not in {"invalidate", "restamp"}), default=99)
        assert last < first, "invalidate first, then learn"

    def check_truth(
        self,
        tables: Mapping[str, tuple[str, Mapping[str, Json]]],
        before: dict[Key, list[Json]],
    ) -> None:
        """The oracle drops exactly what the live tables do not hold."""
        assert self.held() == {
            key: listed
            for key, listed in before.items()
            if tables[TABLE_OF[key[1]] or ""][1].get(key[1]) == listed[0]
        }

    def check_lessons(
        self,
        actions: Sequence[p.Action],
        before: dict[Key, list[Json]],
        lessons: Sequence[Entry],
    ) -> None:
        """What a single attempt may do to each kind of arm."""
        after = self.held()
        kinds = [action.kind for action in actions]
        if self.arm.conflict is p.keep_first:
            self.check_first_stays(before, after, lessons, kinds)
        if self.arm.conflict is p.keep_all and self.arm.admission is p.admit_everything:
            self.check_all_stay(before, after, lessons)
        if self.arm.conflict is p.keep_latest:
            self.check_latest_stands(after, lessons)
        if self.arm.invalidation is p.invalidate_never and not self.arm.has_budget:
            assert before.keys() <= after.keys(), "nothing makes this arm forget a key"
            assert not {"invalidate", "restamp", "evict"}.intersection(kinds)

    def check_first_stays(
        self,
        before: dict[Key, list[Json]],
        after: dict[Key, list[Json]],
        lessons: Sequence[Entry],
        kinds: Sequence[str],
    ) -> None:
        assert all(after[key] == listed for key, listed in before.items() if key in after)
        if self.arm.admission is p.admit_everything:
            known = set(before)
            expected = []
            for lesson in lessons:
                expected.append("hit" if lesson.key in known else "admit")
                known.add(lesson.key)
            assert kinds == expected

    def check_all_stay(
        self, before: dict[Key, list[Json]], after: dict[Key, list[Json]], lessons: Sequence[Entry]
    ) -> None:
        expected = deepcopy(before)
        for lesson in lessons:
            listed = expected.setdefault(lesson.key, [])
            if lesson.value in listed:
                listed.remove(lesson.value)
            listed.append(lesson.value)
        assert after == expected

    def check_latest_stands(self, after: dict[Key, list[Json]], lessons: Sequence[Entry]) -> None:
        newest = {
            lesson.key: lesson.value
            for lesson in lessons
            if self.arm.admission(lesson) is None and not self.too_large(lesson)
        }
        for key, value in newest.items():
            if key in after or not self.arm.has_budget:
                assert after[key] == [value]

    def too_large(self, entry: Entry) -> bool:
        return self.budget is not None and recounted(entry) > self.budget

    def held(self) -> dict[Key, list[Json]]:
        found: dict[Key, list[Json]] = {}
        for held in self.memory.store:
            found.setdefault(held.entry.key, []).append(held.entry.value)
        return found

    # -- what holds at any time -------------------------------------------------------------------

    @invariant()
    def the_books_are_right(self) -> None:
        assert_consistent(self.memory.store)

    @invariant()
    def every_change_was_an_event(self) -> None:
        store = self.memory.store
        now: dict[Key, list[tuple[Json, str | None]]] = {}
        for held in store:
            now.setdefault(held.entry.key, []).append((held.entry.value, store.version(held)))
        assert now == {key: listed for key, listed in self.explained.items() if listed}

    @invariant()
    def recall_lists_key_by_key_oldest_first_and_changes_nothing(self) -> None:
        asks = task(reversed(PLACES))
        before = state(self.memory.store)
        recalled = self.memory.recall(asks)
        assert self.memory.recall(asks) == recalled
        assert state(self.memory.store) == before
        found = [(entry.key, entry.value) for entry in recalled]
        held = self.held()
        keys = self.memory.domain.keys(asks)
        assert found == [(key, value) for key in keys for value in held.get(key, ())]

    @invariant()
    def an_arm_that_admits_nothing_holds_nothing(self) -> None:
        if self.arm.admission is p.admit_nothing:
            assert self.memory.store.count == self.memory.store.bytes == 0
            assert {action.kind for action in self.actions} <= {"refuse"}

    @invariant()
    def an_arm_that_keeps_one_value_holds_one(self) -> None:
        if self.arm.conflict is not p.keep_all:
            assert all(len(listed) == 1 for listed in self.held().values())
        else:
            assert all(len(listed) == len(set(listed)) for listed in self.held().values())

    @invariant()
    def a_governed_arm_holds_only_what_was_cacheable_and_stamped(self) -> None:
        if self.arm.admission is p.admit_cacheable:
            for held in self.memory.store:
                assert held.entry.cacheable
                assert held.entry.version is not None
                assert held.entry in self.admissible

    @invariant()
    def a_stamp_checking_arm_serves_only_the_last_stamp_seen(self) -> None:
        if self.arm.invalidation is p.invalidate_never:
            return
        for entry in self.memory.recall(task()):
            assert entry.table is not None
            assert entry.version == self.last_stamp[entry.table]
        if self.arm.invalidation is p.drop_table:  # re-stamps nothing: learned under it, too
            for held in self.memory.store:
                assert held.entry.version == self.last_stamp[held.entry.table or ""]

    @invariant()
    def the_budget_is_kept(self) -> None:
        store = self.memory.store
        assert store.budget == self.budget
        assert store.budget is None or store.bytes <= store.budget
        if not self.arm.has_budget:
            assert "evict" not in {action.kind for action in self.actions}

    @invariant()
    def a_governed_latest_wins_arm_equals_the_naive_reference(self) -> None:
        if (self.arm.admission, self.arm.conflict, self.arm.invalidation) != (
            p.admit_cacheable,
            p.keep_latest,
            p.drop_table,
        ):
            return
        ordered = sorted(self.memory.store, key=lambda held: held.order)
        assert [(held.entry, held.uses) for held in ordered] == self.naive.kept
        evicted = [action for action in self.actions if action.kind == "evict"]
        assert [(each.key, each.value) for each in evicted] == [
            (entry.key, entry.value) for entry in self.naive.evicted
        ]

    def teardown(self) -> None:
        """The same events give the same state and the same log."""
        again = memory_of(self.arm)
        actions = [action for event in self.events for action in again.observe(event)]
        assert actions == self.actions
        assert state(again.store) == state(self.memory.store)


@pytest.mark.parametrize("arm", [*ARMS.values(), ORACLE], ids=[*ARMS, "oracle"])
def test_an_arm_keeps_its_promises_in_any_world(arm: Arm) -> None:
    machine: Any = partial(ArmMachine, arm)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=100 if arm.has_budget else 40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
