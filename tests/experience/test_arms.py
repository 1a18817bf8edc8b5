"""Experience arms on real streams: the same fold, the same judge, and what governance takes away."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from running import outcome, run_phase, settings_of

from crossmem import streams
from crossmem.agents.prompts import Prompter
from crossmem.domains import domain
from crossmem.errors import CrossmemError, InputError
from crossmem.experience.arms import EXPERIENCE_ARMS
from crossmem.experience.memory import ExperienceMemory
from crossmem.harness.episode import Replay, refold
from crossmem.memory.entry import Rendered

from .world import fresh, live

if TYPE_CHECKING:
    from pathlib import Path

    from crossmem.harness.records import EpisodeRecord

GOVERNED = [name for name in EXPERIENCE_ARMS if name.endswith(("A2", "A2D"))]
LESSONS = [name for name in GOVERNED if not name.startswith("rich.faithful")]


@pytest.mark.parametrize(
    "name", ["simple.fixed", "cards.faithful", "rich.fixed.A2D", "skills.fixed.A2", "A3C"]
)
def test_a_fold_over_the_records_is_the_live_memory_wherever_it_is_cut(name: str) -> None:
    lived = live(name, "phase3_m1")
    memory = fresh(name, lived.stream)
    for record in lived.records:
        index = record.row.index
        task = lived.stream.episodes[index].task
        signals = [each for attempt in record.attempts for each in attempt.signals]
        assert {each.kind for each in signals} <= {"budget", "diffs"}
        before = fresh(name, lived.stream)
        for each in lived.records[:index]:
            refold(before, lived.stream.episodes[each.row.index].task, each)
        if not signals:  # what is recalled after a cut is what was recalled live
            assert list(before.recall(task)) == record.attempts[0].recalled
        refold(memory, task, record)
        assert (memory.store.count, memory.store.bytes) == (record.row.entries, record.row.bytes)


def test_recall_changes_nothing() -> None:
    lived = live("rich.faithful")
    assert isinstance(lived.memory, ExperienceMemory)
    store = lived.memory.store
    sizes = store.count, store.bytes, store.cache.calls
    task = lived.stream.episodes[0].task
    first = lived.memory.recall(task)
    assert first == lived.memory.recall(task)
    assert first.text == lived.memory.recall(task).text
    assert (store.count, store.bytes, store.cache.calls) == sizes


@pytest.mark.parametrize("name", LESSONS)
def test_a_governed_memory_serves_no_outdated_value_after_a_stamp_exposed_it(name: str) -> None:
    lived = live(name)
    exposed: dict[str, str] = {}
    for record in lived.records:
        for each in record.attempts[0].recalled:
            if each.table in exposed:
                assert each.version == exposed[each.table], (record.row.index, each)
        exposed |= stamps(record)


@pytest.mark.parametrize("name", LESSONS)
def test_no_word_of_a_governed_memory_names_what_its_ledger_has_dropped(name: str) -> None:
    lived = live(name, "phase3_m1")
    memory = fresh(name, lived.stream)
    assert isinstance(memory, ExperienceMemory)
    dropped = 0
    for record in lived.records:
        task = lived.stream.episodes[record.row.index].task
        assert not leaked(memory, memory.recall(task).text), record.row.index
        for attempt in record.attempts:
            refold(memory, task, record.model_copy(update={"attempts": [attempt]}))
            if attempt is not record.attempts[-1]:
                assert not leaked(memory, memory.remind(task)), record.row.index
        dropped += len(banned(memory))
    assert dropped


def banned(memory: ExperienceMemory) -> set[str]:
    """The values learned that the ledger holds no more."""
    lessons = {lesson for node in memory.store.journal.nodes for lesson in node.lessons}
    strings = {each for each in lessons if isinstance(each.value, str)}
    served = {str(each.value) for each in strings if memory._current(each)}
    return {str(each.value) for each in strings} - served


def leaked(memory: ExperienceMemory, text: str) -> list[tuple[str, str]]:
    """What is dropped and named all the same, but as refused."""
    lines = [line for line in text.splitlines() if "refused for" not in line]
    return [(value, line) for value in banned(memory) for line in lines if value in line]


def stamps(record: EpisodeRecord) -> dict[str, str]:
    return {
        table: stamp
        for attempt in record.attempts
        for table, stamp in (attempt.response or {}).get("table_versions", {}).items()
    }


def test_a_summary_cached_by_id_serves_governed_cards_what_they_dropped() -> None:
    faithful = live("rich.faithful.A2", "phase3_m1")
    fixed = live("rich.fixed.A2", "phase3_m1")
    assert faithful.stale() > fixed.stale()


def test_fixed_and_governed_skills_do_as_the_core_arms() -> None:
    for name, core in (("skills.fixed.A2", "A2"), ("skills.fixed.A2D", "A2D")):
        ours = live(name, "phase3_m1")
        theirs = live(core, "phase3_m1")
        assert (ours.attempts(), ours.stale()) == (theirs.attempts(), theirs.stale())


def test_a_faithful_skill_is_never_replaced_and_a_fixed_one_is() -> None:
    faithful = live("skills.faithful", "phase3_m1")
    fixed = live("skills.fixed", "phase3_m1")
    assert faithful.stale() == 15  # as A1F, which keeps the first value for good
    assert fixed.stale() == 5  # as LWG, which replaces it


def test_a_budget_that_forgives_costs_less_than_one_that_evicts() -> None:
    forgiving = live("A3C", "phase3_m1")
    evicting = live("A3", "phase3_m1")
    unlimited = live("A2", "phase3_m1")
    assert unlimited.attempts() <= forgiving.attempts() < evicting.attempts()


# -- the seam --------------------------------------------------------------------------------

PHASE = """
import sys
import crossmem as cm

run = cm.phase3(mock=True, model="haiku", arms="A0,A2")
cm.findings.finding(run), cm.figures.strip(run), cm.metrics.summary(run)
sys.exit(any(name.startswith("crossmem.experience") for name in sys.modules))
"""


@pytest.mark.usefixtures("results")
def test_a_phase_imports_nothing_of_this_room() -> None:
    done = subprocess.run([sys.executable, "-c", PHASE], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_component_stands_for_its_arms_in_the_variants_and_governances_asked_for() -> None:
    given = {"mock": True, "arms": "A0,cards,A3C", "variant": "fixed", "governed": "none,A2"}
    chosen = [arm.name for arm in settings_of("experience", **given).arms_to_run()]
    assert chosen == ["A0", "cards.fixed", "cards.fixed.A2", "A3C"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arms": "A0,card"}, "unknown arm 'card'; did you mean 'cards'"),
        ({"arms": "cards,cards.fixed"}, "repeated arm"),
        ({"variant": "fix"}, "unknown variant 'fix'; did you mean 'fixed'"),
        ({"governed": "A1F"}, "unknown governance 'A1F'"),
        ({"keying": "request"}, "keying"),
    ],
)
def test_a_bad_parameter_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        settings_of("experience", mock=True, **given).arms_to_run()


def test_a_run_killed_halfway_ends_with_the_rows_of_an_undisturbed_one(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {
        "mock": True,
        "model": "haiku",
        "stream": "phase2_v4",
        "arms": "cards.faithful,rich.fixed.A2D,A3C",
    }
    whole = run_phase("experience", **given)
    undisturbed = Replay.episode

    def killed(self: Replay, index: int) -> EpisodeRecord:
        if index == 13:
            raise CrossmemError("killed")
        return undisturbed(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(Replay, "episode", killed)
        with pytest.raises(CrossmemError, match="killed"):
            run_phase("experience", **given)
    resumed = run_phase("experience", **given, resume=True)
    assert outcome(resumed) == outcome(whole)


def test_a_live_agent_reads_the_rendered_context_and_the_scripted_one_pays_for_it() -> None:
    lived = live("cards.fixed")
    recalled = lived.memory.recall(lived.stream.episodes[0].task)
    assert isinstance(recalled, Rendered)
    prompter = Prompter(domain("recipe"), {}, "amendment")
    block = prompter.memory_block(recalled)
    assert recalled.text in block
    assert recalled.text.startswith("Attempts:")
    assert prompter.memory_block(Rendered((), "")) == ""
    assert "Kembrovast" not in prompter.memory_block(())


def test_the_combined_stream_is_the_ladder_with_a_combined_task_after_every_four() -> None:
    ladder, mixed = streams.load("phase3_m1"), streams.load("experience_m1")
    families = [mixed.family(episode.task) for episode in mixed.episodes]
    assert len(families) == 60
    assert [n for n, family in enumerate(families) if family == "combined"] == list(range(4, 60, 5))
    kept = [episode for episode in mixed.episodes if mixed.family(episode.task) != "combined"]
    assert [(e.task, e.snapshot) for e in kept] == [(e.task, e.snapshot) for e in ladder.episodes]


def test_a_combined_task_breaks_several_rules_at_once_and_is_crossed_from_what_is_known() -> None:
    cold = live("A0", "experience_m1")
    for record in cold.records[4::5]:
        body = record.attempts[0].response or {}
        fixes = body["recovery_feedback"]["suggestions"]
        assert len({fix["action"] for fix in fixes}) == len(fixes) >= 2
    lived = live("cards.fixed", "experience_m1")
    served = [
        event.value for record in lived.records for event in record.events if event.kind == "serve"
    ]
    assert {each["operator"] for each in served} == {"draft", "improve", "crossover", "debug"}
    assert all(record.row.success for record in lived.records)
