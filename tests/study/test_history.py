"""A memory folded from a finished run's log is the one that the run had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from running import attempts_of, rows_of

from crossmem import streams
from crossmem.errors import InputError
from crossmem.harness.history import memory_at, memory_before_prompt

if TYPE_CHECKING:
    from .conftest import Scripted


@pytest.mark.parametrize("phase", ["phase1", "phase3"])
def test_at_every_episode_it_has_the_size_that_the_row_says(scripted: Scripted, phase: str) -> None:
    run = scripted(phase)
    for row in rows_of(run)[::7]:
        memory = memory_at(run, row.arm, row.index + 1)
        assert (memory.store.count, memory.store.bytes) == (row.entries, row.bytes), row


def test_it_recalls_what_was_recalled_then(scripted: Scripted) -> None:
    run = scripted("phase3")
    stream = streams.load("phase3_m1")
    given = set()
    for attempt in attempts_of(run):
        if attempt.attempt == 1 and (attempt.signals or attempt.episode % 5 == 0):
            memory = memory_before_prompt(run, attempt.arm, attempt.episode)
            found = memory.recall(stream.episodes[attempt.episode].task)
            assert list(found) == attempt.recalled, (attempt.arm, attempt.episode)
            given |= {attempt.arm} if attempt.signals else set()
    assert given == {"A2D", "A2V", "A3", "oracle", "bound"}
    with pytest.raises(InputError, match=f"episode {run.length}: the run has"):
        memory_before_prompt(run, "A2", run.length)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arm": "A9"}, "unknown arm 'A9'"),
        ({"arm": "A2", "episode": 49}, "episode 49: the run has episodes 0 to 47"),
        ({"arm": "A2", "episode": -1}, "episode -1"),
        ({"arm": "A2", "replicate": 1}, "replicate 1: the run has 1"),
    ],
)
def test_what_the_run_lacks_is_named(scripted: Scripted, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        memory_at(scripted("phase3"), **given)


def test_another_version_of_the_stream_is_refused(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = scripted("phase3")
    monkeypatch.setitem(run.config, "stream_sha256", "0" * 64)
    with pytest.raises(InputError, match="another version of the stream phase3_m1"):
        memory_at(run, "A2")
