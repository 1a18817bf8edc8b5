"""A memory folded anew from a journal equals the live one, at every episode it could have ended at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from crossmem import streams
from crossmem.agents.scripted import ScriptedAgent
from crossmem.api import tables_of
from crossmem.api.server import serving
from crossmem.client import ApiClient
from crossmem.memory.arms import ARMS, ORACLE, Arm
from crossmem.memory.memory import Memory
from crossmem.run.episode import refold
from crossmem.run.log import Journal
from crossmem.run.table_files import private_copy
from crossmem.settings import read
from crossmem.stage import make_replay, prompter_for

from .world import assert_consistent, state

if TYPE_CHECKING:
    from pathlib import Path

    from crossmem.domains.base import Keying
    from crossmem.run.records import EpisodeRecord
    from crossmem.streams import Stream

LINES = [*ARMS.values(), ORACLE]


@dataclass
class Lived:
    """A stream replayed against a real server: the journal it left and the state after each episode."""

    stream: Stream
    memory: Memory
    states: list[dict[str, Any]]
    journal: Path

    def fresh(self) -> Memory:
        return Memory(self.memory.arm, self.memory.domain, self.memory.keying)

    def records(self) -> list[EpisodeRecord]:
        with Journal(self.journal, {}) as journal:
            return journal.records


def live(folder: Path, arm: Arm, keying: Keying, phase: str = "phase1") -> Lived:
    parameters = read(phase, {"mock": True, "model": "haiku", "keying": keying})
    stream = streams.load(parameters.stream_name)
    world = private_copy(tables_of(stream.domain), folder / "tables")
    with (
        serving(stream.domain, world.layout.folder) as server,
        ApiClient(server.url, server.admin_token) as api,
        Journal(folder / "lived.journal", {}) as journal,
    ):
        agent = ScriptedAgent(parameters.model, prompter_for(parameters, stream, api))
        replay = make_replay(parameters, stream, arm, agent, (api, world))
        assert isinstance(replay.memory, Memory)
        lived = Lived(stream, replay.memory, [state(replay.memory.store)], folder / "lived.journal")
        for index in range(len(stream.episodes)):
            journal.append(replay.episode(index))
            lived.states.append(state(lived.memory.store))
    return lived


@pytest.mark.parametrize("keying", ["request", "task"])
@pytest.mark.parametrize("arm", LINES, ids=lambda arm: arm.name)
def test_a_fold_over_the_journal_is_the_live_state_wherever_it_is_cut(
    tmp_path: Path, arm: Arm, keying: Keying
) -> None:
    lived = live(tmp_path, arm, keying)
    records = lived.records()

    for cut, then in enumerate(lived.states):
        memory = lived.fresh()
        for record in records[:cut]:
            refold(memory, lived.stream.episodes[record.index].task, record.attempts)
        assert state(memory.store) == then
        assert_consistent(memory.store)


@pytest.fixture(scope="module", params=LINES, ids=lambda arm: arm.name)
def four_drifts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    return live(tmp_path_factory.mktemp("lived"), request.param, "task", "phase3")


def test_a_journal_of_four_drifts_folds_to_the_live_state_after_each_episode(
    four_drifts: Lived,
) -> None:
    lived = four_drifts
    memory = lived.fresh()
    folded = [state(memory.store)]
    for record in lived.records():
        refold(memory, lived.stream.episodes[record.index].task, record.attempts)
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


def test_an_arm_is_told_only_what_defines_it(four_drifts: Lived) -> None:
    told = {
        name
        for record in four_drifts.records()
        for a in record.attempts
        for each in a.told
        for name in each
    }
    arm = four_drifts.memory.arm

    assert told == ({arm.signal} if arm.signal else set())
