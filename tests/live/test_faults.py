"""What a provider does wrong in mid-run: waited out, or recorded as somebody's failure; no crash."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from running import attempts_of, rows_of

from crossmem.agents import retry
from crossmem.analysis import metrics

from .fakes import Answer, Asked, Provider, competent, faulty
from .helpers import MODELS, failures, live, problems
from .test_agent import assert_no_call_is_left_dangling


pytestmark = pytest.mark.usefixtures("six")

GOOD = "the preflight, answered well"


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "uniform", lambda *_: 0.05)


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    return MODELS[request.param]


PASSING = {
    "429": Answer(status=429, error="slow down"),
    "429 with retry-after": Answer(status=429, error="slow down", headers={"retry-after": "0.2"}),
    "500": Answer(status=500, error="oh"),
    "502 of a gateway": Answer(status=502, raw=b"<html><h1>Bad gateway</h1></html>"),
    "529": Answer(status=529, error="Overloaded"),
    "a dropped connection": Answer({}, dropped=True),
}


@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_waited_out_in_sight(
    provider: Provider, model: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    provider.script = faulty(*[PASSING[fault]] * 3)
    found = live(model=model, arms="A0")
    assert failures(found) == [None] * 6
    assert problems(found) == []
    err = capsys.readouterr().err
    assert err.count("A0-0 waits ") == 3
    expected = str(PASSING[fault].status) if PASSING[fault].status != 200 else "broke the connection"
    assert expected in err
    sent = [asked.raw for asked in provider.asked[1:5]]
    assert sent == [sent[0]] * 4


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_waited_for_as_long_as_it_says(provider: Provider, form: str) -> None:
    def script(asked: Asked) -> Answer:
        at = datetime.now(UTC) + timedelta(seconds=2)
        value = "1" if form == "seconds" else format_datetime(at, usegmt=True)
        fault = Answer(status=429, error="slow down", headers={"retry-after": value})
        return faulty(fault)(asked)

    provider.script = script
    assert failures(live(arms="A0")) == [None] * 6
    assert 0.9 <= provider.asked[2].at - provider.asked[1].at < 3


def test_a_wait_in_one_arm_holds_up_no_other(provider: Provider) -> None:
    """The first to ask is told to come back later; the other goes through meanwhile."""
    provider.script = faulty(Answer(status=429, error="slow down", headers={"retry-after": "3"}))
    fast, slow = sorted(live().rows.groupby("arm")["latency_s"].sum())
    assert slow >= 3
    assert fast < 2


def always(fault: Answer, task: str) -> Any:
    def script(asked: Asked) -> Answer:
        return fault if asked.number and task in asked.task else competent(asked)

    return script


LASTING = {
    "429 for longer than is left": Answer(status=429, error="slow down", headers={"retry-after": "90"}),
    "529 again and again": Answer(status=529, error="Overloaded"),
    "a very slow answer": Answer({}, after=30),
    "an answer that trickles in": Answer({}, trickle=0.3),
    "a refused request": Answer(status=400, error="messages: too long"),
    "a web page": Answer(raw=b"<html>Sign in</html>", headers={"Content-Type": "text/html"}),
    "broken JSON": Answer(raw=b'{"id": "msg_1", '),
}


@pytest.mark.parametrize("fault", LASTING)
def test_an_episode_without_an_answer_is_the_providers_failure_and_the_run_goes_on(
    provider: Provider, model: str, fault: str
) -> None:
    provider.script = always(LASTING[fault], "shortbread")
    started = time.monotonic()
    found = live(model=model, arms="A0", episode_timeout_s=2)
    assert time.monotonic() - started < 8
    assert failures(found) == [None, None, "provider", None, None, None]
    row = rows_of(found)[2]
    if "retry-after" in LASTING[fault].headers:
        assert "to be asked again in 90.0 s" in str(row.error)
    assert (row.success, row.attempts, row.total_tokens) == (False, 1, 0)
    assert "provider" in str(row.error)
    outcomes = metrics.episodes(found)["outcome"].tolist()
    assert outcomes.count("provider failed") == 1
    assert "failed" not in outcomes
    assert metrics.summary(found).loc["A0", "provider_failures"] == 1


def test_the_deadline_is_the_episodes_not_the_requests(provider: Provider) -> None:
    provider.script = lambda asked: replace(competent(asked), after=0.7 if asked.number else 0)
    found = live(arms="A0", episode_timeout_s=1)
    assert [row.failed_by for row in rows_of(found)] == ["provider"] * 6
    assert {row.attempts for row in rows_of(found)} == {2}
    assert all(row.total_tokens > 0 for row in rows_of(found))
    assert all(row.latency_s < 1.6 for row in rows_of(found))


BAD: dict[str, tuple[Answer, str]] = {
    "off the schema": (Answer({"recipe": "x"}), "misses the schema at $"),
    "a wrong type": (Answer("flour"), "not an object"),
    "not a number": (Answer({"recipe": float("nan")}), "no JSON"),
    "half a character": (Answer({"recipe": "\ud800"}), "no JSON"),
    "an empty answer": (Answer(), "no"),
    "text in place of a request": (Answer(words="I would rather not."), "no"),
    "cut short": (Answer({"recipe": "x"}, stop="max_tokens"), "stopped with max_tokens"),
    "cut short without a word": (Answer(stop="max_tokens"), "stopped with max_tokens"),
    "a refusal": (Answer(words="I cannot.", stop="refusal"), "stopped with refusal"),
    "a paused turn": (Answer(stop="pause_turn"), "stopped with pause_turn"),
}
CHAT_STOPS = {"max_tokens": "length", "refusal": "content_filter", "pause_turn": "tool_calls"}


@pytest.mark.parametrize("kind", BAD)
def test_an_answer_without_a_usable_request_costs_an_attempt_and_is_asked_again(
    provider: Provider, model: str, kind: str
) -> None:
    bad, reason = BAD[kind]
    if model != "haiku" and bad.stop:
        reason = reason.replace(bad.stop, CHAT_STOPS[bad.stop])
        bad = replace(bad, stop=CHAT_STOPS[bad.stop])

    def then(asked: Asked) -> Answer:
        """Answer the correction with what the first answer should have been."""
        return Answer(asked.input) if asked.number == 2 else competent(asked)

    provider.script = faulty(bad, then=then)
    found = live(model=model, arms="A0")
    assert failures(found) == [None] * 6
    first, second, *_ = [each for each in attempts_of(found) if each.episode == 0]
    assert (first.request, first.status, first.failed_by) == (None, None, None)
    assert reason in str(first.error)
    assert second.status == 422
    assert rows_of(found)[0].attempts == 3
    assert rows_of(found)[0].first_try is False
    assert "Send one request that fits the schema" in json.dumps(provider.asked[2].body)
    if model == "haiku":
        for asked in provider.asked:
            assert_no_call_is_left_dangling(asked.body["messages"])


def test_a_model_that_never_sends_a_request_fails_every_episode_itself(
    provider: Provider, model: str
) -> None:
    """Whatever it sends instead: each kind in turn."""
    kinds = [bad for bad, _ in BAD.values()]
    provider.script = lambda asked: (
        kinds[asked.number % len(kinds)] if asked.number else competent(asked)
    )
    found = live(model=model, arms="A0", max_attempts=2)
    assert len(attempts_of(found)) >= len(kinds)
    assert failures(found) == ["agent"] * 6
    assert set(metrics.episodes(found)["outcome"]) == {"failed"}
    assert metrics.summary(found).loc["A0", "provider_failures"] == 0
    assert {row.attempts for row in rows_of(found)} == {2}


def test_usage_that_is_missing_or_odd_counts_as_zero(provider: Provider, model: str) -> None:
    odd = [..., {"unknown_tokens": 3}, {"input_tokens": None}, {"input_tokens": "many"}]
    provider.script = lambda asked: replace(competent(asked), usage=odd[asked.number % len(odd)])
    found = live(model=model, arms="A0")
    assert failures(found) == [None] * 6
    assert {row.total_tokens for row in rows_of(found)} == {0}


def test_members_that_are_missing_from_an_answer_are_a_failed_attempt(
    provider: Provider, model: str
) -> None:
    provider.script = faulty(Answer(raw=b"{}"), Answer(raw=b"null"), Answer(raw=b"[]"))
    found = live(model=model, arms="A0")
    assert len(rows_of(found)) == 6
    assert [row.failed_by for row in rows_of(found)[3:]] == [None] * 3


def test_faults_that_pass_change_no_row(provider: Provider) -> None:
    calm = live(arms="A2").rows
    provider.asked.clear()
    provider.script = faulty(Answer(status=529, error="Overloaded"), since=0)
    columns = ["success", "attempts"]
    assert live(arms="A2").rows[columns].equals(calm[columns])
