"""What a scripted run says before it starts, and what its notice says after."""

from __future__ import annotations

import pytest
from running import run_phase

from crossmem.analysis.notices import notice

SAME = "The scripted profiles differ under the hint style append alone"


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(
    ("model", "style", "said"),
    [
        ("sonnet", "amendment", True),
        ("claude-sonnet-4-6", "amendment", True),
        ("sonnet", "append", False),
        ("haiku", "amendment", False),
    ],
)
def test_a_profile_that_changes_nothing_says_so_first_and_in_the_notice(
    model: str, style: str, capsys: pytest.CaptureFixture[str], *, said: bool
) -> None:
    run = run_phase("phase1", mock=True, arms="A0", model=model, hint_style=style)
    told = capsys.readouterr().err
    assert (SAME in told) is said
    assert not said or told.index(SAME) < told.index("episode/s")
    assert (SAME in str(notice(run))) is said


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize(("replicates", "said"), [(1, False), (2, True)])
def test_replicates_that_vary_nothing_are_said_to_before_they_run(
    replicates: int, capsys: pytest.CaptureFixture[str], *, said: bool
) -> None:
    run_phase("phase1", mock=True, arms="A0", replicates=replicates)
    told = capsys.readouterr().err
    sentence = "the scripted agent is deterministic: 2 replicates give equal rows"
    assert (sentence in told) is said
    assert not said or told.index(sentence) < told.index("episode/s")
