"""Whether one phase ranks the arms as another does is answered from their results files."""

from __future__ import annotations

import re
import shutil
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from crossmem.analysis.ranking import ranked_as
from crossmem.memory.arms import ARMS

from .rows import totals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from crossmem.harness.results import Run

    from .conftest import Scripted


@pytest.fixture
def put(results: Path) -> Callable[[Run], None]:
    """Put the log of a run into the results folder of this test."""
    results.mkdir()

    def copied(run: Run) -> None:
        shutil.copy(run.path, results)

    return copied


def test_the_answer_is_counted_from_both_runs(put: Callable[[Run], None], scripted: Scripted) -> None:
    acme = scripted("acme", pattern="m1")
    assert "is open: no results file of phase3" in str(ranked_as(acme, "phase3"))
    put(scripted("phase3", keying="request"))
    assert "is open" in str(ranked_as(acme, "phase3")), "of another keying"
    phase3 = scripted("phase3", keying="task")
    put(phase3)
    ours, theirs = totals(acme), totals(phase3)
    apart = [
        (a, b)
        for a, b in combinations(ARMS, 2)
        if min(abs(ours[a] - ours[b]), abs(theirs[a] - theirs[b])) > 1
    ]
    turned = [(a, b) for a, b in apart if (ours[a] - ours[b]) * (theirs[a] - theirs[b]) < 0]
    said = str(ranked_as(acme, "phase3"))
    assert phase3.path.name in said
    assert turned, "in these worlds the first-kept baseline changes its place"
    assert f"of {len(apart)} pairs told apart {len(turned)} turned round" in said
    for better, worse in re.findall(r"(\w+) needs fewer attempts than (\w+)", said):
        assert ours[better] < ours[worse]
        assert theirs[better] > theirs[worse]
    itself = str(ranked_as(phase3, "phase3"))
    assert "The arms rank as in phase3" in itself


def test_a_damaged_file_is_passed_over(
    results: Path, put: Callable[[Run], None], scripted: Scripted
) -> None:
    put(scripted("phase3", keying="task"))
    (copy,) = results.iterdir()
    copy.write_text(copy.read_text(encoding="utf-8").replace('"attempts":1', '"attempts":9', 1))
    assert "is open" in str(ranked_as(scripted("acme", pattern="m1"), "phase3"))
