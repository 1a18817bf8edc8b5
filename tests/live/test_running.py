"""Live runs that are limited, interrupted or killed keep what is paid for and pay nothing twice."""

from __future__ import annotations

import re
import signal
import time
from contextlib import suppress
from dataclasses import replace
from threading import Barrier, BrokenBarrierError, Semaphore
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest
from running import attempts_of, logs_of, rows_of, run_phase, settings_of

from crossmem import streams
from crossmem.agents.cost import PRICES_OF, BudgetSpentError
from crossmem.agents.factory import agent_factory
from crossmem.errors import CrossmemError

from .bench_live import live_times
from .fakes import Answer, Asked, Provider, competent, faulty
from .helpers import KEY, SHORT, live, rows, start, until

if TYPE_CHECKING:
    from pathlib import Path

ARMS = "A0,A1F,A2,A3"


@pytest.mark.usefixtures("six")
def test_arms_and_replicates_run_at_once_up_to_max_concurrency(provider: Provider) -> None:
    """Four of them meet at the provider: each waits there until the other three have come."""
    meeting, places = Barrier(4), Semaphore(4)
    met, found_a_place = [], []

    def script(asked: Asked) -> Answer:
        if asked.number:
            found_a_place.append(places.acquire(blocking=False))
            with suppress(BrokenBarrierError):
                met.append(meeting.wait(0.5))
            places.release()
        return competent(asked)

    provider.script = script
    live(arms="A0,A1F,A2", replicates=2, max_concurrency=4)
    assert met, "four at once"
    assert all(found_a_place), "and never a fifth"


def test_a_local_model_is_asked_by_one_arm_at_a_time() -> None:
    given = {"max_concurrency": 4}
    with agent_factory(settings_of("phase1", mock=True, **given)) as workers:
        assert workers.at_once(9) == 9
        for model, number in (("local", 1), ("haiku", 4)):
            settings = settings_of("phase1", model=model, **given)
            assert replace(workers, settings=settings, backend_of=Mock()).at_once(9) == number


def test_the_benchmark_of_arms_at_once_works(results: Path) -> None:
    """Its ratio is judged by `make bench`, not here."""
    ((at_once, alone),) = live_times(repetitions=1, episodes=2, answer_s=0.05)
    assert at_once > 0
    assert alone > 0


# -- arms --------------------------------------------------------------------------------------

DEFAULT = {
    "phase1": "A0,A1,A2,A3",
    "phase2": "A0,A1,A2,A2D,A3",
    "phase3": "A0,A1,A2,A2D",
    "acme": "A0,A1,A2,A2D",
}
"""The arms of the brief."""


def test_arms_that_are_named_are_all_that_a_live_run_pays_for(
    provider: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    provider.script = competent
    found = run_phase("phase3", model="haiku", arms="A0,A1,A2,A2D")
    assert found.arms == ["A0", "A1", "A2", "A2D"]
    probe = 1
    assert len(provider.asked) == probe + len(attempts_of(found)) == probe + 92 + 68 + 67 + 64
    assert "Expected: 192 episodes, 192 to 960 calls" in capsys.readouterr().err


@pytest.mark.parametrize("phase", DEFAULT)
def test_without_a_name_a_live_run_has_the_arms_of_the_brief_and_a_scripted_one_those_beside(
    phase: str,
) -> None:
    def arms(*, mock: bool) -> list[str]:
        return [arm.name for arm in settings_of(phase, model="haiku", mock=mock).arms_to_run()]

    assert arms(mock=False) == DEFAULT[phase].split(",")
    assert arms(mock=True) == [*arms(mock=False), "A1F", "LW", "LWG", "oracle", "bound"]
    assert [a.name for a in settings_of(phase, mock=True, arms="A2,A0").arms_to_run()] == ["A2", "A0"]


@pytest.mark.usefixtures("six")
def test_a_run_stops_at_its_token_limit_and_goes_on_under_a_larger_one(
    provider: Provider, results: Path
) -> None:
    whole = live(arms=ARMS)
    expected = provider.calls()
    total = sum(row.total_tokens for row in rows_of(whole))
    provider.asked.clear()

    limit = total // 2
    with pytest.raises(BudgetSpentError, match=r"tokens spent, max_tokens_total") as caught:
        live(arms=ARMS, max_tokens_total=limit)
    assert "resume=True completes it" in str(caught.value)
    assert len(logs_of(results, ended=False)) == 1
    spent = provider.calls()
    assert sum(spent.values()) < sum(expected.values())

    provider.asked.clear()
    with pytest.raises(BudgetSpentError):
        live(arms=ARMS, max_tokens_total=limit, resume=True)
    assert sum(provider.calls().values()) == 0

    provider.asked.clear()
    found = live(arms=ARMS, max_tokens_total=10 * total, resume=True)
    assert spent + provider.calls() == expected
    assert rows(found) == rows(whole)
    assert len(found.config["preflight"]) == 3
    assert logs_of(results, ended=False) == []


@pytest.mark.usefixtures("six")
def test_a_run_stops_at_its_price_limit(provider: Provider) -> None:
    usage = {
        "input_tokens": 100_000,
        "output_tokens": 20_000,
        "cache_read_input_tokens": 1_000_000,
        "cache_creation_input_tokens": 80_000,
    }
    each = 0.1 + 0.1 + 0.1 + 0.1
    provider.script = lambda asked: replace(competent(asked), usage=usage)
    with pytest.raises(BudgetSpentError, match=rf"dollars spent \(prices of {PRICES_OF}\)") as caught:
        live(arms="A0", max_cost_usd=3 * each - 0.01)
    spent = re.search(r"(\d+\.\d\d) US dollars", str(caught.value))
    assert spent is not None
    assert float(spent[1]) == pytest.approx((len(provider.asked) - 1) * each)
    assert len(provider.asked) - 1 in {3, 4}
    assert rows_of(live(arms="A0", max_cost_usd=100.0, resume=True))[-1].success


@pytest.mark.usefixtures("six")
@pytest.mark.parametrize("limit", ["max_tokens_total", "max_cost_usd"])
def test_a_run_whose_answers_lack_usage_stops_under_a_limit_and_goes_on_without(
    provider: Provider, results: Path, limit: str
) -> None:
    def script(asked: Asked) -> Answer:
        return replace(competent(asked), usage=...) if asked.number > 3 else competent(asked)

    provider.script = script
    with pytest.raises(BudgetSpentError, match=f"{limit}.* cannot be kept: .*without usage") as caught:
        live(arms="A0", **{limit: 10**9})
    assert "resume=True completes it" in str(caught.value)
    asked = len(provider.asked)
    assert 3 < asked < 8

    with pytest.raises(BudgetSpentError, match=r"preflight: .* cannot be kept"):
        live(arms="A0", **{limit: 10**9}, resume=True)
    provider.script = competent
    with pytest.raises(BudgetSpentError, match="cannot be kept"):
        live(arms="A0", **{limit: 10**9}, resume=True)
    assert len(provider.asked) == asked + 2
    provider.script = script
    assert all(row.success for row in rows_of(live(arms="A0", resume=True)))
    assert logs_of(results, ended=False) == []


@pytest.mark.usefixtures("six")
def test_a_summary_without_usage_stops_a_run_under_a_limit(provider: Provider) -> None:
    provider.script = lambda asked: (
        replace(competent(asked), usage=...) if asked.tool == "keep_summary" else competent(asked)
    )
    with pytest.raises(BudgetSpentError, match="cannot be kept"):
        run_phase(
            "experience", model="haiku", stream="phase2_v4", arms="rich.fixed", max_tokens_total=10**9
        )


SPENT = "You have reached your specified API usage limits. Access returns on 2026-03-01."
ACCOUNT_WIDE = {
    "a key revoked": Answer(status=401, error=f"invalid x-api-key {KEY}"),
    "usage limits": Answer(status=400, error=SPENT),
    "a spending limit": Answer(status=429, error="The monthly spending limit of this key is reached."),
    "a plan, in a list": Answer(status=403, raw=b'[{"detail": "your plan has no quota left"}]'),
    "no quota, inside a 200": Answer(raw=b'{"error": {"code": "insufficient_quota", "message": "no"}}'),
}


@pytest.mark.usefixtures("six")
@pytest.mark.parametrize("refusal", ACCOUNT_WIDE)
def test_what_the_account_is_refused_in_mid_run_stops_it_in_one_line_and_resumably(
    provider: Provider, results: Path, refusal: str
) -> None:
    whole = live()
    provider.asked.clear()
    provider.script = faulty(*[ACCOUNT_WIDE[refusal]] * 2, since=7)
    with pytest.raises(CrossmemError, match="the provider answered 4") as caught:
        live()
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "resume=True completes it" in str(caught.value)
    provider.script = competent
    assert rows(live(resume=True)) == rows(whole)
    assert logs_of(results, ended=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("asked", [9, 60])
def test_a_run_killed_in_the_middle_repeats_no_finished_episode(
    provider: Provider, results: Path, asked: int
) -> None:
    stream = streams.load("phase1")
    whole = live()
    expected = provider.calls()
    provider.asked.clear()

    provider.script = lambda each: replace(competent(each), after=0.02)
    process = start()
    until(process, provider, asked)
    process.kill()
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    (log,) = logs_of(results, ended=False)
    kept = log.read_bytes().count(b"\n") - 1
    before = provider.calls()
    assert 0 < kept < 2 * len(stream.episodes)

    provider.asked.clear()
    found = live(resume=True)
    assert rows(found) == rows(whole)
    repeated = before + provider.calls() - expected
    in_flight = {task for task, _ in repeated}
    assert len(in_flight) <= 2  # one episode an arm
    assert expected <= before + provider.calls()
    assert len(found.config["preflight"]) == 2


WAITS = {
    "a wait that was asked for": Answer(status=429, error="slow down", headers={"retry-after": "50"}),
    "an answer that does not come": Answer({}, after=200),
    "an answer that trickles in": Answer({}, trickle=0.5),
}


@pytest.mark.slow
@pytest.mark.usefixtures("six")
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("where", ["preflight", "episode"])
def test_ctrl_c_during_a_long_wait_ends_within_seconds(
    provider: Provider, results: Path, wait: str, where: str
) -> None:
    answered = 0 if where == "preflight" else 5
    provider.script = lambda asked: competent(asked) if asked.number < answered else WAITS[wait]
    process = start(SHORT, episode_timeout_s=280)
    until(process, provider, answered + 1)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - started < 5
    assert process.returncode not in (0, None)
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert logs_of(results, ended=True) == []
    if where == "episode":
        assert "resume=True completes it" in err
        provider.script = competent
        assert all(row.success for row in rows_of(live(resume=True)))


@pytest.mark.slow
def test_waits_and_progress_are_told_in_the_terminal(provider: Provider) -> None:
    busy = Answer(status=529, error="Overloaded", headers={"retry-after": "0.3"})
    provider.script = faulty(busy, since=3)
    process = start(SHORT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert re.search(r"A[02]-0 waits 0\.3 s: the provider answered 529: Overloaded", err)
    assert "Expected: 12 episodes" in err
    assert "12/12" in err
    assert len(out.splitlines()) == 1
