"""No ranking stands over episodes that were not measured or not solved, and the cause comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from crossmem.analysis import findings
from crossmem.errors import CrossmemError
from crossmem.harness.results import Run

from .rows import only

if TYPE_CHECKING:
    from collections.abc import Callable

    from crossmem.harness.records import Row

    from .conftest import Scripted

RANKING = ("fewest attempts", "fewer than", "more than", "saves over", "within one attempt", "bought")


def failing(run: Run, which: Callable[[Row], bool], **how: Any) -> Run:
    """The run with some of its episodes failed."""
    failed = {"success": False, "first_try": False, **how}
    return Run(
        run.path,
        run.config,
        [
            each.model_copy(update={"row": each.row.model_copy(update=failed)})
            if which(each.row)
            else each
            for each in run.episodes
        ],
    )


@pytest.fixture
def run(scripted: Scripted) -> Run:
    return only(scripted("phase2", pattern="v2"), "A0,A1,A2,A2D,LWG")


OUTSIDE = {
    "provider": ("the model provider's 13", "overloaded for 300 s"),
    "api": ("the API's 13", "refused with 503: Stripe cannot be reached"),
}


@pytest.mark.parametrize("whose", OUTSIDE)
def test_episodes_without_a_measurement_come_first_and_nothing_is_ranked(whose: str, run: Run) -> None:
    counted, reason = OUTSIDE[whose]
    of = failing(run, lambda r: r.arm == "A2" and r.index < 13, failed_by=whose, error=reason)
    first, *rest = findings.finding(of).sentences
    assert first == (
        "107 of 120 episodes succeeded, 13 have no measurement (A2 13): attempts rank no arm here. "
        f"Failures: {counted}; most often: {reason} (13)."
    )
    assert [text for text in rest for word in RANKING if word in text] == []
    assert first in findings.done(of).splitlines()


def test_a_single_episode_without_a_measurement_is_enough(run: Run) -> None:
    of = failing(run, lambda r: (r.arm, r.index) == ("A0", 3), failed_by="provider", error="gone")
    assert "1 have no measurement (A0 1)" in findings.finding(of).sentences[0]


@pytest.mark.parametrize(("solved", "ranked"), [(12, True), (11, False), (0, False)])
def test_an_arm_that_solved_fewer_than_half_is_no_measure(
    solved: int, run: Run, *, ranked: bool
) -> None:
    reason = "refused with 422: brand"
    of = failing(run, lambda r: r.arm == "A2" and r.index >= solved, failed_by="agent", error=reason)
    first = findings.finding(of).sentences[0]
    assert ("needed the fewest attempts" in first) is ranked
    assert ("attempts rank no arm here" in first) is not ranked
    if not ranked:
        assert "those of A2" in first
        assert f"the agent's {24 - solved}; most often: {reason} ({24 - solved})." in first


@pytest.mark.parametrize("whose", OUTSIDE)
def test_a_run_in_which_nothing_was_measured_ends_its_report_with_an_error(
    whose: str, run: Run
) -> None:
    reason = OUTSIDE[whose][1]
    of = failing(run, lambda _: True, failed_by=whose, error=reason)
    with pytest.raises(
        CrossmemError, match=r"^nothing was measured: all 120 episodes failed"
    ) as caught:
        findings.done(of)
    assert reason in str(caught.value)
    assert findings.finding(of).sentences[0].startswith("None of 120 episodes succeeded, 120 have no")


def test_a_run_in_which_the_agent_failed_throughout_was_measured(run: Run) -> None:
    of = failing(run, lambda _: True, failed_by="agent", error="no usable request")
    assert "None of 120 episodes succeeded" in findings.done(of)
