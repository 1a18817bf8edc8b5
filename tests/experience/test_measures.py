"""What the experience report says, on runs small enough to count by hand, and the notebook's cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from test_phase_notebooks import walk

from crossmem import experience as ex
from crossmem.analysis import value
from crossmem.experience.hypotheses import HYPOTHESES
from crossmem.records import Attempt, Event
from crossmem.results import Run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The default arms on the default stream, replayed once for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSMEM_RESULTS", str(tmp_path_factory.mktemp("results")))
        return ex.run(mock=True, model="haiku")


# -- one figure at a time -----------------------------------------------------------------------------


def attempt(arm: str, episode: int, recalled: list[tuple[str, str]], live: str) -> Attempt:
    """One accepted attempt that recalled values of one key, each with its version."""
    return Attempt(
        arm=arm,
        replicate=0,
        episode=episode,
        attempt=1,
        request={},
        status=200,
        response={"table_versions": {"T": live}},
        recalled=[
            {"key": ["k"], "table": "T", "row": None, "value": each, "version": version}
            for each, version in recalled
        ],
        carried=[],
    )


def of(run: Run, attempts: list[Attempt], events: list[Event] | None = None) -> Run:
    """A run that holds the `attempts` in place of its own."""
    update = {"attempts": attempts, "events": events or []}
    return Run(run.path, run.results.model_copy(update=update))


def test_stale_evidence_is_the_share_of_recalled_entries_of_another_version(run: Run) -> None:
    made = of(
        run,
        [
            attempt("A1", 0, [("x", "1"), ("y", "2")], live="2"),
            attempt("A1", 1, [("y", "2")], live="2"),
            attempt("A2", 0, [], live="2"),
        ],
    )
    table = ex.measures.evidence(made)
    assert value(table, "A1", "stale_evidence") == pytest.approx(1 / 3)
    assert value(table, "A1", "contradictions") == pytest.approx(1 / 2)
    assert table.loc["A2"].isna().all()


def test_an_entry_whose_table_was_not_consulted_is_of_unknown_currency(run: Run) -> None:
    made = attempt("A1", 0, [("x", "1")], live="2")
    unknown = made.model_copy(update={"response": {"table_versions": {"U": "9"}}})
    assert ex.measures.evidence(of(run, [unknown])).loc["A1", "stale_evidence"] != 1


# -- the default run ----------------------------------------------------------------------------


def test_every_episode_of_every_arm_succeeds(run: Run) -> None:
    assert run.rows["success"].all()
    assert run.length == 60
    assert len(run.arms) == 7 + 4 * 2 * 3 + 1


def test_governance_takes_away_the_stale_attempts_of_all_but_summaries_cached_by_id(run: Run) -> None:
    stale = ex.measures.summary(run)["stale_attempts"]
    for component in ("simple", "cards", "rich"):
        for variant in ("faithful", "fixed"):
            governed = stale[f"{component}.{variant}.A2"]
            assert governed < stale[f"{component}.{variant}"]
            assert bool(governed > stale["A2"]) is (f"{component}.{variant}" == "rich.faithful")


def test_only_faithful_memories_are_poisoned(run: Run) -> None:
    poisoned = ex.measures.summary(run)["poisoned_attempts"]
    assert set(poisoned[poisoned > 0].index) == {
        "A1",
        *(
            f"{component}.faithful{governed}"
            for component in ("simple", "cards", "rich", "skills")
            for governed in ("", ".A2", ".A2D")
        ),
    }


def test_faithful_stores_write_a_hundred_times_what_fixed_ones_write(run: Run) -> None:
    written = ex.measures.reported(run)["bytes_written"]
    assert written["cards.faithful"] > 100 * written["cards.fixed"]


def test_the_budget_of_tokens_is_kept_and_what_is_cut_is_counted(run: Run) -> None:
    served = [
        event.value
        for event in run.results.events
        if event.kind == "serve" and event.arm.startswith("simple.fixed")
    ]
    assert max(each["tokens"] for each in served) <= 800
    assert any(each["cut"] for each in served)


def test_a_budget_that_forgives_leaves_nothing_behind_and_one_that_evicts_does(run: Run) -> None:
    table = ex.measures.hysteresis(run)
    assert value(table, "A3C", "hysteresis") == value(table, "A2", "hysteresis")
    assert value(table, "A3", "hysteresis") < value(table, "A2", "hysteresis")


def test_every_hypothesis_is_answered_with_figures(run: Run) -> None:
    answers = ex.hypotheses.answered(run)
    assert list(answers.index) == list(ex.hypotheses.stated().index)
    assert answers["figures"].str.len().min() > 10
    assert answers.loc[["H2", "H4", "H5"], "answer"].eq("not testable here").all()
    assert answers.loc[["H6", "H7"], "answer"].eq("supported").all()


def test_a_hypothesis_whose_arms_are_missing_says_which(results: Path) -> None:
    small = ex.run(mock=True, model="haiku", arms="A0,cards.fixed", stream="phase2_v4")
    answers = ex.hypotheses.answered(small)
    assert answers["answer"].eq("not testable here").all()
    needy = [each.name for each in HYPOTHESES if each.needs]
    assert answers.loc[needy, "figures"].str.startswith("the run lacks ").all()


def test_the_figure_names_every_arm(run: Run) -> None:
    alt = ex.pictures.plane(run).alt
    assert all(f"{arm} " in alt for arm in run.arms)


# -- the notebook ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"arms": "A0,A3,A3C,cards", "variant": "fixed", "governed": "none"},
        {"arms": "rich,skills", "stream": "acme_m1", "governed": "A2D"},
        {"arms": "A1", "stream": "rollback"},
    ],
    ids=["few arms", "billing", "one arm"],
)
@pytest.mark.usefixtures("results")
def test_every_cell_shows_something(given: dict[str, Any]) -> None:
    for cell in walk("experience", mock=True, model="haiku", **given):
        assert cell.html or cell.alt or cell.code.startswith("print("), cell.code
        assert "nan" not in cell.html.lower().split()
