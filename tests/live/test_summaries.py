"""Summaries that a live run's model writes, through the real SDKs, and reminders after a refusal."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
from running import attempts_of, events_of, logs_of, rows_of, run_phase

from crossmem import experience
from crossmem.errors import InputError
from crossmem.experience.memory import ExperienceMemory
from crossmem.experience.settings import arm_of
from crossmem.experience.summaries import FIELDS, INSTRUCTION
from crossmem.harness.history import memory_at

from .fakes import Answer, Asked, Provider, competent
from .helpers import MODELS, SHORT, rows, start, until

if TYPE_CHECKING:
    from pathlib import Path

    from crossmem.harness.results import Run

pytestmark = pytest.mark.usefixtures("six")

RICH = "rich.faithful,rich.fixed,rich.fixed.A2"


def lived(**given: Any) -> Run:
    return run_phase("experience", **{"model": "haiku", "stream": "phase2_v4", "arms": RICH, **given})


def summaries(provider: Provider) -> list[Asked]:
    return [asked for asked in provider.asked if asked.tool == "keep_summary"]


def written(of: Run, arm: str) -> list[dict[str, Any]]:
    """What the memory of an arm was told of the summaries it wanted."""
    told = [each for a in attempts_of(of) if a.arm == arm for each in a.signals]
    return [dict(each) for each in told if each.kind == "summary"]


@pytest.mark.parametrize("api", MODELS)
def test_the_model_is_asked_for_each_summary_once_and_reads_it_in_the_next_prompt(
    provider: Provider, api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = lived(model=MODELS[api], arms="rich.fixed")
    assert "a call more for every summary that 1 arms have written" in capsys.readouterr().err

    asked = summaries(provider)
    assert asked
    assert len(asked) == len({each.task for each in asked})
    for each in asked:
        assert INSTRUCTION in each.system
        assert "The attempt (" in each.task
        assert each.body["max_tokens" if api == "Messages" else "max_completion_tokens"] == 512
        schema = each.body["tools"][0]["input_schema"] if api == "Messages" else None
        assert schema is None or list(schema["required"]) == list(FIELDS)
    first = f"{FIELDS[0]} of {asked[0].task[:40]}"
    assert any(first in each.system for each in provider.asked if each.tool == "submit_request")
    assert [each["fields"] is None for each in written(found, "rich.fixed")] == [False] * len(asked)
    made = experience.measures.reported(found)["summaries_made"]
    assert int(made["rich.fixed"]) == len(asked)


def test_what_a_summary_takes_is_counted_in_its_episode(provider: Provider) -> None:
    found = lived(arms="rich.fixed")
    tokens = sum(each["tokens"] for each in written(found, "rich.fixed"))
    reported = sum(
        len(each.raw) // 4 + len(json.dumps(competent(each).request)) // 4
        for each in provider.asked[1:]
    )
    assert tokens > 0
    assert sum(row.total_tokens for row in rows_of(found)) == pytest.approx(reported, rel=0.02)


@pytest.mark.parametrize(
    "bad",
    [
        Answer(words="I would rather not."),
        Answer({FIELDS[0]: "an overview alone"}),
        Answer({FIELDS[0]: "", FIELDS[1]: ""}),
        Answer(status=400, error="no"),
    ],
    ids=["words", "a field missing", "empty fields", "a refusal of the provider"],
)
def test_a_summary_written_in_vain_leaves_the_card_and_is_asked_for_again_at_once_only_if_faithful(
    provider: Provider, bad: Answer
) -> None:
    provider.script = lambda asked: bad if asked.tool == "keep_summary" else competent(asked)
    found = lived()

    assert all(row.success for row in rows_of(found))
    for arm in RICH.split(","):
        told = written(found, arm)
        assert told
        assert all(each["fields"] is None and each["problem"] for each in told)
    again = {arm: len(written(found, arm)) for arm in ("rich.faithful", "rich.fixed")}
    assert again["rich.fixed"] < again["rich.faithful"]
    assert not any(FIELDS[0] in each.system for each in provider.asked if each.tool == "submit_request")


def test_a_fold_over_the_results_file_is_the_memory_of_the_live_run(provider: Provider) -> None:
    found = lived()
    for arm in RICH.split(","):
        memory = memory_at(found, arm_of(found, arm))
        assert isinstance(memory, ExperienceMemory)
        last = [row for row in rows_of(found) if row.arm == arm][-1]
        assert (memory.store.count, memory.store.bytes) == (last.entries, last.bytes)
        kept = memory.store.cache.kept.values()
        assert any(summary.overview.startswith(FIELDS[0]) for summary in kept)
        assert len(summaries(provider)) >= len(kept)


def test_what_is_read_of_a_memory_later_is_what_the_model_read(provider: Provider) -> None:
    found = lived()
    prompts = [each.system for each in provider.asked if each.tool == "submit_request"]
    for arm in RICH.split(","):
        for episode in range(found.length):
            text = experience.reading.read(found, arm, episode=episode).blocks[arm]
            assert any(text in prompt for prompt in prompts), (arm, episode)
    with pytest.raises(InputError, match=f"episode {found.length}: the run has episodes 0 to"):
        experience.reading.read(found, "rich.fixed", episode=found.length)


def test_a_live_run_that_is_killed_resumes_with_the_summaries_it_has_paid_for(
    provider: Provider, results: Path
) -> None:
    whole = lived()
    expected = provider.calls()
    provider.asked.clear()

    provider.script = lambda asked: Answer(after=60) if asked.number > 12 else competent(asked)
    process = start(SHORT, phase="experience", stream="phase2_v4", arms=RICH)
    until(process, provider, 13)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert logs_of(results, ended=False)

    provider.script = competent
    resumed = lived(resume=True)
    assert rows(resumed) == rows(whole)
    paid = provider.calls()
    lost = sum(paid.values()) - sum(expected.values())
    assert 0 < lost <= 3 * 6  # at most the episode in flight of each arm
    assert logs_of(results, ended=False) == []


def test_after_a_refusal_the_model_reads_what_was_refused_alike(provider: Provider) -> None:
    found = lived(arms="cards.faithful,cards.fixed,ancestral.fixed,skills.fixed,A2")
    refused = [asked for asked in provider.asked if asked.refusal is not None]
    reminded = [asked for asked in refused if "Attempts before:" in json.dumps(asked.body["messages"])]
    assert 0 < len(reminded) < len(refused)
    assert all(row.success for row in rows_of(found))
    for arm in ("skills.fixed", "A2"):
        debug = [e for e in events_of(found) if e.arm == arm and e.kind == "serve" and e.attempt > 0]
        assert not [each for each in debug if each.value["operator"] == "debug"]
