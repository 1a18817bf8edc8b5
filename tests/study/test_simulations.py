"""What holds of every stream and keying: the numbers of two independent simulations, and no failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from running import attempts_of, rows_of

from crossmem import streams
from crossmem.analysis import metrics

from .rows import WORLDS, paid, rows, totals, where, world

if TYPE_CHECKING:
    from crossmem.harness.results import Run

    from .conftest import Scripted

ORDER = "A0 A1F A1 LW LWG A2 A2C A2D A2V A3 oracle bound"
# Attempts (stale attempts); what the simulations do not have, and A3 by its bytes, as first measured.
SIMULATED = {
    "phase1-task": "46 37(2) 36(1) 36(1) 34(1) 35(1) - - - 42(1) - -",
    "phase1-request": "46 37(2) 37(2) 37(2) 35(2) 36(1) - - - 43(1) - -",
    "phase2-v2-task": "46 37(2) 36(1) 36(1) 34(1) 35(1) 35(1) 34(1) 35 42(1) 34 33",
    "phase2-v2-request": "46 37(2) 37(2) 37(2) 35(2) 36(1) 36(1) 35(1) 35 43(1) 34 33",
    "phase2-v4-task": "46 39(4) 37(2) 37(2) 35(2) 35(1) 35(1) 35(1) 35 42(1) 35 33",
    "phase2-churn-task": "46 35 35 35 33 35 34 33 35 42 33 33",
    "phase2-silent-task": "46 39(4) 37(2) 37(2) 35(2) 35(2) 35(2) 35(2) 35(2) 42(2) 35 33",
    "phase2-rollback-task": "46 36(1) 36(1) 36(1) 34(1) 37(1) 36(1) 34(1) 37 41 34 33",
    "phase3-m1-task": "92 76(15) 68(5) 68(5) 64(5) 67(4) 67(4) 64(4) 67 76(3) 64 59",
    "phase3-m1-request": "92 76(15) 78(15) 78(15) 74(15) 71(4) 71(4) 68(4) 67 78(3) 64 59",
    "acme-acme_m1": "96 65(10) 59(4) 59(4) 59(4) 67(2) 66(2) 59(2) 67 74(1) 59 55",
    "acme-acme_sanity": "48 33(2) 32(1) 32(1) 32(1) 35(1) 35(1) 32(1) 35 42 32 31",
}


@pytest.fixture(params=WORLDS)
def run(request: pytest.FixtureRequest, scripted: Scripted) -> Run:
    return world(scripted, request.param)


@pytest.mark.parametrize("name", SIMULATED)
def test_attempts_and_stale_attempts_are_those_of_the_simulations(
    name: str, scripted: Scripted
) -> None:
    run = world(scripted, name)
    expected = dict(zip(ORDER.split(), SIMULATED[name].split(), strict=True))
    assert {line: paid(run, line) for line in run.arms} == {
        line: number for line, number in expected.items() if number != "-"
    }


def test_every_episode_succeeds_and_counts_the_drifts_so_far(run: Run) -> None:
    stream = streams.load(run.config["stream"])
    drifts = [event.before for event in stream.drift_events]
    for line in run.arms:
        mine = rows(run, line)
        assert [row.index for row in mine] == list(range(len(stream.episodes)))
        assert all(row.success and row.error is None for row in mine)
        assert all(row.attempts <= 2 for row in mine), "every refusal names all its fixes"
        assert [row.drift_epoch for row in mine] == [
            sum(before <= row.index for before in drifts) for row in mine
        ]


def test_the_oracle_carries_only_what_holds_and_no_arm_needs_fewer_than_the_bound(run: Run) -> None:
    if "oracle" not in run.arms:
        assert metrics.summary(run)["regret"].isna().all()
        return
    oracle = [attempt for attempt in attempts_of(run) if attempt.arm == "oracle"]
    assert {each.verdict for attempt in oracle for each in attempt.carried} == {"good"}
    assert not any(r.stale_attempt or r.outdated_use or r.poisoned for r in rows(run, "oracle"))
    attempts, table = totals(run), metrics.summary(run)
    assert min(attempts[line] for line in run.arms if line != "bound") <= attempts["oracle"]
    for line in run.arms:
        assert table.at[line, "regret"] == attempts[line] - attempts["bound"] >= 0


def test_poison_is_a_matter_of_admission_alone(run: Run) -> None:
    """An arm that remembers amounts breaks the two scaling controls that come in right, and more."""
    for line in run.arms:
        ungoverned = line in {"A1F", "A1", "LW"} and run.config["domain"] == "recipe"
        assert where(run, line, lambda row: row.poisoned)[:2] == ([14, 19] if ungoverned else []), line
        assert {row.family for row in rows(run, line) if row.poisoned} <= {"scaling"}


def test_tokens_are_estimated_and_add_up(run: Run) -> None:
    for row in rows_of(run):
        assert row.tokens_source == "estimated"
        parts = (row.input_tokens, row.output_tokens, row.cache_read_tokens, row.cache_write_tokens)
        assert row.total_tokens == sum(parts) > 0


def test_a_row_counts_the_attempts_that_are_recorded(run: Run) -> None:
    counted: dict[tuple[str, int], int] = {}
    for attempt in attempts_of(run):
        place = (attempt.arm, attempt.episode)
        counted[place] = counted.get(place, 0) + 1
        assert attempt.attempt == counted[place]
    assert counted == {(row.arm, row.index): row.attempts for row in rows_of(run)}


@pytest.mark.parametrize(
    ("name", "slots"),
    [
        ("phase3-m1-task", [(10, "flour"), (18, "oats"), (29, "flour"), (40, "flour")]),
        ("phase3-m1-request", [(10, "flour"), (18, "oats"), (29, "flour"), (40, "flour")]),
        ("acme-acme_m1", [(12, "partner"), (24, "partner"), (36, "partner")]),
        ("acme-acme_sanity", [(12, "partner")]),
        ("phase2-v2-task", [(16, "flour")]),
    ],
)
def test_the_slots_are_the_first_that_consult_the_table_after_each_drift(
    name: str, slots: list[tuple[int, str]], scripted: Scripted
) -> None:
    run = world(scripted, name)
    found = metrics.slot_rows(run)
    assert len(found) == len(slots) * len(run.arms)
    places = found[["drift_epoch", "index", "drift_row"]].drop_duplicates()
    assert [tuple(place) for place in places.to_numpy()] == [
        (epoch, index, row) for epoch, (index, row) in enumerate(slots, start=1)
    ]
