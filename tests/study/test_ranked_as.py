"""Whether one phase ranks the arms as another does is answered from their results files."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
from running import run_phase

from crossmem.analysis.ranking import ranked_as

from .rows import totals

ARMS = "A0,A1F,A1,A2,A2D,LWG"


@pytest.mark.usefixtures("results")
def test_the_answer_is_counted_from_both_runs() -> None:
    acme = run_phase("acme", mock=True, arms=ARMS)
    assert "is open: no results file of phase3" in str(ranked_as(acme, "phase3"))
    run_phase("phase3", mock=True, arms=ARMS, keying="request")
    assert "is open" in str(ranked_as(acme, "phase3")), "of another keying"
    phase3 = run_phase("phase3", mock=True, arms=ARMS)
    ours, theirs = totals(acme), totals(phase3)
    apart = [
        (a, b)
        for a, b in combinations(ARMS.split(","), 2)
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


def test_a_damaged_file_is_passed_over(results: Path) -> None:
    acme = run_phase("acme", mock=True, arms="A0,A2")
    phase3 = run_phase("phase3", mock=True, arms="A0,A2")
    lines = phase3.path.read_text(encoding="utf-8").splitlines(keepends=True)
    phase3.path.write_text("".join([lines[0], *lines[5:]]).replace('"attempts":1', '"attempts":9'))
    assert results.exists()
    assert "is open" in str(ranked_as(acme, "phase3"))
