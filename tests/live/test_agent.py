"""What a model is asked, through the real SDKs, and that nothing but the agent differs between runs."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from running import attempts_of, events_of, rows_of, run_phase, settings_of

from crossmem import streams
from crossmem.agents.prompts import HINT_STYLES
from crossmem.harness.runner import prompter_for
from crossmem.upstream.embedded import EmbeddedApi

from .fakes import CHAT, MESSAGES, Asked, competent
from .helpers import KEY, MODELS, live

if TYPE_CHECKING:
    from pathlib import Path

    from .fakes import Provider

pytestmark = pytest.mark.usefixtures("six")

ALL = "A0,A1F,A1,LW,LWG,A2,A2D,A2C,A2V,A3"
OF_THE_AGENT = {"tokens_source", "latency_s", "evidence"}


def without_the_agents(records: list[Any]) -> list[dict[str, Any]]:
    return [
        {k: v for k, v in vars(record).items() if k not in OF_THE_AGENT and not k.endswith("_tokens")}
        for record in records
    ]


@pytest.mark.parametrize("api", MODELS)
def test_mock_and_live_runs_differ_in_the_agent_only(provider: Provider, api: str) -> None:
    mock = run_phase("phase1", model="haiku", mock=True, arms=ALL)
    run_live = live(model=MODELS[api], arms=ALL)
    for part in (rows_of, events_of, attempts_of):
        expected, found = (without_the_agents(part(each)) for each in (mock, run_live))
        assert found == expected
    assert {row.tokens_source for row in rows_of(run_live)} == {"reported"}
    assert {row.tokens_source for row in rows_of(mock)} == {"estimated"}
    assert any(row.stale_attempt for row in rows_of(run_live))
    parameters, others = (of.config["parameters"] for of in (mock, run_live))
    assert {name for name in parameters if parameters[name] != others[name]} <= {"mock", "model"}


@pytest.fixture
def asked(provider: Provider) -> list[Asked]:
    """All that was asked in a run of two arms, the preflight first."""
    live(arms="A0,A2")
    return provider.asked


def the_schema(results: Path) -> Any:
    stream = streams.load("phase1")
    with EmbeddedApi(stream.domain).serve(results.with_name("tables")) as (api, _):
        prompter = prompter_for(settings_of("phase1", mock=True), stream, api)
    return prompter.disclosed(stream.episodes[0].task).request_schema


def test_the_tool_is_forced_and_its_schema_is_the_apis_own(asked: list[Asked], results: Path) -> None:
    schema = the_schema(results)
    assert schema["properties"]["ingredients"]
    members = {"model", "max_tokens", "system", "tools", "tool_choice", "messages"}
    for each in asked:
        assert set(each.body) == members, "no sampling parameter, and no stream"
        assert each.path == MESSAGES
        assert KEY in {each.headers.get("x-api-key"), each.headers["authorization"].split()[-1]}
        (tool,) = each.body["tools"]
        assert tool["name"] == "submit_request"
        assert tool["input_schema"] == schema
        forced = {"type": "tool", "name": "submit_request", "disable_parallel_tool_use": True}
        assert each.body["tool_choice"] == forced


def test_the_stable_part_stands_first_marked_for_caching_and_is_the_same_in_every_request(
    asked: list[Asked],
) -> None:
    prefixes = set()
    for each in asked:
        stable, *memory = each.body["system"]
        assert stable["cache_control"] == {"type": "ephemeral"}
        assert json.dumps(each.body).count("cache_control") == 1
        assert len(memory) <= 1
        assert all(block["text"].startswith(HINT_STYLES["amendment"]) for block in memory)
        prefixes.add(json.dumps([each.body["tools"], stable]))
        start = each.raw.index(b'"tools"')
        prefixes.add(each.raw[start : each.raw.index(b"]", start) + 1].decode())
    assert len(prefixes) == 2
    assert any(len(each.body["system"]) == 2 for each in asked)
    assert "exactly as provided" in asked[0].system
    assert "- USE_SPECIFIC_BRAND" in asked[0].system


def test_memory_is_put_forward_in_the_style_of_the_run(provider: Provider) -> None:
    live(arms="A2", hint_style="append")
    blocks = {block["text"] for asked in provider.asked for block in asked.body["system"][1:]}
    assert blocks
    assert all(block.startswith(HINT_STYLES["append"]) for block in blocks)


def test_a_refusal_goes_back_as_the_result_of_the_tool_call_and_says_that_it_is_an_error(
    asked: list[Asked],
) -> None:
    for each in asked:
        assert_no_call_is_left_dangling(each.body["messages"])
    retries = [each.body["messages"] for each in asked if len(each.body["messages"]) > 1]
    assert retries
    for task, call, result in retries:
        assert [task["role"], call["role"], result["role"]] == ["user", "assistant", "user"]
        assert call["content"][0]["type"] == "tool_use"
        (block,) = result["content"]
        assert (block["type"], block["is_error"]) == ("tool_result", True)
        assert json.loads(block["content"])["status"] == 422


def assert_no_call_is_left_dangling(messages: list[dict[str, Any]]) -> None:
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
    for message, after in pairwise(messages):
        if message["role"] == "user":
            continue
        if isinstance(message["content"], str):
            assert isinstance(after["content"], str)
        else:
            (call,), (answer,) = message["content"], after["content"]
            assert (call["type"], answer["type"]) == ("tool_use", "tool_result")
            assert call["id"] == answer["tool_use_id"]


USAGES: dict[str, dict[str, Any]] = {
    "Messages": {
        "input_tokens": 300,
        "output_tokens": 40,
        "cache_creation_input_tokens": 500,
        "cache_read_input_tokens": 7,
        "service_tier": "standard",
    },
    "chat completions": {
        "prompt_tokens": 900,
        "completion_tokens": 50,
        "total_tokens": 950,
        "prompt_tokens_details": {"cached_tokens": 600},
    },
}
COUNTED = {"Messages": (300, 40, 7, 500, 847), "chat completions": (300, 50, 600, 0, 950)}


@pytest.mark.parametrize("api", MODELS)
def test_cache_reads_and_writes_are_counted_apart_and_in_the_total(
    provider: Provider, api: str
) -> None:
    provider.script = lambda asked: replace(competent(asked), usage=USAGES[api])
    found = live(model=MODELS[api], arms="A0")
    columns = ("input", "output", "cache_read", "cache_write", "total")
    for row in rows_of(found):
        counts = [getattr(row, f"{column}_tokens") for column in columns]
        assert counts == [count * row.attempts for count in COUNTED[api]]
    assert found.config["preflight"][0]["usage"] == USAGES[api]


def test_chat_completions_ask_for_the_apis_own_schema(provider: Provider, results: Path) -> None:
    live(model=MODELS["chat completions"])
    for each in provider.asked:
        assert each.path == CHAT
        assert each.headers["authorization"] == f"Bearer {KEY}"
        members = {"model", "messages", "response_format", "max_completion_tokens", "seed"}
        assert set(each.body) == members
        assert each.body["model"] == "some-model"
        assert each.body["response_format"]["type"] == "json_schema"
        roles = [message["role"] for message in each.body["messages"]]
        assert roles == ["system", "user", *["assistant", "user"] * (len(roles) // 2 - 1)]
    assert provider.asked[0].body["response_format"]["json_schema"]["schema"] == the_schema(results)


def test_the_seed_of_a_chat_is_the_runs_plus_the_replicate(provider: Provider) -> None:
    live(model=MODELS["chat completions"], arms="A0", seed=40, replicates=2)
    assert {each.body["seed"] for each in provider.asked} == {40, 41}


@pytest.mark.parametrize(
    ("model", "id_", "label"),
    [
        ("haiku", "claude-haiku-4-5", "haiku"),
        ("claude-another-9", "claude-another-9", "claude-another-9"),
        ("openai/org/model:7b", "org/model:7b", "openai-org-model-7b"),
        ("", "claude-sonnet-4-6", "sonnet"),  # the one that the environment names
    ],
)
def test_a_model_is_asked_for_by_its_id_and_named_in_the_results_file(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, model: str, id_: str, label: str
) -> None:
    monkeypatch.setenv("PILOT_MODEL", "sonnet")
    found = live(model=model, arms="A0")
    assert {each.body["model"] for each in provider.asked} == {id_}
    assert found.path.stem.rpartition("_")[0] == f"phase1_single_{label}"
    assert found.config["model"]["id"] == id_


def test_a_model_with_a_long_name_has_a_results_file_of_its_own(provider: Provider) -> None:
    names = [f"openai/{'m' * 230}{number}" for number in range(2)]
    first, second = (live(model=name, arms="A0").path.stem.rpartition("_")[0] for name in names)
    assert first != second
    assert max(len(first), len(second)) < 120


def test_the_evidence_of_every_answer_is_in_the_results(provider: Provider) -> None:
    found = live(arms="A0")
    for attempt in attempts_of(found):
        assert attempt.evidence is not None
        assert attempt.evidence["model"] == "claude-haiku-4-5"
        assert attempt.evidence["stop_reason"] == "tool_use"
        assert attempt.evidence["usage"] == "reported"
        assert str(attempt.evidence["request_id"]).startswith("req_")
