"""What a tight byte budget leaves behind: which episodes are set against which."""

from __future__ import annotations

import pytest

from crossmem import experience as ex
from crossmem.analysis.metrics import value
from crossmem.harness.results import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The arms that the window is about, on the default stream."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSMEM_RESULTS", str(tmp_path_factory.mktemp("results")))
        return ex.run(mock=True, model="haiku", arms="A2,A3,A3C")


def with_budget(run: Run, *steps: tuple[int, int | None]) -> Run:
    """The run as if its tight budget had been elsewhere."""
    budget = [{"before": before, "bytes": limit} for before, limit in steps]
    config = {**run.config, "budget": budget}
    return Run(run.path, config, run.episodes)


@pytest.mark.parametrize(
    ("steps", "around"),
    [
        ([(39, 397), (43, None)], 4),
        ([(0, None), (10, 400), (20, None)], 10),  # begins without one
        ([(3, 400), (9, None)], 3),  # no more before it
        ([(40, 400), (55, None)], 5),  # no more after it
    ],
)
def test_hysteresis_sets_as_many_episodes_before_the_window_against_those_after(
    run: Run, steps: list[tuple[int, int | None]], around: int
) -> None:
    moved = with_budget(run, *steps)
    table = ex.measures.hysteresis(moved)
    assert set(table["episodes"]) == {around}
    begin, end = (before for before, limit in steps[-2:])
    first = run.rows[run.rows["arm"] == "A2"].set_index("index")["first_try"]
    assert value(table, "A2", "before") == first.loc[begin - around : begin - 1].mean()
    assert value(table, "A2", "after") == first.loc[end : end + around - 1].mean()
    assert f"in the {around} episodes after the tight byte budget" in str(ex.findings.finding(moved))


@pytest.mark.parametrize("steps", [[], [(0, 400)], [(0, 400), (9, None)], [(9, 400)]])
def test_without_episodes_on_both_sides_of_a_window_there_is_no_hysteresis(
    run: Run, steps: list[tuple[int, int | None]]
) -> None:
    moved = with_budget(run, *steps)
    assert ex.measures.hysteresis(moved).empty
    assert ex.hypotheses.answered(moved).loc["H7", "answer"] == "not testable here"
    assert "tight byte budget" not in str(ex.findings.finding(moved))
