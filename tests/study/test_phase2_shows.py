"""What Phase 2 must show with the scripted agent, read off the rows of real runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from running import rows_of

from crossmem import streams
from crossmem.api import tables_of
from crossmem.harness.table_files import read_table
from crossmem.memory.arms import ARMS

from .rows import best, events, kept_of, rows, table_events, totals, where

if TYPE_CHECKING:
    from .conftest import Scripted

DRIFT = 16
FLOUR_AFTER = [16, 20]
OATS_AFTER = [18, 22]
KEYINGS = ("task", "request")
PATTERNS = ("v2", "v4", "churn", "silent", "rollback")
LINES = (*ARMS, "oracle")
STAMPED = ("A2", "A2C", "A2D")  # they learn of a drift from the stamp of an attempt that is out

# -- v2: half of the table survives ------------------------------------------------------------------


def test_v2_a2d_keeps_the_oats_and_a2_goes_cold_on_them(scripted: Scripted) -> None:
    run = scripted("phase2", pattern="v2")
    assert where(run, "A2", lambda row: row.cold_retry and row.index >= DRIFT) == OATS_AFTER[:1]
    assert where(run, "A2D", lambda row: row.cold_retry and row.index >= DRIFT) == []
    for index in OATS_AFTER:
        assert rows(run, "A2D")[index].first_try
    differing = [
        ours.index
        for ours, theirs in zip(rows(run, "A2"), rows(run, "A2D"), strict=True)
        if ours.attempts != theirs.attempts
    ]
    assert differing == OATS_AFTER[:1]


def test_v2_a2d_drops_the_flour_alone_and_restamps_the_rest_once(scripted: Scripted) -> None:
    run = scripted("phase2", pattern="v2")
    (dropped,) = events(run, "A2D", "invalidate")
    assert (dropped.key, dropped.from_version, dropped.to_version) == (
        ["brand", "flour"],
        "1.0.0",
        "2.0.0",
    )
    (restamp,) = events(run, "A2D", "restamp")
    assert (restamp.table, restamp.key, restamp.to_version) == ("celiac_brands", None, "2.0.0")
    assert [event.key for event in events(run, "A2", "invalidate")] == [
        ["brand", "flour"],
        ["brand", "oats"],
    ]


@pytest.mark.parametrize("keying", KEYINGS)
@pytest.mark.parametrize("pattern", ["v2", "v4"])
def test_a_bump_that_rotates_the_slot_costs_one_stale_attempt_unless_versions_are_read(
    pattern: str, keying: str, scripted: Scripted
) -> None:
    run = scripted("phase2", pattern=pattern, keying=keying)
    for arm in (*STAMPED, "A3"):
        assert where(run, arm, lambda row: row.stale_attempt) == [DRIFT], arm
    assert where(run, "A2V", lambda row: row.stale_attempt) == []


@pytest.mark.parametrize("pattern", ["v2", "v4", "churn"])
def test_a2v_drops_before_it_recalls(pattern: str, scripted: Scripted) -> None:
    run = scripted("phase2", pattern=pattern)
    dropped = events(run, "A2V", "invalidate")
    assert dropped
    assert {(event.episode, event.attempt) for event in dropped} == {(DRIFT, 0)}
    assert rows(run, "A2V")[DRIFT].recalled == 0


# -- v4: nothing survives ----------------------------------------------------------------------------


def test_v4_pays_no_dividend_since_nothing_survives(scripted: Scripted) -> None:
    run = scripted("phase2", pattern="v4")
    for ours, theirs in zip(rows(run, "A2"), rows(run, "A2D"), strict=True):
        assert (ours.attempts, ours.stale_attempt, ours.cold_retry, ours.entries) == (
            theirs.attempts,
            theirs.stale_attempt,
            theirs.cold_retry,
            theirs.entries,
        )
    assert events(run, "A2D", "restamp") == []
    assert len(events(run, "A2D", "invalidate")) == 2


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a2_and_a2d_differ_in_granularity_alone(pattern: str, scripted: Scripted) -> None:
    """Same detection: the first observation that invalidates or re-stamps is the same one."""
    run = scripted("phase2", pattern=pattern)
    detected = {
        arm: [(event.episode, event.attempt, event.to_version) for event in table_events(run, arm)]
        for arm in ("A2", "A2D")
    }
    firsts = {arm: found[:1] for arm, found in detected.items()}
    assert firsts["A2"] == firsts["A2D"]
    before = firsts["A2"][0][0] if firsts["A2"] else 24
    for ours, theirs in zip(rows(run, "A2")[:before], rows(run, "A2D")[:before], strict=True):
        assert ours.model_dump(exclude={"arm", "latency_s"}) == theirs.model_dump(
            exclude={"arm", "latency_s"}
        )


def test_a_diff_handed_over_but_not_exposed_by_a_stamp_changes_nothing(scripted: Scripted) -> None:
    """Under rollback, oats are consulted before flour: what is handed over before 10 waits for 10."""
    for pattern in PATTERNS:
        run = scripted("phase2", pattern=pattern)
        assert [event for event in table_events(run, "A2D") if event.attempt == 0] == [], pattern
    run = scripted("phase2", pattern="silent")  # the diff of a silent change is exposed by no stamp
    assert table_events(run, "A2D") == []
    for ours, theirs in zip(rows(run, "A2"), rows(run, "A2D"), strict=True):
        assert (ours.attempts, ours.bytes, ours.stale_attempt) == (
            theirs.attempts,
            theirs.bytes,
            theirs.stale_attempt,
        )


# -- what invalidation alone buys ----------------------------------------------------------------------


def test_lwg_isolates_invalidation(scripted: Scripted) -> None:
    """It admits as A2 does; on v2 it equals A2D in attempts, beats A2 and pays in outdated uses."""
    run = scripted("phase2", pattern="v2")
    attempts = totals(run)
    assert attempts["LWG"] == attempts["A2D"] < attempts["A2"]
    for arm in ("A2", "A2D"):
        assert [event.key for event in events(run, arm, "admit")] == [
            event.key for event in events(run, "LWG", "admit")
        ]
    assert where(run, "LWG", lambda row: row.outdated_use) == OATS_AFTER
    for arm in ("A2", "A2D"):
        assert where(run, arm, lambda row: row.outdated_use) == []
    assert table_events(run, "LWG") == []


def test_v4_invalidation_buys_a_stale_attempt_and_no_attempts(scripted: Scripted) -> None:
    run = scripted("phase2", pattern="v4")
    attempts = totals(run)
    assert attempts["LWG"] == attempts["A2"] == attempts["A2D"]
    assert where(run, "LWG", lambda row: row.stale_attempt) == [16, 18]
    assert where(run, "A2", lambda row: row.stale_attempt) == [16]


# -- churn: the version moves and the rows do not -----------------------------------------------------


@pytest.mark.parametrize("keying", KEYINGS)
def test_churn_costs_a2_what_false_invalidation_costs_and_a2d_nothing(
    keying: str, scripted: Scripted
) -> None:
    run = scripted("phase2", pattern="churn", keying=keying)
    attempts = totals(run)
    assert attempts["A2D"] == attempts["LWG"] == attempts["oracle"]
    assert attempts["A2"] - attempts["A2D"] == 2
    # Flour is carried, passes and reveals the bump: A2 goes cold on both halves, A2C on the other one.
    for arm, cold in (("A2", [18, 20]), ("A2C", [18]), ("A2D", []), ("A2V", [16, 18])):
        assert where(run, arm, lambda row: row.cold_retry and row.index >= DRIFT) == cold, arm
    assert events(run, "A2D", "invalidate") == []
    assert len(events(run, "A2D", "restamp")) == 1
    assert len(events(run, "A2", "invalidate")) == 2
    assert not any(row.stale_attempt for row in rows_of(run))


def test_churn_a2c_restamps_what_was_carried_and_drops_what_was_not(scripted: Scripted) -> None:
    run = scripted("phase2", pattern="churn")
    (dropped,) = events(run, "A2C", "invalidate")
    assert (dropped.episode, dropped.key) == (DRIFT, ["brand", "oats"])
    (restamp,) = events(run, "A2C", "restamp")
    assert (restamp.episode, restamp.to_version) == (DRIFT, "1.0.1")


# -- silent: the rows move and the version does not ---------------------------------------------------


def test_silent_stamps_hide_the_change_and_each_key_heals_by_relearning(scripted: Scripted) -> None:
    run = scripted("phase2", pattern="silent", keying="task")
    for arm in ("LWG", *STAMPED, "A2V", "A3"):
        assert where(run, arm, lambda row: row.stale_attempt) == [16, 18], arm
        assert table_events(run, arm) == [], arm
        relearned = {e.episode for e in events(run, arm, "relearn") if (e.key or [""])[0] == "brand"}
        assert {each for each in relearned if each >= DRIFT} == {16, 18}, arm


def test_silent_never_heals_under_request_keying(scripted: Scripted) -> None:
    run = scripted("phase2", pattern="silent", keying="request")
    for arm in ("A1", "LW", "LWG", *STAMPED, "A2V", "A3"):
        assert where(run, arm, lambda row: row.stale_attempt) == sorted(FLOUR_AFTER + OATS_AFTER), arm
        assert table_events(run, arm) == [], arm


@pytest.mark.parametrize(("keying", "cost"), [("task", 0), ("request", 2)])
def test_silent_costs_governed_arms_as_much_as_never_invalidating(
    keying: str, cost: int, scripted: Scripted
) -> None:
    run = scripted("phase2", pattern="silent", keying=keying)
    attempts = totals(run)
    for arm in (*STAMPED, "A2V"):
        assert attempts[arm] == attempts["LWG"] == attempts["oracle"] + cost, arm


# -- rollback: a stamp seen before ---------------------------------------------------------------------


@pytest.mark.parametrize("keying", KEYINGS)
def test_rollback_no_arm_loops_or_misroutes(keying: str, scripted: Scripted) -> None:
    run = scripted("phase2", pattern="rollback", keying=keying)
    live = {each: read_table(tables_of("recipe") / f"{each}.json") for each in tables("rollback")}
    for arm in (*STAMPED, "A2V", "A3", "oracle"):
        assert all(row.attempts <= 2 for row in rows(run, arm))
        for key, held in kept_of(run, arm).items():
            if keying == "request" and key[0] == "brand" and key[1] not in {"flour", "oats"}:
                continue  # where no task looks
            rows_of = live[held.table or ""].rows
            where_held = held.key[1] if held.key[0] == "brand" else "|".join(held.key[1:])
            found = rows_of[where_held]
            assert held.value in (found if isinstance(found, list) else [found]), (arm, key)
            assert held.version == live[held.table or ""].version, (arm, key)


def test_rollback_a2d_follows_both_diffs_and_keeps_what_came_through(scripted: Scripted) -> None:
    """Flour learned at 2.0.0 is certified at 1.0.0 too: going back evicts nothing."""
    run = scripted("phase2", pattern="rollback")
    assert [(e.episode, e.from_version, e.to_version) for e in events(run, "A2D", "restamp")] == [
        (10, "1.0.0", "2.0.0"),
        (16, "2.0.0", "1.0.0"),
    ]
    assert [(e.episode, e.key) for e in events(run, "A2D", "invalidate")] == [(10, ["brand", "flour"])]
    seen = {(e.episode, e.to_version) for e in table_events(run, "A2")}
    assert seen == {(10, "2.0.0"), (16, "1.0.0")}


def tables(stream: str) -> set[str]:
    """The tables that matter to a stream that ends where it began."""
    last = streams.load(stream).drift_events[-1]
    assert last.snapshot == "1.0.0"
    return {last.table, "incompatible_ingredients"}


# -- hint styles ---------------------------------------------------------------------------------------


def test_sonnet_under_append_needs_as_many_attempts_as_without_memory(scripted: Scripted) -> None:
    run = scripted("phase2", model="sonnet", hint_style="append")
    assert set(totals(run).values()) == {46}
    assert any(row.recalled for row in rows(run, "A2"))
    assert best(run) == set(ARMS)


def test_sonnet_under_amendment_equals_haiku_row_by_row(scripted: Scripted) -> None:
    haiku, sonnet = (scripted("phase2", model=model) for model in ("haiku", "sonnet"))
    for ours, theirs in zip(rows_of(haiku), rows_of(sonnet), strict=True):
        assert ours.model_dump(exclude={"latency_s"}) == theirs.model_dump(exclude={"latency_s"})
