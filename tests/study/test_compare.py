"""Runs side by side: labels, table and figure are those of the runs; what does not fit is said."""

from __future__ import annotations

import math
import shutil
from typing import TYPE_CHECKING, Any

import nbformat
import pandas as pd
import pytest
from matplotlib.patches import Rectangle
from running import rewritten

from crossmem import compare
from crossmem.analysis import findings, metrics
from crossmem.analysis.compare import COLUMNS, Comparison
from crossmem.errors import InputError
from crossmem.harness.results import Run, load
from crossmem.paths import notebooks
from crossmem.report.execute import execute, sentinel_text
from crossmem.settings import CompareSettings, guard

from .rows import totals

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Scripted


@pytest.fixture
def v2(scripted: Scripted) -> Run:
    return scripted("phase2", pattern="v2")


@pytest.fixture
def v4(scripted: Scripted) -> Run:
    return scripted("phase2", pattern="v4")


# -- labels ----------------------------------------------------------------------------------------


def test_runs_are_labelled_by_what_sets_them_apart(v2: Run, v4: Run, scripted: Scripted) -> None:
    assert compare([v2, v4]).labels == ["pattern v2", "pattern v4"]
    request = scripted("phase2", pattern="v2", keying="request")
    assert compare([v2, request]).labels == ["keying task", "keying request"]
    assert compare([request, v4]).labels == [
        "pattern v2, keying request",
        "pattern v4, keying task",
    ]
    append = scripted("phase2", model="sonnet", hint_style="append")
    assert compare([v2, append]).labels == [
        "model haiku, hint_style amendment",
        "model sonnet, hint_style append",
    ]


def test_a_budget_is_told_from_that_of_the_stream(scripted: Scripted) -> None:
    runs = [scripted("phase2", arms="A3"), scripted("phase2", arms="A3", budget="0")]
    assert compare(runs).labels == ["budget of the stream", "budget 0"]


def test_runs_that_nothing_sets_apart_are_labelled_by_their_files(v2: Run, tmp_path: Path) -> None:
    again = load(copied(v2, tmp_path / "again.jsonl"))
    labels = compare([v2, again]).labels
    assert labels == [f"({v2.path.stem})", "(again)"]
    assert compare([v2, again]).table.index.is_unique


def copied(run: Run, to: Path) -> Path:
    shutil.copy(run.path, to)
    return to


# -- table and figure ------------------------------------------------------------------------------


def test_the_table_holds_the_summaries_of_the_runs(v2: Run, v4: Run) -> None:
    table = compare([v2, v4]).table
    assert [*table.columns] == [*COLUMNS]
    for label, run in (("pattern v2", v2), ("pattern v4", v4)):
        mine = pd.DataFrame(table.xs(label, level="run"))
        assert [*mine.index] == run.arms
        summary = metrics.summary(run)
        for arm in run.arms:
            assert mine.at[arm, "attempts"] == totals(run)[arm]
            for column in COLUMNS:
                assert metrics.value(mine, arm, column) == metrics.value(summary, arm, column)


def test_what_a_run_does_not_have_is_missing(v2: Run, scripted: Scripted) -> None:
    phase1 = scripted("phase1", keying="task", arms="A0,A2")
    comparison = compare([v2, phase1])
    assert comparison.labels == ["phase phase2, pattern v2", "phase phase1, pattern single"]
    table = comparison.table.loc["phase phase1, pattern single"]
    assert [*table.index] == ["A0", "A2"]
    assert table["regret"].isna().all()
    assert comparison.table.loc["phase phase2, pattern v2"]["regret"].notna().all()


def test_the_figure_says_in_words_what_it_shows(v2: Run, v4: Run) -> None:
    picture = compare([v2, v4]).figure()
    assert picture.alt.startswith("Bars of attempts by arm, one colour per run: ")
    for label, run in (("pattern v2", v2), ("pattern v4", v4)):
        for arm, attempts in totals(run).items():
            assert f"{label}, {arm}: {attempts}" in picture.alt
    assert picture.png.startswith(b"\x89PNG")
    (axes,) = picture.figure.axes
    assert axes.get_title(loc="left") == "Attempts by arm and run (scripted agent)"
    bars = [each.get_height() for each in axes.patches if isinstance(each, Rectangle)]
    heights = sorted(height for height in bars if height)
    assert heights == sorted([*totals(v2).values(), *totals(v4).values()])


def test_what_is_missing_is_no_number_in_words(v2: Run, scripted: Scripted) -> None:
    phase1 = scripted("phase1", keying="task", arms="A0,A2")
    alt = compare([v2, phase1]).figure().alt
    assert "nan" not in alt.lower()
    assert math.isnan(compare([v2, phase1]).table["regret"].iloc[-1])


# -- what does not go together ---------------------------------------------------------------------


def test_streams_of_another_length_are_not_compared(v2: Run, scripted: Scripted) -> None:
    m1 = scripted("phase3")
    said = rf"compare: {v2.path.name} and {m1.path.name} differ in number of episodes: 24 against 48"
    with pytest.raises(InputError, match=said):
        compare([v2, m1])
    with pytest.raises(InputError, match="48 against 24"):
        compare([m1, v2])


def test_another_domain_is_not_compared(v2: Run, tmp_path: Path) -> None:
    acme = rewritten(v2, tmp_path / "acme.jsonl", domain="acme")
    with pytest.raises(InputError, match=r"and acme\.jsonl differ in domain: recipe against acme"):
        compare([v2, acme])


def test_a_live_model_is_not_compared_with_the_scripted_agent(v2: Run, tmp_path: Path) -> None:
    parameters = {**v2.config["parameters"], "mock": False}
    live = rewritten(v2, tmp_path / "live.jsonl", parameters=parameters)
    with pytest.raises(InputError, match="differ in kind of agent: scripted agent against live model"):
        compare([v2, live])


def test_other_tasks_are_not_compared_and_the_first_is_named(v2: Run, tmp_path: Path) -> None:
    def renamed(episode: dict[str, Any]) -> None:
        if episode["row"]["index"] in {7, 20}:
            episode["row"]["task_id"] = "other"

    other = rewritten(v2, tmp_path / "other.jsonl", renamed)
    with pytest.raises(InputError, match=r"other\.jsonl differ in their tasks, from episode 7 on"):
        compare([v2, other])


def test_the_run_at_odds_is_named_whichever_it_is(v2: Run, v4: Run, scripted: Scripted) -> None:
    m1 = scripted("phase3")
    with pytest.raises(InputError, match=rf"{v2.path.name} and {m1.path.name}"):
        compare([v2, v4, m1])


@pytest.mark.parametrize("number", [0, 1])
def test_fewer_than_two_are_not_compared(number: int, v2: Run) -> None:
    with pytest.raises(InputError, match=rf"compare: {number} results file.* given; name at least two"):
        compare([v2][:number])


def test_the_same_file_twice_is_not_compared(v2: Run, v4: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    said = rf"compare: {v2.path.name} is named more than once"
    with pytest.raises(InputError, match=said):
        compare([v2, v4, v2.path])
    monkeypatch.chdir(v2.path.parent)
    with pytest.raises(InputError, match=said):
        compare([str(v2.path), v2.path.name])


def test_a_file_that_is_not_there_is_named(v2: Run) -> None:
    with pytest.raises(InputError, match=r"cannot read none\.jsonl: No such file"):
        compare([v2, "none.jsonl"])


# -- the notebook ----------------------------------------------------------------------------------


@pytest.fixture
def pair(results: Path, v2: Run, v4: Run) -> Comparison:
    """Two files by the names a person would give them."""
    results.mkdir()
    return compare([load(copied(run, results / f"{run.config['pattern']}.jsonl")) for run in (v2, v4)])


@pytest.mark.slow
def test_the_notebook_makes_one_table_and_one_figure(pair: Comparison, tmp_path: Path) -> None:
    output = tmp_path / "out.ipynb"
    execute(notebooks() / "compare.ipynb", output, {"results": "v2.jsonl, v4"})
    executed: Any = nbformat.read(output, as_version=4)  # type: ignore[no-untyped-call]
    outputs = [out for cell in executed.cells for out in cell.get("outputs", [])]
    images = [out for out in outputs if "image/png" in out.get("data", {})]
    assert [out.metadata["image/png"]["alt"] for out in images] == [pair.figure().alt]
    html = [out.data["text/html"] for out in outputs if "text/html" in out.get("data", {})]
    (shown,) = [each for each in html if "<table" in each]
    for number in pair.table["attempts"]:
        assert f">{number:.0f}</td>" in shown
    assert "nan" not in shown.lower()
    assert any("scripted agent" in each for each in html)
    said = sentinel_text(output)
    assert said == findings.compared(pair)
    assert said.startswith("pattern v2: Over 24 episodes ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", r"results '': name at least two results files"),
        ("v2.jsonl", r"results 'v2\.jsonl': name at least two results files"),
    ],
)
def test_the_notebook_asks_for_two_files(given: str, said: str) -> None:
    """The guard of the notebook, which is what its second cell calls."""
    with pytest.raises(InputError, match=said):
        guard(CompareSettings, {"results": given})
