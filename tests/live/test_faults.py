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
from crossmem.analysis import metrics, notices

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


RATE = "50 requests per minute: the rate limit of your organization's plan limit is reached"
BUSY = b'{"error": {"type": "overloaded_error", "message": "busy"}}'
PASSING = {
    "429": (Answer(status=429, error="slow down"), "429: slow down"),
    "429 of an organization's rate": (Answer(status=429, error=RATE), "429: 50 requests"),
    "429 with retry-after": (
        Answer(status=429, error="slow down", headers={"retry-after": "0.2"}),
        "(to be asked again in 0.2 s)",
    ),
    "500": (Answer(status=500, error="oh"), "500: oh"),
    "502 of a gateway": (Answer(status=502, raw=b"<html><h1>Bad gateway</h1></html>"), "502: <html>"),
    "529": (Answer(status=529, error="Overloaded"), "529: Overloaded"),
    "an overload inside a 200": (Answer(raw=BUSY), "529: busy; [overloaded_error] (inside a 200)"),
    "a status inside a 200": (Answer(raw=b'{"error": {"code": 503}}'), "503: "),
    "a dropped connection": (Answer({}, dropped=True), "broke the connection"),
}


@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_waited_out_in_sight(
    provider: Provider, model: str, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, words = PASSING[fault]
    provider.script = faulty(*[answer] * 3)
    found = live(model=model, arms="A0")
    assert failures(found) == [None] * 6
    assert problems(found) == []
    err = capsys.readouterr().err
    assert err.count("A0-0 waits ") == 3
    assert words in err
    sent = [asked.raw for asked in provider.asked[1:5]]
    assert sent == [sent[0]] * 4


@pytest.mark.parametrize(
    ("value", "least"),
    [("1", 0.9), (timedelta(seconds=2), 0.9), ("0", 0.25), ("-5", 0.25), (timedelta(hours=-1), 0.25)],
)
def test_retry_after_is_waited_for_as_long_as_it_says_above_a_floor(
    provider: Provider, value: str | timedelta, least: float
) -> None:
    def script(asked: Asked) -> Answer:
        said = (
            value if isinstance(value, str) else format_datetime(datetime.now(UTC) + value, usegmt=True)
        )
        slow = Answer(status=429, error="slow down", headers={"retry-after": said})
        return faulty(slow, slow)(asked)

    provider.script = script
    assert failures(live(arms="A0")) == [None] * 6
    _, first, second, third, *_ = (asked.at for asked in provider.asked)
    assert least <= second - first < 3
    assert min(0.5, 2 * least) <= third - second < 3


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
    "an error inside a 200 that lasts": Answer(raw=BUSY),
    "a refusal inside a 200": Answer(raw=BUSY.replace(b"overloaded_error", b"invalid_request_error")),
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
    assert metrics.summary(found).loc["A0", "unmeasured"] == 1


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
    assert metrics.summary(found).loc["A0", "unmeasured"] == 0
    assert {row.attempts for row in rows_of(found)} == {2}


ODD_USAGE: list[Any] = [
    *(..., None, "many", "", [1], [], 7, 0, True, {}, {"unknown_tokens": 3}),
    *({"input_tokens": odd, "prompt_tokens": odd} for odd in (None, "many", float("nan"), -3, [9])),
    {"prompt_tokens_details": "none", "cache_creation": 3},
]


def test_usage_that_is_missing_or_odd_counts_as_zero_and_is_said_to_be_missing(
    provider: Provider, model: str
) -> None:
    provider.script = lambda asked: replace(
        competent(asked), usage=ODD_USAGE[asked.number % len(ODD_USAGE)]
    )
    found = live(model=model)
    assert len(provider.asked) > len(ODD_USAGE)
    assert failures(found) == [None] * 6
    assert {row.total_tokens for row in rows_of(found)} == {0}
    assert {attempt.evidence["usage"] for attempt in attempts_of(found)} == {"missing"}
    answers = len(attempts_of(found))
    assert f"{answers} of {answers} answers came without usage" in str(notices.notice(found))


def test_json_in_a_code_fence_is_taken(provider: Provider) -> None:
    provider.script = lambda asked: Answer(
        words=f"```json\n{json.dumps(competent(asked).request)}\n```"
    )
    found = live(model=MODELS["chat completions"], arms="A0", strict_preflight=True)
    assert problems(found) == []
    assert all(row.success for row in rows_of(found))


def test_members_that_are_missing_from_an_answer_or_odd_are_a_failed_attempt(
    provider: Provider, model: str
) -> None:
    odd = {"content": ["x"], "choices": ["x"], "model": 3, "stop_reason": 7, "usage": "many"}
    raws = [b"{}", b"null", b"[]", json.dumps(odd).encode(), b'{"content": 1, "choices": {"0": 1}}']
    provider.script = faulty(*[Answer(raw=raw) for raw in raws])
    found = live(model=model, arms="A0")
    assert len(rows_of(found)) == 6
    assert [row.failed_by for row in rows_of(found)[4:]] == [None] * 2


def test_faults_that_pass_change_no_row(provider: Provider) -> None:
    calm = live(arms="A2").rows
    provider.asked.clear()
    provider.script = faulty(Answer(status=529, error="Overloaded"), since=0)
    columns = ["success", "attempts"]
    assert live(arms="A2").rows[columns].equals(calm[columns])
