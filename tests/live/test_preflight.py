"""The probe before a live run: its evidence, its doubts, and what stops a run before any episode."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest
from running import settings_of

from crossmem.agents.factory import agent_factory
from crossmem.analysis import notices
from crossmem.errors import CrossmemError, InputError

from .fakes import Answer, Provider, competent
from .helpers import KEY, MODELS, live

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("six")


def left(results: Path) -> list[Path]:
    """Return what a run left in its results folder."""
    return list(results.rglob("*"))


def said(of: pytest.ExceptionInfo[Any]) -> str:
    text = str(of.value)
    assert "\n" not in text
    assert KEY not in text
    return text


@pytest.mark.parametrize("api", MODELS)
def test_the_evidence_of_the_preflight_is_in_the_config(provider: Provider, api: str) -> None:
    found = live(model=MODELS[api], arms="A0")
    (probe,) = found.config["preflight"]
    name = "claude-haiku-4-5" if api == "Messages" else "some-model"
    sdk = f"anthropic {anthropic.__version__}" if api == "Messages" else f"openai {openai.__version__}"
    assert probe["requested_model"] == probe["served_model"] == name
    assert probe["request_id"] == "req_0"
    assert probe["stop_reason"] == ("tool_use" if api == "Messages" else "stop")
    assert probe["sdk"] == sdk
    assert 0 < probe["latency_s"] < 10
    assert probe["usage"]
    assert probe["warnings"] == []
    assert provider.asked[0].raw == provider.asked[1].raw, "shaped like the first episode"


def test_a_dated_name_is_the_model_asked_for(provider: Provider) -> None:
    provider.script = lambda asked: replace(competent(asked), served="claude-haiku-4-5-20251001")
    assert live(arms="A0", strict_preflight=True).config["preflight"][0]["warnings"] == []


DOUBTS: dict[str, tuple[dict[str, Any], str]] = {
    "another model": ({"served": "claude-haiku-4-5-mini"}, "asked for claude-haiku-4-5, served"),
    "no usage": ({"usage": ...}, "no usage was reported"),
    "no output": ({"usage": {"input_tokens": 900, "output_tokens": 0}}, "answer had no tokens"),
    "usage without a count": ({"usage": "many"}, "no usage was reported"),
    "no request": ({"request": None, "words": "Sure."}, "the probe got no usable request"),
    "no number": (
        {"usage": {"input_tokens": float("nan"), "output_tokens": 9}},
        "usage says 0 tokens of input",
    ),
    "little input": ({"usage": {"input_tokens": 9, "output_tokens": 9}}, "9 tokens of input"),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_a_doubtful_preflight_is_a_warning_at_the_top_and_under_strict_preflight_stops_the_run(
    provider: Provider, results: Path, doubt: str
) -> None:
    change, words = DOUBTS[doubt]
    provider.script = lambda asked: replace(competent(asked), **({} if asked.number else change))
    with pytest.raises(CrossmemError, match="strict_preflight") as caught:
        live(strict_preflight=True)
    assert words in said(caught)
    assert left(results) == []
    assert len(provider.asked) == 1

    provider.asked.clear()
    found = live(arms="A0")
    (probe,) = found.config["preflight"]
    assert any(words in warning for warning in probe["warnings"])
    first, second, *_ = notices.notice(found).sentences
    assert first.startswith("Measured with the model haiku")
    assert words in second


REFUSED: dict[str, tuple[int, str | bytes, str]] = {
    "wrong key": (401, f"invalid x-api-key: {KEY}", "401: invalid x-api-key: ["),
    "no credit": (400, "Your credit balance is too low to access the API.", "credit balance"),
    "no quota": (429, "You exceeded your current quota, please check your plan.", "quota"),
    "unknown model": (404, "model: no-such-model", "404: model: no-such-model"),
    "a wrong address": (404, b"", "404: no reason given (asked http://127.0.0.1:"),
    "not allowed": (403, "This key may not use that model.", "403: This key"),
    "a request it does not take": (400, "tools.0: odd\nand more", "400: tools.0: odd"),
    "a list": (400, b'[{"msg": "field missing"}, "and more"]', "400: field missing; and more"),
    "a text": (400, b"no such thing", "400: no such thing"),
    "another shape": (400, b'{"why": {"odd": 1}}', '400: {"why": {"odd": 1}}'),
}


@pytest.mark.parametrize("api", MODELS)
@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_of_the_provider_is_one_line_before_any_episode(
    provider: Provider, results: Path, case: str, api: str
) -> None:
    status, message, words = REFUSED[case]
    odd = {"raw": message} if isinstance(message, bytes) else {"error": message}
    provider.script = lambda _: replace(Answer(status=status), **odd)
    started = time.monotonic()
    with pytest.raises(CrossmemError, match="preflight of") as caught:
        live(model=MODELS[api])
    assert words in said(caught)
    assert time.monotonic() - started < 5
    assert len(provider.asked) == 1
    assert left(results) == []


@pytest.mark.parametrize("api", MODELS)
def test_a_host_that_no_connection_reaches_is_said_at_once(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, api: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        monkeypatch.setenv("ANTHROPIC_BASE_URL", address)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        started = time.monotonic()
        with pytest.raises(CrossmemError, match="cannot be reached") as caught:
            live(model=MODELS[api])
    assert "refused" in said(caught)
    assert time.monotonic() - started < 5


def test_a_preflight_waits_in_sight_and_no_longer_than_an_episode(
    provider: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    provider.script = lambda _: Answer(status=529, error="Overloaded", headers={"retry-after": "0.5"})
    started = time.monotonic()
    with pytest.raises(CrossmemError, match="529: Overloaded"):
        live(episode_timeout_s=2)
    assert time.monotonic() - started < 5
    assert "preflight waits 0.5 s: the provider answered 529" in capsys.readouterr().err


def test_a_key_that_no_header_can_carry_is_said_without_it(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", f"{KEY}\n")
    with pytest.raises(CrossmemError, match="preflight of") as caught:
        live()
    assert "[ANTHROPIC_API_KEY]" in said(caught)


def test_what_a_run_will_take_is_said_before_it_starts(
    provider: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    provider.script = lambda _: Answer(status=401)
    with pytest.raises(CrossmemError):
        live(arms="A0,A2", replicates=2, max_attempts=3)
    assert "Expected: 24 episodes, 24 to 72 calls, at least " in capsys.readouterr().err


@pytest.mark.parametrize("model", ["haiku", "gpt-4o"])
def test_no_key_is_said_at_once_with_three_ways_on(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, results: Path, model: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")  # an empty variable is none
    with pytest.raises(InputError) as caught:
        live(model=model)
    text = said(caught)
    for way in ("ANTHROPIC_API_KEY", "mock=True", "model=local"):
        assert way in text
    assert ("named openai/gpt-4o" in text) == (model == "gpt-4o")
    assert provider.asked == []
    assert left(results) == []


def test_a_token_in_place_of_a_key_is_sent_as_a_bearer(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", KEY)
    live(arms="A0")
    assert {asked.headers["authorization"] for asked in provider.asked} == {f"Bearer {KEY}"}
    assert all("x-api-key" not in asked.headers for asked in provider.asked)


def test_an_openai_compatible_model_needs_an_endpoint_or_a_key(
    provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    live(model="openai/some-model", arms="A0")
    monkeypatch.delenv("OPENAI_BASE_URL")
    with pytest.raises(InputError, match="OPENAI_BASE_URL"):
        live(model="openai/some-model")


@pytest.mark.parametrize(
    ("api", "host"),
    [("Messages", "https://api.anthropic.com"), ("chat completions", "https://api.openai.com/v1")],
)
def test_an_empty_address_is_no_address(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, api: str, host: str
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "")
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    with agent_factory(settings_of("phase1", model=MODELS[api])) as agents:
        backend: Any = agents.backend_of and agents.backend_of(0)
        assert str(backend.client.base_url).rstrip("/") == host


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK's own end
@pytest.mark.parametrize("api", MODELS)
def test_a_proxy_that_the_sdk_cannot_use_is_named(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, results: Path, api: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", "odd://127.0.0.1:9")
    with pytest.raises(InputError, match=r"client cannot be made: .*Set in the environment: ALL_PROXY"):
        live(model=MODELS[api])
    assert left(results) == []


def test_a_model_file_goes_with_the_local_model_only() -> None:
    with pytest.raises(InputError, match="gguf names the file of model=local"):
        live(gguf="some.gguf")


def test_a_price_limit_needs_a_known_price(provider: Provider) -> None:
    with pytest.raises(InputError, match="no price is known for 'some-model'"):
        live(model="openai/some-model", max_cost_usd=1.0)
