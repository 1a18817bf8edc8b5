"""A memory folded anew from a log equals the live one, at every episode it could have ended at."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from running import settings_of

from crossmem import streams
from crossmem.agents.scripted import ScriptedAgent
from crossmem.harness.episode import refold
from crossmem.harness.log import RunLog, read_log
from crossmem.harness.runner import prompter_for, replay_of
from crossmem.memory.arms import ARMS, ORACLE, Arm
from crossmem.memory.memory import Memory
from crossmem.upstream.embedded import EmbeddedApi

from .world import assert_consistent, state

if TYPE_CHECKING:
    from pathlib import Path

    from crossmem.domains.base import Keying
    from crossmem.harness.records import EpisodeRecord
    from crossmem.streams import Stream

LINES = [*ARMS.values(), ORACLE]


@dataclass
class Lived:
    """A stream replayed against a real server: the log it left and the state after each episode."""

    stream: Stream
    memory: Memory
    states: list[dict[str, Any]]
    log: Path

    def fresh(self) -> Memory:
        memory = self.memory.arm.memory(self.memory.domain, self.memory.keying)
        assert isinstance(memory, Memory)
        return memory

    def records(self) -> list[EpisodeRecord]:
        return read_log(self.log).episodes


def live(folder: Path, arm: Arm, keying: Keying, phase: str = "phase1") -> Lived:
    settings = settings_of(phase, mock=True, model="haiku", keying=keying)
    stream = streams.load(settings.stream_name)
    with (
        EmbeddedApi(stream.domain).serve(folder / "tables") as over,
        closing(RunLog.create(folder, "lived", {})) as log,
    ):
        agent = ScriptedAgent(settings.model, prompter_for(settings, stream, over[0]))
        replay = replay_of(settings, stream, arm, agent, over)
        assert isinstance(replay.memory, Memory)
        lived = Lived(stream, replay.memory, [state(replay.memory.store)], log.path)
        for index in range(len(stream.episodes)):
            log.append(replay.episode(index))
            lived.states.append(state(lived.memory.store))
    return lived


@pytest.mark.parametrize("keying", ["request", "task"])
@pytest.mark.parametrize("arm", LINES, ids=lambda arm: arm.name)
def test_a_fold_over_the_log_is_the_live_state_wherever_it_is_cut(
    tmp_path: Path, arm: Arm, keying: Keying
) -> None:
    lived = live(tmp_path, arm, keying)
    records = lived.records()

    for cut, then in enumerate(lived.states):
        memory = lived.fresh()
        for record in records[:cut]:
            refold(memory, lived.stream.episodes[record.row.index].task, record)
        assert state(memory.store) == then
        assert_consistent(memory.store)


@pytest.fixture(scope="module", params=LINES, ids=lambda arm: arm.name)
def four_drifts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    return live(tmp_path_factory.mktemp("lived"), request.param, "task", "phase3")


def test_a_log_of_four_drifts_folds_to_the_live_state_after_each_episode(
    four_drifts: Lived,
) -> None:
    lived = four_drifts
    memory = lived.fresh()
    folded = [state(memory.store)]
    for record in lived.records():
        refold(memory, lived.stream.episodes[record.row.index].task, record)
        folded.append(state(memory.store))

    assert folded == lived.states


def test_the_states_compared_differ_from_episode_to_episode(tmp_path: Path) -> None:
    """Else the tests above would compare nothing."""
    lived = live(tmp_path, ARMS["A3"], "request")

    assert len({str(each) for each in lived.states}) > len(lived.states) / 2
    assert {each["budget"] for each in lived.states} == {
        None,
        *(step.bytes for step in lived.stream.budget),
    }


def test_an_arm_is_given_only_the_signal_that_defines_it(four_drifts: Lived) -> None:
    given = {
        signal.kind
        for record in four_drifts.records()
        for attempt in record.attempts
        for signal in attempt.signals
    }
    arm = four_drifts.memory.arm
    assert given == ({arm.signal} if arm.signal else set())
