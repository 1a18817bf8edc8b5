"""What the Acme study must show with the scripted agent, and what becomes of it with Stripe in trouble.

Rotations of the csm codes, their companion, refunds, declined cards, keys, Stripe out of reach.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI, Response
from running import attempts_of, events_of, log_of, logs_of, outcome, run_phase

from crossmem.analysis import metrics
from crossmem.api import tables_of
from crossmem.api.app_thread import AppThread
from crossmem.api.payments.access import BASE_VARIABLE, KEY_VARIABLE
from crossmem.api.payments.emulator import emulating
from crossmem.errors import CrossmemError, InputError
from crossmem.harness.results import load
from crossmem.harness.table_files import read_table

from .conftest import packaged_tables
from .rows import events, kept_of, rows, table_events, totals, where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crossmem.harness.records import Row
    from crossmem.harness.results import Run

    from .conftest import Scripted

CSM, PROMO = "active_csm_codes", "promo_eligibility"
ROTATIONS = (12, 24, 36)  # to v2, v3 and v4; the partner comes first in every block
STAMPED = ("A2", "A2C", "A2D")
LADDERS = ("acme_m1", "acme_sanity")
SECRET = "abcDEF123"

ORDER = ("A0", "A1F", "A1", "LW", "LWG", "A2", "A2C", "A2D", "A2V", "A3", "oracle")


@pytest.fixture(autouse=True)
def _no_stripe_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (KEY_VARIABLE, BASE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ladder(scripted: Scripted) -> Run:
    return scripted("acme", stream="acme_m1")


@pytest.fixture
def refunds(scripted: Scripted) -> Run:
    return scripted("acme", stream="acme_refunds")


# -- the slots -------------------------------------------------------------------------------------


def test_v2_and_v4_cost_a_stamped_arm_one_stale_attempt_and_v3_none(ladder: Run) -> None:
    for arm in STAMPED:
        assert where(ladder, arm, lambda row: row.stale_attempt) == [12, 36], arm
        assert where(ladder, arm, lambda row: row.outdated_use) == [24], arm
    assert where(ladder, "A2V", lambda row: row.stale_attempt or row.outdated_use) == []


def test_a3_pays_at_most_one_stale_attempt_a_rotation(ladder: Run) -> None:
    stale = where(ladder, "A3", lambda row: row.stale_attempt)
    assert set(stale) <= {12, 36}
    assert 24 not in stale


def test_at_v3_the_partner_s_code_passes_and_reveals_the_bump(ladder: Run) -> None:
    """What survived is carried at the first try; the stamp that comes back is news."""
    for arm in STAMPED:
        row = rows(ladder, arm)[24]
        assert row.first_try
        assert row.outdated_use
        seen = [each for each in table_events(ladder, arm) if each.episode == 24 and each.table == CSM]
        assert seen
        assert {(each.attempt, each.to_version) for each in seen} == {(1, "3.0.0")}


def cold_on_csm(run: Run, arm: str, epoch: int) -> list[str | None]:
    return [
        row.drift_row
        for row in rows(run, arm)
        if row.drift_epoch == epoch and row.drift_row and row.cold_retry
    ]


@pytest.mark.parametrize(
    ("arm", "cold"),
    [
        ("A2", ["enterprise-pilot", "enterprise-pilot partner", "enterprise-pilot"]),
        ("A2D", ["", "enterprise-pilot", "enterprise-pilot"]),
        ("A2C", ["enterprise-pilot", "enterprise-pilot", "enterprise-pilot"]),
        ("A2V", ["partner enterprise-pilot"] * 3),
    ],
)
def test_an_arm_goes_cold_on_what_it_dropped(arm: str, cold: list[str], ladder: Run) -> None:
    """After v2, v3 and v4; at v3 A2C confirms the partner, at v4 its was the stale attempt."""
    assert [" ".join(map(str, cold_on_csm(ladder, arm, epoch))) for epoch in (1, 2, 3)] == cold


def test_after_v4_nothing_of_the_csm_table_survives(ladder: Run) -> None:
    for arm in ("A2", "A2D"):
        dropped = [each for each in csm_dropped(ladder, arm) if each.episode == 36]
        assert sorted(str(each.key) for each in dropped) == [
            "['csm', 'enterprise-pilot']",
            "['csm', 'partner']",
        ]


def csm_dropped(run: Run, arm: str) -> list[Any]:
    return [event for event in events(run, arm, "invalidate") if event.table == CSM]


def test_a2d_drops_by_row_key_exactly_what_was_rotated(ladder: Run) -> None:
    dropped = [(each.episode, (each.key or [])[-1]) for each in csm_dropped(ladder, "A2D")]
    assert sorted(dropped) == [
        (12, "partner"),
        (24, "enterprise-pilot"),
        (36, "enterprise-pilot"),
        (36, "partner"),
    ]
    assert len(csm_dropped(ladder, "A2")) == 6, "both, at each rotation"


def test_a2_and_a2d_detect_every_bump_at_the_same_attempt(ladder: Run) -> None:
    seen = {
        arm: {(each.episode, each.attempt, each.table, each.to_version) for each in found}
        for arm in ("A2", "A2D")
        for found in [table_events(ladder, arm)]
    }
    assert seen["A2"] == seen["A2D"]
    assert {(episode, table) for episode, _, table, _ in seen["A2"]} == {
        (index, table) for index in ROTATIONS for table in (CSM, PROMO)
    }


def test_a2v_learns_of_every_bump_before_the_first_request(ladder: Run) -> None:
    found = table_events(ladder, "A2V")
    assert {(each.episode, each.attempt) for each in found} == {(index, 0) for index in ROTATIONS}


def test_the_governed_arms_end_with_the_codes_in_force(ladder: Run) -> None:
    live = read_table(tables_of("acme") / f"{CSM}.snapshots" / "v4.json")
    for arm in (*STAMPED, "A2V", "A3", "oracle"):
        kept = {key[1]: each for key, each in kept_of(ladder, arm).items() if key[0] == "csm"}
        assert {plan: each.value for plan, each in kept.items()} == live.rows, arm
        assert {each.version for each in kept.values()} == {live.version}, arm


# -- the policies that do not drift, and the companion ---------------------------------------------


@pytest.mark.parametrize("stream", LADDERS)
def test_stable_policies_stay_first_try_under_a2d_from_epoch_1_on(
    stream: str, scripted: Scripted
) -> None:
    run = scripted("acme", stream=stream)
    stable = [row for row in rows(run, "A2D") if row.drift_epoch and row.family != "csm"]
    assert {row.family for row in stable} == {"funding", "enterprise", "promo"}
    assert all(row.first_try for row in stable)


def test_funding_and_enterprise_stay_first_try_under_every_stamped_arm(ladder: Run) -> None:
    for arm in (*STAMPED, "A2V"):
        stable = [
            r for r in rows(ladder, arm) if r.drift_epoch and r.family in {"funding", "enterprise"}
        ]
        assert all(row.first_try for row in stable), arm


def test_the_companion_s_bump_costs_a2_its_promo_entries_and_a2d_nothing(ladder: Run) -> None:
    for arm, per_rotation in (("A2", 2), ("A2C", 2), ("A2V", 2), ("A2D", 0)):
        dropped = [each for each in events(ladder, arm, "invalidate") if each.table == PROMO]
        assert [each.episode for each in dropped] == [
            index for index in ROTATIONS for _ in range(per_rotation)
        ], arm
    restamped = [each.episode for each in events(ladder, "A2D", "restamp") if each.table == PROMO]
    assert restamped == [*ROTATIONS]
    for epoch in (1, 2, 3):
        cold = [row for row in rows(ladder, "A2") if row.drift_epoch == epoch and row.family == "promo"]
        assert [row.cold_retry for row in cold] == [True, True, False, False]


def test_the_dividend_is_split_by_plan_and_policy(ladder: Run) -> None:
    saved = [
        (theirs.drift_epoch, theirs.drift_row or theirs.family, theirs.attempts - ours.attempts)
        for ours, theirs in zip(rows(ladder, "A2D"), rows(ladder, "A2"), strict=True)
        if ours.attempts != theirs.attempts
    ]
    assert sorted(saved) == [
        (1, "enterprise-pilot", 1),
        (1, "promo", 1),
        (1, "promo", 1),
        (2, "partner", 1),
        (2, "promo", 1),
        (2, "promo", 1),
        (3, "promo", 1),
        (3, "promo", 1),
    ]
    table = metrics.dividend(ladder).fillna(0)
    assert [*table["partner"]] == [0, 0, 1, 0]
    assert [*table["enterprise-pilot"]] == [0, 1, 0, 0]
    assert [*table["promo tasks"]] == [0, 2, 2, 2]
    assert [*table["total"]] == [0, 3, 3, 2]
    assert not table[["funding tasks", "enterprise tasks"]].any(axis=None)


def test_a2_needs_more_attempts_than_a1_and_lwg_fewer_than_both(ladder: Run) -> None:
    attempts = totals(ladder)
    assert attempts["LWG"] == attempts["A2D"] < attempts["A1F"] < attempts["A2"]


# -- keys ------------------------------------------------------------------------------------------


def test_no_key_holds_a_value_that_drifts(ladder: Run) -> None:
    tables = (tables_of("acme") / f"{CSM}.snapshots").glob("*.json")
    codes = {code for path in tables for code in read_table(path).rows.values()}
    assert len(codes) == 6
    learned = [event for event in events_of(ladder) if event.key]
    assert {part for event in learned for part in event.key or ()}.isdisjoint(codes)
    assert codes & {event.value for event in learned if isinstance(event.value, str)} == codes
    pointers = [part for event in learned for part in event.key or () if part.startswith("/")]
    assert pointers == []


def test_every_key_is_one_of_the_contract_s(ladder: Run, refunds: Run) -> None:
    seen = {
        (key[0], len(key))
        for run in (ladder, refunds)
        for event in events_of(run)
        if (key := event.key)
    }
    assert seen == {("funding", 3), ("enterprise", 4), ("promo", 3), ("csm", 2), ("refund", 3)}
    values = [e.value for e in events_of(ladder) if e.key and e.key[0] == "promo"]
    assert set(values) == {"GROW20", None}, "a replacement or a removal, never a list"


def test_keying_by_request_is_refused(results: Path) -> None:
    with pytest.raises(InputError, match=r"keying = 'request': .*'task'"):
        run_phase("acme", mock=True, keying="request")
    assert not results.exists()


# -- what is touched -------------------------------------------------------------------------------


def test_the_packaged_tables_stay_as_they_are_and_nothing_but_the_results_is_left(
    results: Path,
) -> None:
    before = packaged_tables()
    assert any(f"/{CSM}.json" in path for path in before)
    run = run_phase("acme", mock=True, arms="A2,A2D")
    assert packaged_tables() == before
    assert list(results.iterdir()) == [run.path]


# -- refunds and declines --------------------------------------------------------------------------

DECLINED = {
    1: "Your card has insufficient funds.",
    5: "Your card has expired.",
    9: "An error occurred while processing your card.",
}


def test_declined_cards_fail_as_declined_and_one_refund_is_too_late(refunds: Run) -> None:
    for line in ORDER:
        failed = {row.index: row for row in rows(refunds, line) if not row.success}
        assert sorted(failed) == [1, 5, 6, 9], line
        for index, why in DECLINED.items():
            assert failed[index].failed_by == "declined"
            assert (failed[index].error or "").startswith(f"refused with 402: {why}")
            assert failed[index].attempts == 1, "no other request would be taken"
        assert failed[6].failed_by == "agent"
        assert "too long ago" in (failed[6].error or "")


def test_a_decline_is_neither_a_violation_nor_a_lesson(refunds: Run) -> None:
    assert not [event for event in events_of(refunds) if event.episode in DECLINED]
    for attempt in attempts_of(refunds):
        if attempt.episode in DECLINED:
            assert attempt.status == 402
            assert "recovery_feedback" not in (attempt.response or {})
    for line in ORDER:
        for row in (rows(refunds, line)[index] for index in DECLINED):
            before = rows(refunds, line)[row.index - 1]
            assert (row.entries, row.bytes) == (before.entries, before.bytes)
            assert not any((row.cold_retry, row.stale_attempt, row.poisoned, row.outdated_use))
            assert metrics.outcome_of(row) == "declined"


def test_memory_saves_the_second_attempt_where_a_reason_comes_again(refunds: Run) -> None:
    for line in ORDER:
        again = [rows(refunds, line)[index] for index in (3, 8, 10)]
        assert all(row.success for row in again)
        assert [row.first_try for row in again] == [line != "A0"] * 3, line


def test_a_limit_is_no_lesson_for_the_governed_arms(refunds: Run) -> None:
    """An amount is this request's own: the server does not mark it cacheable."""
    for line in ORDER:
        kinds = {each.kind for each in events_of(refunds) if (each.arm, each.episode) == (line, 7)}
        assert kinds == ({"admit"} if line in {"A1F", "A1", "LW"} else {"refuse"}), line


INTENT = re.compile(r"\bpi_\w+")


def intents(run: Run, line: str) -> dict[int, str]:
    """The payment that each refund of an arm was asked to give back."""
    return {
        attempt.episode: str((attempt.request or {})["payment_intent"])
        for attempt in attempts_of(run)
        if attempt.arm == line and "payment_intent" in (attempt.request or {})
    }


def test_every_refund_has_a_payment_of_its_own_and_no_memory_holds_one(refunds: Run) -> None:
    found = [intent for line in ORDER for intent in intents(refunds, line).values()]
    assert len(found) == 9 * len(ORDER)
    assert len(set(found)) == len(found)
    assert all(INTENT.fullmatch(intent) for intent in found)
    assert not INTENT.search(str(events_of(refunds)))
    assert not INTENT.search(str([each.recalled for each in attempts_of(refunds)]))


KILLED = """
import os, crossmem.harness.episode as h
def episode(self, index, whole=h.Replay.episode):
    if index == 8 and self.memory.arm.name == "A2":
        os.kill(os.getpid(), 9)
    return whole(self, index)
h.Replay.episode = episode
import crossmem as cm
cm.acme(mock=True, stream="acme_refunds", arms="A0,A2")
"""


def without_ids(run: Run, *arms: str) -> Any:
    """What `outcome` says, but for what Stripe named after the run."""
    text = json.dumps(outcome(run, *arms))
    return json.loads(re.sub(r"\b(pi|re|ch|pm)_[0-9a-f]{24}\b", r"\1", text))


@pytest.mark.slow
def test_a_refund_stream_that_was_killed_is_resumed_with_the_payments_it_had(
    results: Path, refunds: Run
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED], capture_output=True, check=False, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    (log,) = logs_of(results, ended=False)
    records = [each for each in log_of(log)[1] if each["row"]["arm"] == "A2"]
    assert [record["row"]["index"] for record in records] == list(range(8))
    made = {r["row"]["index"]: r["input"]["payment_intent"] for r in records if r["input"]}
    assert sorted(made) == [0, 2, 3, 4, 6, 7]
    assert all(INTENT.fullmatch(intent) for intent in made.values())
    run = run_phase("acme", mock=True, stream="acme_refunds", arms="A0,A2", resume=True)
    assert {index: intents(run, "A2")[index] for index in made} == made
    assert without_ids(run, "A0", "A2") == without_ids(refunds, "A0", "A2")
    assert logs_of(results, ended=False) == []


# -- keys of Stripe --------------------------------------------------------------------------------


@pytest.mark.parametrize("stripe", ["test", "embedded"])
@pytest.mark.parametrize("prefix", ["sk_live_", "rk_live_"])
def test_a_live_key_is_refused_before_anything_starts_and_not_shown(
    prefix: str,
    stripe: str,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, prefix + SECRET)
    monkeypatch.setattr(
        "crossmem.upstream.embedded.serving", lambda *_: pytest.fail("a server was started")
    )
    with pytest.raises(InputError, match=rf"live-mode key \({prefix}\.\.\.\)") as caught:
        run_phase("acme", mock=True, stripe=stripe)
    assert SECRET not in "".join((str(caught.value), repr(caught.value), *capfd.readouterr()))
    assert not results.exists()


@pytest.mark.slow
def test_a_live_key_is_refused_in_one_line_by_the_command_too(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, f"sk_live_{SECRET}")
    tool = str(Path(sys.executable).with_name("crossmem"))
    page = tmp_path / "page.html"
    command = [tool, "report", "acme", "-o", str(page), "-p", "mock", "True", "-p", "stripe", "test"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert answer.returncode != 0
    assert "live-mode key" in answer.stderr
    assert "Traceback" not in answer.stderr
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    for text in (answer.stdout, answer.stderr, *(path.read_text("utf-8") for path in left)):
        assert SECRET not in text
    assert not list(results.glob("*.json"))


@pytest.mark.parametrize("prefix", ["sk_test_", "rk_test_"])
def test_a_key_beside_the_embedded_stripe_is_ignored_and_that_is_said(
    prefix: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, prefix + SECRET)
    with pytest.warns(UserWarning, match=f"{KEY_VARIABLE} is set and ignored") as told:
        run = run_phase("acme", mock=True, stream="acme_sanity", arms="A2")
    assert SECRET not in "".join(str(each.message) for each in told)
    assert SECRET not in run.path.read_text("utf-8")
    assert totals(run)["A2"] == 35


@pytest.mark.usefixtures("results")
def test_a_key_is_no_matter_of_results_that_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_phase("acme", mock=True, stream="acme_refunds", arms="A0")
    monkeypatch.setenv(KEY_VARIABLE, f"sk_live_{SECRET}")
    given = {"mock": True, "stream": "acme_refunds", "results": str(run.path)}
    assert run_phase("acme", **given) == run


# -- Stripe's test mode, and Stripe out of reach ---------------------------------------------------


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have Stripe stand at a loopback port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv(BASE_VARIABLE, f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setenv(KEY_VARIABLE, f"sk_test_{SECRET}")
        yield


@pytest.fixture
def gone(dead: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Stripe go away after it was asked whether it is there."""
    del dead
    monkeypatch.setattr("crossmem.api.payments.payments.check_payments", lambda _: None)
    monkeypatch.setattr("crossmem.api.payments.payments.WAITS_S", ())


@pytest.mark.usefixtures("dead")
def test_stripe_out_of_reach_stops_the_run_before_its_first_episode(results: Path) -> None:
    with pytest.raises(CrossmemError, match=r"^stripe=test: Stripe cannot be reached: ConnectError"):
        run_phase("acme", mock=True, arms="A0", stripe="test")
    assert logs_of(results, ended=False) == logs_of(results, ended=True) == []


def test_a_key_that_stripe_does_not_take_stops_the_run_as_well(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = FastAPI()
    app.get("/v1/payment_intents/{name}")(lambda name: Response(f'{{"error": "{name}"}}', 401))
    refusing = AppThread(app, "Stripe")
    monkeypatch.setenv(BASE_VARIABLE, refusing.url)
    monkeypatch.setenv(KEY_VARIABLE, f"sk_test_{SECRET}")
    try:
        with pytest.raises(CrossmemError, match=r"^stripe=test: Stripe does not accept the API key"):
            run_phase("acme", mock=True, arms="A0", stripe="test")
    finally:
        refusing.stop()
    assert logs_of(results, ended=False) == logs_of(results, ended=True) == []


UNREACHABLE = "Stripe cannot be reached: ConnectError."


REFUSED = f"refused with 503: {UNREACHABLE}"
NOT_MADE = f"what the task needs could not be made: 503 {UNREACHABLE}"


def assert_failed_by_api(row: Row, why: str) -> None:
    assert (row.success, row.first_try, row.failed_by) == (False, False, "api")
    assert row.error == why


@pytest.mark.usefixtures("gone")
def test_charges_without_stripe_fail_by_the_api_with_the_reason_and_the_run_goes_on(
    results: Path, scripted: Scripted
) -> None:
    run = run_phase("acme", mock=True, stream="acme_sanity", arms="A0,A2,A2D,oracle", stripe="test")
    sound = scripted("acme", stream="acme_sanity")
    for line in ("A0", "A2", "A2D", "oracle"):
        mine = rows(run, line)
        assert [row.index for row in mine] == list(range(24))
        for row in mine:
            assert_failed_by_api(row, REFUSED)
        assert [row.attempts for row in mine] == [row.attempts for row in rows(sound, line)]
    for kind in ("admit", "relearn", "invalidate"):
        seen, expected = (
            [(each.episode, each.key, each.value) for each in events(each_run, "A2", kind)]
            for each_run in (run, sound)
        )
        assert seen == expected, "policy comes before Stripe, so its lessons are learned all the same"
    assert SECRET not in run.path.read_text("utf-8")
    assert logs_of(results, ended=False) == []


@pytest.mark.usefixtures("gone")
def test_refunds_whose_payment_cannot_be_made_fail_by_the_api_and_the_run_goes_on(
    results: Path,
) -> None:
    run = run_phase("acme", mock=True, stream="acme_refunds", arms="A0,A2,oracle", stripe="test")
    for line in ("A0", "A2", "oracle"):
        mine = rows(run, line)
        assert [row.index for row in mine] == list(range(12))
        for row in mine:
            assert_failed_by_api(row, NOT_MADE if row.family == "refund" else REFUSED)
            assert row.attempts == 1
            assert not row.cold_retry
            if row.family == "refund":
                assert (row.total_tokens, row.recalled) == (0, 0), "the agent was not asked"
    assert events_of(run) == []
    assert load(run.path) == run
    assert metrics.summary(run).loc["A2", "successes"] == 0
    assert SECRET not in run.path.read_text("utf-8")


def test_test_mode_goes_through_the_same_code_with_the_key_of_the_environment(
    results: Path, refunds: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One account for all arms, as Stripe's test mode is one: no two requests share a key."""
    with emulating() as there:
        monkeypatch.setenv(BASE_VARIABLE, there.base)
        monkeypatch.setenv(KEY_VARIABLE, f"sk_test_{SECRET}")
        run = run_phase("acme", mock=True, stream="acme_refunds", arms="A0,A2,A2D", stripe="test")
    assert without_ids(run) == without_ids(refunds, *run.arms)
    assert run.config["parameters"]["stripe"] == "test"
    assert SECRET not in run.path.read_text("utf-8")
