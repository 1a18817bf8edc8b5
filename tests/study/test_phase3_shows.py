"""What Phase 3 must show with the scripted agent: four drifts, and a dividend on each side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from running import rows_of

from crossmem.analysis import metrics
from crossmem.settings import KNOWN

from .rows import events, kept_of, rows, table_events, totals, where

if TYPE_CHECKING:
    from .conftest import Scripted

SLOTS = (10, 18, 29, 40)  # the first celiac episode after each drift; its half was rotated
HALVES = ("flour", "oats", "flour", "flour")
STAMPED = ("A2", "A2C", "A2D")
KEYINGS = ("task", "request")


@pytest.mark.parametrize("keying", KEYINGS)
def test_each_bump_costs_a_stamped_arm_exactly_the_slot(keying: str, scripted: Scripted) -> None:
    run = scripted("phase3", keying=keying)
    for arm in STAMPED:
        assert where(run, arm, lambda row: row.stale_attempt) == [*SLOTS], arm
    assert where(run, "A2V", lambda row: row.stale_attempt) == []
    assert set(where(run, "A3", lambda row: row.stale_attempt)) < set(SLOTS), "at most one per bump"


@pytest.mark.parametrize("keying", KEYINGS)
def test_the_dividend_comes_from_both_halves(keying: str, scripted: Scripted) -> None:
    """Oats survive the flour rotations of epochs 1 and 4, flour the oats rotation of epoch 2."""
    run = scripted("phase3", keying=keying)
    saved = [
        (theirs.drift_epoch, theirs.drift_row, theirs.attempts - ours.attempts)
        for ours, theirs in zip(rows(run, "A2D"), rows(run, "A2"), strict=True)
        if ours.attempts != theirs.attempts
    ]
    assert saved == [(1, "oats", 1), (2, "flour", 1), (4, "oats", 1)]


def test_the_table_of_the_dividend_says_the_same(scripted: Scripted) -> None:
    table = metrics.dividend(scripted("phase3"))
    assert [*table.columns][:2] == ["flour", "oats"]
    assert [*table["flour"].fillna(0)] == [0, 0, 1, 0, 0]
    assert [*table["oats"].fillna(0)] == [0, 1, 0, 0, 1]
    assert not table.drop(columns=["flour", "oats", "total"]).fillna(0).any(axis=None)
    assert [*table["total"]] == [0, 1, 1, 0, 1]


def test_nothing_survives_the_third_drift(scripted: Scripted) -> None:
    run = scripted("phase3")
    dropped = [event.key for event in events(run, "A2D", "invalidate") if event.episode == SLOTS[2]]
    assert sorted(dropped, key=str) == [["brand", "flour"], ["brand", "oats"]]
    assert [event.episode for event in events(run, "A2D", "restamp")] == [10, 18, 40]


@pytest.mark.parametrize("keying", KEYINGS)
def test_a2_and_a2d_detect_every_bump_at_the_same_attempt(keying: str, scripted: Scripted) -> None:
    run = scripted("phase3", keying=keying)
    seen = {
        arm: {(event.episode, event.attempt, event.to_version) for event in table_events(run, arm)}
        for arm in ("A2", "A2D")
    }
    assert seen["A2"] == seen["A2D"]
    assert seen["A2"] == {
        (slot, 1, version)
        for slot, version in zip(SLOTS, ("2.0.0", "3.0.0", "4.0.0", "5.0.0"), strict=True)
    }


def test_a2v_learns_of_every_bump_before_the_first_request(scripted: Scripted) -> None:
    found = table_events(scripted("phase3"), "A2V")
    assert {(event.episode, event.attempt) for event in found} == {
        (10, 0),
        (18, 0),
        (27, 0),
        (38, 0),
    }


def test_lwg_equals_a2d_in_attempts_and_pays_in_stale_attempts(scripted: Scripted) -> None:
    run = scripted("phase3", keying="task")
    attempts = totals(run)
    assert attempts["LWG"] == attempts["A2D"] < attempts["A2"]
    stale = {arm: where(run, arm, lambda row: row.stale_attempt) for arm in ("LWG", "A2D", "A2")}
    assert stale["A2"] == stale["A2D"] == [*SLOTS]
    assert set(stale["LWG"]) > set(SLOTS)
    assert len(stale["LWG"]) == 5


def test_under_request_keying_invalidation_is_worth_attempts_too(scripted: Scripted) -> None:
    attempts = totals(scripted("phase3", keying="request"))
    assert attempts["A2D"] < attempts["A2"] < attempts["LWG"]


def test_every_governed_arm_ends_under_the_last_version(scripted: Scripted) -> None:
    run = scripted("phase3")
    for arm in (*STAMPED, "A2V", "A3", "oracle"):
        brands = [kept for key, kept in kept_of(run, arm).items() if key[0] == "brand"]
        assert brands, arm
        assert {kept.version for kept in brands} == {"5.0.0"}, arm
        assert rows(run, arm)[-1].entries == len(kept_of(run, arm)), arm


def test_memory_is_worth_nothing_to_sonnet_under_append(scripted: Scripted) -> None:
    run = scripted("phase3", model="sonnet", hint_style="append")
    assert set(totals(run).values()) == {92}
    assert not any(row.stale_attempt or row.poisoned for row in rows_of(run))
    assert any(row.recalled for row in rows(run, "A2D"))


def test_the_config_holds_the_wording_that_was_used(scripted: Scripted) -> None:
    for style, said in (("append", "prefer it over the Input Data"), ("amendment", "as amended")):
        given = {"model": "sonnet", "hint_style": style} if style == "append" else {}
        config = scripted("phase3", **given).config
        assert said in config["wording"]["memory"]
        assert "exactly as provided" in config["wording"]["base"]
        assert [arm["name"] for arm in config["arms"]] == [*KNOWN]
