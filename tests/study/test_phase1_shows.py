"""What Phase 1 must show with the scripted agent, read off the rows of real runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from running import attempts_of, log_of, outcome, replayed, rows_of

from crossmem import streams

from .rows import PHASE1_ARMS, events, paid, rows, where, world

if TYPE_CHECKING:
    from pathlib import Path

    from crossmem.domains.base import Keying
    from crossmem.harness.results import Run

    from .conftest import Scripted

    Runs = dict[Keying, Run]

DRIFT = 16
RIGHT_AMOUNTS = (14, 19)  # the two controls that come in right
FLOUR_AFTER_DRIFT = (16, 20)
ARMS = PHASE1_ARMS.split(",")
KEYINGS: tuple[Keying, ...] = ("task", "request")


@pytest.fixture
def runs(scripted: Scripted) -> Runs:
    return {keying: world(scripted, f"phase1-{keying}") for keying in KEYINGS}


@pytest.mark.parametrize("keying", KEYINGS)
def test_without_memory_only_what_comes_in_right_passes_at_once(keying: Keying, runs: Runs) -> None:
    assert where(runs[keying], "A0", lambda row: row.first_try) == list(RIGHT_AMOUNTS)
    assert where(runs[keying], "A0", lambda row: row.cold_retry) == [
        index for index in range(24) if index not in RIGHT_AMOUNTS
    ]
    assert {row.entries for row in rows(runs[keying], "A0")} == {0}


@pytest.mark.parametrize("keying", KEYINGS)
def test_a_naive_memory_pays_a_stale_attempt_for_every_later_flour_episode(
    keying: Keying, runs: Runs
) -> None:
    run = runs[keying]
    stream = streams.load("phase1")
    flour = [
        episode.index
        for episode in stream.episodes[DRIFT:]
        if "flour" in episode.task.description and stream.family(episode.task) == "celiac"
    ]
    assert tuple(flour) == FLOUR_AFTER_DRIFT
    assert where(run, "A1F", lambda row: row.stale_attempt) == flour


def test_latest_wins_heals_under_task_keying_and_never_under_request_keying(runs: Runs) -> None:
    def stale(arm: str, keying: Keying) -> list[int]:
        return where(runs[keying], arm, lambda row: row.stale_attempt)

    for arm in ("A1", "LW", "LWG"):
        assert stale(arm, "task") == [DRIFT], arm
        assert stale(arm, "request") == list(FLOUR_AFTER_DRIFT), arm


@pytest.mark.parametrize("keying", KEYINGS)
def test_a2_pays_exactly_one_stale_attempt_at_the_first_flour_after_the_drift(
    keying: Keying, runs: Runs
) -> None:
    assert where(runs[keying], "A2", lambda row: row.stale_attempt) == [DRIFT]


@pytest.mark.parametrize("keying", KEYINGS)
def test_a2_drops_the_whole_table_once_and_learns_it_anew(keying: Keying, runs: Runs) -> None:
    dropped = events(runs[keying], "A2", "invalidate")
    assert {event.episode for event in dropped} == {DRIFT}
    assert {(event.from_version, event.to_version) for event in dropped} == {("1.0.0", "2.0.0")}
    assert {event.table for event in dropped} == {"celiac_brands"}
    assert all(event.why for event in dropped)
    assert where(runs[keying], "A2", lambda row: row.outdated_use) == []


def test_request_keying_costs_a2_exactly_one_cold_retry(runs: Runs) -> None:
    by_keying = {keying: rows(runs[keying], "A2") for keying in KEYINGS}
    attempts = {keying: sum(row.attempts for row in mine) for keying, mine in by_keying.items()}
    cold = {keying: sum(row.cold_retry for row in mine) for keying, mine in by_keying.items()}
    assert attempts["request"] - attempts["task"] == 1
    assert cold["request"] - cold["task"] == 1
    differing = [
        task.index
        for task, request in zip(by_keying["task"], by_keying["request"], strict=True)
        if task.attempts != request.attempts
    ]
    # The next flour episode: the new brand went under the stale one's name, where no task looks.
    assert differing == [20]


@pytest.mark.parametrize("keying", KEYINGS)
def test_a3_never_holds_more_than_the_budget_in_force(keying: Keying, runs: Runs) -> None:
    schedule = streams.load("phase1").budget
    assert [step.before for step in schedule] == [6, 14]
    tight = schedule[0].bytes
    assert tight is not None
    for row in rows(runs[keying], "A3"):
        assert row.budget == (tight if 6 <= row.index < 14 else None)
        assert row.budget is None or row.bytes <= row.budget
    # The budget bites: unconstrained, the same memory holds more.
    held = [row.bytes for row in rows(runs[keying], "A2") if 6 <= row.index < 14]
    assert min(held) > 0
    assert max(held) > tight


@pytest.mark.parametrize("keying", KEYINGS)
def test_a3_shows_its_evictions_and_relearning_as_events(keying: Keying, runs: Runs) -> None:
    run = runs[keying]
    evicted = events(run, "A3", "evict")
    assert evicted
    assert all(6 <= event.episode < 14 and event.why and event.key for event in evicted)
    assert events(run, "A3", "relearn")
    assert len(where(run, "A3", lambda row: row.stale_attempt)) <= 1
    for arm in ARMS:
        assert arm == "A3" or events(run, arm, "evict") == []
        assert arm == "A3" or {row.budget for row in rows(run, arm)} == {None}


@pytest.mark.parametrize("keying", KEYINGS)
def test_governed_arms_never_admit_a_value_that_belongs_to_one_request(
    keying: Keying, runs: Runs
) -> None:
    run = runs[keying]
    family = {row.index: row.family for row in rows_of(run)}

    def admitted(arm: str) -> set[str]:
        kinds = ("admit", "relearn")
        return {family[event.episode] for kind in kinds for event in events(run, arm, kind)}

    for arm in ("LWG", "A2", "A3"):
        assert admitted(arm) == {"celiac", "incompatible"}, arm
        assert {family[event.episode] for event in events(run, arm, "refuse")} == {"scaling"}, arm
        assert where(run, arm, lambda row: row.poisoned) == [], arm
    for arm in ("A1F", "A1", "LW"):
        assert "scaling" in admitted(arm), arm
        assert where(run, arm, lambda row: row.poisoned) == list(RIGHT_AMOUNTS), arm


def test_a_stale_attempt_can_be_opened_and_read_later(runs: Runs) -> None:
    attempt = next(
        each
        for each in attempts_of(runs["request"])
        if (each.arm, each.episode, each.attempt) == ("A2", DRIFT, 1)
    )
    (carried,) = attempt.carried
    assert (carried.verdict, carried.refused, carried.entry.version) == ("stale", True, "1.0.0")
    assert attempt.request is not None
    assert carried.entry.value in str(attempt.request)
    assert attempt.response is not None
    assert attempt.response["table_versions"] == {"celiac_brands": "2.0.0"}


def test_no_admin_token_or_address_reaches_the_results_file(runs: Runs) -> None:
    text = runs["request"].path.read_text(encoding="utf-8")
    assert "127.0.0.1" not in text
    assert "admin_token" not in text.lower()
    assert "x-admin-token" not in text.lower()


def test_the_file_holds_what_the_run_returned_and_says_how_it_came_about(runs: Runs) -> None:
    run = runs["request"]
    first, episodes = log_of(run.path)
    assert set(first) == {"schema", "grading", "config"}
    assert len(episodes) == 24 * len(ARMS)
    config = first["config"]
    assert [arm["name"] for arm in config["arms"]] == list(ARMS)
    assert config["stream_sha256"] == streams.digest(streams.load("phase1"))
    assert config["parameters"]["keying"] == "request"
    assert config["started"] <= run.config["ended"]
    assert run.path.name.startswith("phase1_single_mock-haiku_")


@pytest.mark.parametrize("arm", ARMS)
def test_an_arm_alone_gives_the_rows_it_gives_among_others(arm: str, runs: Runs, results: Path) -> None:
    alone = replayed(arms=arm, keying="request")
    assert outcome(alone) == outcome(runs["request"], arm)


def test_replicates_and_seed_vary_nothing_with_the_scripted_agent(runs: Runs, results: Path) -> None:
    again = replayed(arms="A2,A3", replicates=2, seed=7)
    alone = outcome(runs["request"], "A2", "A3")
    for replicate in (0, 1):
        mine = [each for each in outcome(again) if each["row"]["replicate"] == replicate]
        for each in mine:
            each["row"]["replicate"] = 0
        assert mine == alone


def test_a_budget_given_takes_the_place_of_the_streams_own(results: Path) -> None:
    run = replayed(arms="A2,A3", budget="3:150,9:none")
    for row in rows(run, "A3"):
        assert row.budget == (150 if 3 <= row.index < 9 else None)
        assert row.budget is None or row.bytes <= 150
    assert {event.episode for event in events(run, "A3", "evict")} <= set(range(3, 9))
    assert run.config["budget"] == [{"before": 3, "bytes": 150}, {"before": 9, "bytes": None}]


def test_a_budget_of_nothing_leaves_a3_where_no_memory_is(results: Path) -> None:
    run = replayed(arms="A0,A3", budget="0")
    assert {row.bytes for row in rows(run, "A3")} == {0}
    assert paid(run, "A3") == paid(run, "A0")


def test_a_run_in_the_other_hint_style_admits_the_same_where_the_agent_follows_both(
    runs: Runs, results: Path
) -> None:
    run = replayed(arms="A2", hint_style="append")
    assert [row.attempts for row in rows(run, "A2")] == [
        row.attempts for row in rows(runs["request"], "A2")
    ]


def test_an_agent_that_ignores_its_memory_gains_nothing_from_it(results: Path) -> None:
    run = replayed(model="sonnet", hint_style="append")
    assert {paid(run, arm) for arm in ARMS} == {"46"}
