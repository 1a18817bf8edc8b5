"""An arm from outside: a row with a memory class of its own and a clock, replayed and resumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from running import attempts_of, events_of, outcome, run_phase

from crossmem import settings
from crossmem.memory import policies as p
from crossmem.memory.arms import ARMS, Arm
from crossmem.memory.events import EpisodeBegun, Event, Observation
from crossmem.memory.memory import Memory
from crossmem.memory.policies import Action

if TYPE_CHECKING:
    from crossmem.domains.base import Domain, Keying

AGE = 4
"""Episodes after which the memory of these tests lets an entry go."""


class Ageing(Memory):
    """Lets go of what was learned `AGE` episodes ago."""

    def __init__(self, arm: Arm, domain: Domain, keying: Keying) -> None:
        super().__init__(arm, domain, keying)
        self._learned: dict[int, int] = {}

    def observe(self, event: Event) -> list[Action]:
        actions = super().observe(event)
        now = self.store.episode
        if isinstance(event, Observation):
            assert now is not None
            for held in self.store:
                self._learned.setdefault(held.order, now)
        if isinstance(event, EpisodeBegun):
            for held in [each for each in self.store if event.index - self._learned[each.order] > AGE]:
                actions.append(Action("invalidate", "too old", held.entry.table, held.entry.key))
                self.store.drop(held)
        return actions


class AgeingArm(Arm):
    """A row whose memory is of that class."""

    def memory(self, domain: Domain, keying: Keying, seed: str = "") -> Memory:
        del seed
        return Ageing(self, domain, keying)


ROW = AgeingArm("AGE", "ageing", p.admit_cacheable, p.keep_latest, p.invalidate_never, signal="clock")


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.KNOWN, ROW.name, ROW)


@pytest.mark.usefixtures("results")
def test_it_is_given_the_number_of_every_episode_and_lets_entries_age() -> None:
    run = run_phase("phase1", mock=True, arms="AGE,LWG")
    clock = {
        each.episode: [signal.index for signal in each.signals if signal.kind == "clock"]
        for each in attempts_of(run)
        if each.arm == "AGE" and each.attempt == 1
    }
    assert clock == {index: [index] for index in range(24)}
    assert not [s for each in attempts_of(run) if each.arm == "LWG" for s in each.signals]
    aged = [each for each in events_of(run) if each.arm == "AGE" and each.why == "too old"]
    assert aged
    attempts = run.rows.groupby("arm")["attempts"].sum()
    assert attempts["AGE"] > attempts["LWG"]


@pytest.mark.usefixtures("results")
def test_a_run_of_it_that_is_cut_is_resumed_to_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = outcome(run_phase("phase1", mock=True, arms="AGE"))
    observe = Ageing.observe

    def failing(self: Ageing, event: Event) -> list[Action]:
        if isinstance(event, EpisodeBegun) and event.index == 13:
            raise OSError(28, "No space left on device")
        return observe(self, event)

    with monkeypatch.context() as patch:
        patch.setattr(Ageing, "observe", failing)
        with pytest.raises(Exception, match="No space left"):
            run_phase("phase1", mock=True, arms="AGE")
    assert outcome(run_phase("phase1", mock=True, arms="AGE", resume=True)) == whole


def test_it_does_not_change_the_table_of_arms() -> None:
    assert ROW.name not in ARMS
