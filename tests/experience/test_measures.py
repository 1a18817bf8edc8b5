"""What the experience report says, on runs small enough to count by hand, and the notebook's cells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from running import attempts_of, events_of, rows_of
from test_phase_notebooks import walk

from crossmem import experience as ex
from crossmem.analysis import metrics, stats
from crossmem.analysis.display import Prose
from crossmem.analysis.metrics import value
from crossmem.errors import InputError
from crossmem.experience.arms import EXPERIENCE_ARMS
from crossmem.experience.hypotheses import HYPOTHESES
from crossmem.harness.records import Attempt, EpisodeRecord
from crossmem.harness.results import Run
from crossmem.memory.entry import Entry

pytestmark = pytest.mark.slow  # over the default run of the whole study

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The default arms on the default stream, replayed once for all tests here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSMEM_RESULTS", str(tmp_path_factory.mktemp("results")))
        return ex.run(mock=True, model="haiku")


# -- one figure at a time -----------------------------------------------------------------------------


def episode(
    run: Run, arm: str, index: int, recalled: list[tuple[str, str]], live: str
) -> EpisodeRecord:
    """One accepted attempt that recalled values of one key, each with its version."""
    like = next(each for each in run.episodes if (each.row.arm, each.row.index) == ("A1F", index))
    attempt = Attempt(
        attempt=1,
        request={},
        status=200,
        response={},
        stamps={"T": live},
        suggestions=(),
        recalled=[Entry(("k",), "T", None, each, version) for each, version in recalled],
        carried=[],
    )
    row = like.row.model_copy(update={"arm": arm})
    return EpisodeRecord(row=row, events=[], attempts=[attempt])


def of(run: Run, episodes: list[EpisodeRecord]) -> Run:
    """A run that holds these episodes in place of its own."""
    return Run(run.path, run.config, episodes)


def test_stale_evidence_is_the_share_of_recalled_entries_of_another_version(run: Run) -> None:
    made = of(
        run,
        [
            episode(run, "A1F", 0, [("x", "1"), ("y", "2")], live="2"),
            episode(run, "A1F", 1, [("y", "2")], live="2"),
            episode(run, "A2", 0, [], live="2"),
        ],
    )
    table = ex.measures.evidence(made)
    assert value(table, "A1F", "stale_evidence") == pytest.approx(1 / 3)
    assert value(table, "A1F", "contradictions") == pytest.approx(1 / 2)
    assert table.loc["A2"].isna().all()


def test_an_entry_whose_table_was_not_consulted_is_of_unknown_currency(run: Run) -> None:
    made = episode(run, "A1F", 0, [("x", "1")], live="2")
    unknown = made.model_copy(
        update={"attempts": [made.attempts[0].model_copy(update={"stamps": {"U": "9"}})]}
    )
    assert ex.measures.evidence(of(run, [unknown])).loc["A1F"].isna()["stale_evidence"]


# -- the default run ----------------------------------------------------------------------------


def test_every_episode_of_every_arm_succeeds(run: Run) -> None:
    assert run.rows["success"].all()
    assert run.length == 60
    lines = {"A1F", "oracle", "bound"}
    assert len(set(run.arms) - lines) == 7 + 6 * 2 * 3


def test_governance_takes_away_the_stale_attempts_of_all_but_summaries_cached_by_id(run: Run) -> None:
    stale = ex.measures.summary(run)["stale_attempts"]
    for component in ("simple", "cards", "rich"):
        for variant in ("faithful", "fixed"):
            governed = stale[f"{component}.{variant}.A2"]
            assert governed < stale[f"{component}.{variant}"]
            assert bool(governed > stale["A2"]) is (f"{component}.{variant}" == "rich.faithful")


def test_of_narrative_memories_only_faithful_ones_are_poisoned(run: Run) -> None:
    poisoned = ex.measures.summary(run)["poisoned_attempts"]
    assert set(poisoned[poisoned > 0].index) == {
        *("A1", "A1F"),
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
        for event in events_of(run)
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


def test_the_finding_is_computed_from_the_rows(run: Run) -> None:
    said = str(ex.findings.finding(run))
    summary = ex.measures.summary(run)
    ours = summary["attempts"][[arm for arm in run.arms if arm in EXPERIENCE_ARMS]]
    assert f"needed the fewest: {ours.min():.0f} over 60 episodes" in said
    saved = summary["attempts"]["cards.faithful"] - summary["attempts"]["cards.fixed"]
    assert f"cards {saved:.0f} fewer" in said
    stale = summary["stale_attempts"]
    bypassed = stale["rich.faithful.A2"] - stale["cards.faithful.A2"]
    assert f"Summaries cached by id bypass governance and add {bypassed:.0f} stale attempts" in said
    assert "ancestral and sibling (faithful, faithful.A2, faithful.A2D) put no lesson" in said


@pytest.mark.usefixtures("results")
def test_a_budget_below_the_smallest_item_is_said_and_leaves_the_agent_without_memory() -> None:
    small = ex.run(
        mock=True, model="haiku", arms="A0,cards.fixed", stream="phase2_v4", context_tokens=3
    )
    summary = ex.measures.summary(small)
    assert summary["attempts"]["cards.fixed"] == summary["attempts"]["A0"]
    assert "In 3 tokens nothing fitted of what cards (fixed) selected." in str(
        ex.findings.finding(small)
    )


@pytest.mark.usefixtures("results")
def test_without_a_memory_of_attempts_the_finding_says_so() -> None:
    bare = ex.run(mock=True, model="haiku", arms="A1F", stream="rollback")
    assert str(ex.findings.finding(bare)) == "No memory of attempts is among the arms."


def test_the_figure_by_epochs_says_every_figure_in_words(run: Run) -> None:
    alt = ex.pictures.epochs(run).alt
    table = metrics.by_epoch(run, "stale_attempts")
    for arm, row in table.iterrows():
        assert f"{arm} {', '.join(f'{number:.0f}' for number in row)}" in alt


# -- what a tight byte budget leaves behind: which episodes are set against which ------------------


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


# -- chance ----------------------------------------------------------------------------------


def test_nothing_is_ranked_and_no_hypothesis_answered_over_episodes_without_a_measurement(
    run: Run,
) -> None:
    """One in which the provider failed is enough."""
    first, *others = run.episodes
    failed = {"success": False, "failed_by": "provider", "error": "overloaded"}
    lost = first.model_copy(update={"row": first.row.model_copy(update=failed)})
    broken = Run(run.path, run.config, [lost, *others])
    said = ex.findings.finding(broken).sentences
    assert "1 have no measurement (A0 1): attempts rank no arm here" in said[0]
    assert not [each for each in said for word in ("fewest", "fewer", "more") if word in each]
    answers = ex.hypotheses.answered(broken)
    assert set(answers["answer"]) == {"not testable here"}


@pytest.mark.usefixtures("results")
def test_replicates_differ_where_a_parent_is_drawn_and_only_there() -> None:
    given: dict[str, Any] = {"mock": True, "model": "haiku", "arms": "A2,simple.fixed,cards.faithful"}
    drawn = ex.run(**given, replicates=5)
    assert stats.why_none(drawn) is None
    spread = stats.per_replicate(metrics.episodes(drawn))["attempts"].unstack("unit").nunique("columns")
    assert spread["cards.faithful"] > 1
    assert spread[["A2", "simple.fixed"]].eq(1).all()
    shown = ex.findings.spread(drawn)
    assert not isinstance(shown, Prose)
    assert len(re.findall(r"\[[\d.,]+, [\d.,]+\]", shown._repr_html_())) == 2 * len(drawn.arms)

    again = ex.run(**given, seed=1)
    assert "one is too few" in (stats.why_none(again) or "")
    assert "one is too few" in str(ex.findings.spread(again))
    one, other = (
        [row.recalled for row in rows_of(each) if row.arm == "cards.faithful" and not row.replicate]
        for each in (drawn, again)
    )
    assert one != other


@pytest.mark.usefixtures("results")
def test_without_a_draw_the_notice_says_that_replicates_vary_nothing() -> None:
    bare = ex.run(mock=True, model="haiku", arms="A2,skills.fixed", stream="rollback")
    assert "vary nothing" in (stats.why_none(bare) or "")


# -- what an agent reads ---------------------------------------------------------------------


def test_a_prompt_is_read_again_as_it_was_recalled(run: Run) -> None:
    texts = ex.reading.read(run, "cards.faithful", "cards.fixed.A2")
    live = "2.0.0"
    assert f"Under celiac_brands {live}" in texts.blocks["cards.fixed.A2"]
    assert "(the best)" in texts.blocks["cards.faithful"]
    recalled = next(
        attempt.recalled
        for attempt in attempts_of(run)
        if (attempt.arm, attempt.episode, attempt.attempt) == ("cards.faithful", texts.episode, 1)
    )
    assert recalled
    assert all(str(each.value) in texts.blocks["cards.faithful"] for each in recalled)
    assert "Before episode" in texts._repr_html_()
    with pytest.raises(InputError, match="A2 puts entries before the agent"):
        ex.reading.read(run, "A2")
    with pytest.raises(InputError, match=r"unknown arm 'cards'; did you mean"):
        ex.reading.read(run, "cards")


# -- the notebook ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        {"arms": "A0,A3,A3C,cards", "variant": "fixed", "governed": "none"},
        {"arms": "rich,skills", "stream": "acme_m1", "governed": "A2D"},
        {"arms": "A1F", "stream": "rollback"},
    ],
    ids=["few arms", "billing", "one arm"],
)
@pytest.mark.usefixtures("results")
def test_every_cell_shows_something(given: dict[str, Any]) -> None:
    for cell in walk("experience", mock=True, model="haiku", **given):
        assert cell.html or cell.alt or cell.code.startswith("print("), cell.code
        assert "nan" not in cell.html.lower().split()
