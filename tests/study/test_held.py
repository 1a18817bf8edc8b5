"""A memory folded from a finished run's results file is the one that the run had."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from running import attempts_of, rows_of

from crossmem.errors import InputError
from crossmem.run import history, results

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Scripted

ALL = "A0,A1,A1N,LW,LWG,A2,A2D,A2C,A2V,A3"


@pytest.mark.parametrize("phase", ["phase1", "phase3"])
def test_at_every_episode_it_has_the_size_that_the_row_says(scripted: Scripted, phase: str) -> None:
    arms = ALL if phase == "phase3" else ALL.replace("A2D,", "")
    run = scripted(phase, arms=arms)
    for arm in run.arms:
        for row in [each for each in rows_of(run) if each.arm == arm][::7]:
            memory = history.memory(run, arm, row.index + 1)
            assert (memory.store.count, memory.store.bytes) == (row.entries, row.bytes), (
                arm,
                row.index,
            )


def test_it_recalls_what_was_recalled_then(scripted: Scripted) -> None:
    from crossmem import streams

    run = scripted("phase3", arms=ALL)
    stream = streams.load("phase3_m1")
    told = set()
    for attempt in attempts_of(run):
        if attempt.attempt == 1 and (attempt.told or attempt.episode % 5 == 0):
            memory = history.asked(run, attempt.arm, attempt.episode)
            found = memory.recall(stream.episodes[attempt.episode].task)
            values = [(each.value, each.version) for each in found]
            then = [(each["value"], each["version"]) for each in attempt.recalled]
            assert values == then, (attempt.arm, attempt.episode)
            told |= {attempt.arm} if attempt.told else set()
    assert told == {"A2D", "A2V", "A3", "oracle"}
    with pytest.raises(InputError, match=f"episode {run.length}: the run has"):
        history.asked(run, "A2", run.length)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arm": "A9"}, "unknown arm 'A9'"),
        ({"arm": "A2", "before": 49}, "episode 49: the run has episodes 0 to 47"),
        ({"arm": "A2", "before": -1}, "episode -1"),
        ({"arm": "A2", "replicate": 1}, "replicate 1: the run has 1"),
    ],
)
def test_what_the_run_lacks_is_named(scripted: Scripted, given: dict[str, int], message: str) -> None:
    run = scripted("phase3", arms="A0,A2,A2D")
    with pytest.raises(InputError, match=message):
        history.memory(run, **given)  # type: ignore[arg-type]


def test_a_file_of_an_earlier_version_is_not_folded_into_something_else(
    scripted: Scripted, tmp_path: Path
) -> None:
    run = scripted("phase3", arms="A0,A2,A2D")
    content = json.loads(run.path.read_text(encoding="utf-8"))
    for attempt in content["attempts"]:
        del attempt["told"]
    (tmp_path / "old.json").write_text(json.dumps(content), encoding="utf-8")
    old = results.load(tmp_path / "old.json")
    assert history.memory(old, "A2").store.count
    with pytest.raises(InputError, match="does not hold what A2D was told"):
        history.memory(old, "A2D")


def test_another_version_of_the_stream_is_refused(scripted: Scripted, tmp_path: Path) -> None:
    run = scripted("phase3", arms="A0,A2,A2D")
    content = json.loads(run.path.read_text(encoding="utf-8"))
    content["config"]["stream_sha256"] = "0" * 64
    (tmp_path / "other.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match="another version of the stream phase3_m1"):
        history.memory(results.load(tmp_path / "other.json"), "A2")
