"""Intervals over replicates, against an independent computation; and none where there can be none."""

from __future__ import annotations

import math
import random
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from running import rows_of

from crossmem.analysis import display, figures, findings, metrics, notices, slots, stats
from crossmem.analysis.display import Prose
from crossmem.harness.results import Run

from .rows import only

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .conftest import Scripted

    Measured = Callable[..., Run]

LINES = ("A0", "A2", "A2D", "LWG", "oracle")


@pytest.fixture
def measured(scripted: Scripted) -> Measured:
    """Make a run as a live model would leave it: a real run's rows, and noise over replicates.

    Most of the noise is the replicate's own (all arms saw the same stream under the same seed), a
    little is the arm's. Every episode fails of what is `spoilt`: (arm, replicate), None for all.
    """

    def made(
        replicates: int, *, noise: bool = True, spoilt: tuple[str | None, int | None] = ("none", None)
    ) -> Run:
        run = only(scripted("phase2"), ",".join(LINES))
        dice = random.Random(7)
        episodes = []
        for replicate in range(replicates):
            shared = [dice.random() < 0.1 + replicate / 20 for _ in range(24)]
            for each in (each for arm in LINES for each in run.of(arm)):
                row = each.row
                more = noise * (shared[row.index] + (dice.random() < 0.02))
                update = {
                    "replicate": replicate,
                    "attempts": row.attempts + more,
                    "first_try": row.first_try and not more,
                    "input_tokens": row.input_tokens + 311 * more,
                    "total_tokens": row.total_tokens + 311 * more,
                    "tokens_source": "reported",
                }
                if spoilt[0] in {None, row.arm} and spoilt[1] in {None, replicate}:
                    update.update(success=False, first_try=False, error="refused")
                episodes.append(each.model_copy(update={"row": row.model_copy(update=update)}))
        changed = {"mock": False, "replicates": replicates, "model": "a-live-model"}
        parameters = {**run.config["parameters"], **changed}
        return Run(run.path, {**run.config, "preflight": [], "parameters": parameters}, episodes)

    return made


def per_replicate(run: Run, arm: str, figure: str) -> list[float]:
    """A figure per replicate, from the rows of the file alone."""
    found = []
    for replicate in sorted({row.replicate for row in rows_of(run)}):
        mine = [r for r in rows_of(run) if (r.arm, r.replicate) == (arm, replicate)]
        successes = sum(row.success for row in mine)
        found.append(
            {
                "attempts": float(sum(row.attempts for row in mine)),
                "first_try_rate": sum(row.first_try for row in mine) / len(mine),
                "tokens_per_success": (
                    sum(row.total_tokens for row in mine) / successes if successes else math.nan
                ),
            }[figure]
        )
    return found


def difference(run: Run, pair: str, figure: str) -> dict[str, Any]:
    """One row of the table of differences."""
    found: dict[Any, dict[str, Any]] = stats.differences(run).to_dict("index")  # type: ignore[assignment]
    return found[pair, figure]


def student(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95 % interval, by another route than the code under test."""
    mean = sum(values) / len(values)
    low, high = scipy.stats.t.interval(
        0.95, len(values) - 1, loc=mean, scale=scipy.stats.sem(list(values))
    )
    return mean, float(low), float(high)


# -- against scipy ---------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", stats.FIGURES)
@pytest.mark.parametrize("replicates", [5, 8])
def test_the_interval_of_a_figure_is_students(replicates: int, figure: str, measured: Measured) -> None:
    run = measured(replicates)
    found = stats.intervals(metrics.episodes(run), figure)
    assert [*found] == run.arms
    for arm, interval in found.items():
        expected = student(per_replicate(run, arm, figure))
        assert (interval.mean, interval.low, interval.high) == pytest.approx(expected)


@pytest.mark.parametrize("figure", stats.FIGURES)
def test_the_interval_of_a_difference_is_that_of_the_paired_differences(
    figure: str, measured: Measured
) -> None:
    run = measured(8)
    table = stats.differences(run)
    assert [*dict.fromkeys(table.index.get_level_values("difference"))] == [
        "A2D - A2",
        "A2 - A0",
        "A2 - LWG",
    ]
    for left, right in stats.PAIRS:
        pairs = zip(per_replicate(run, left, figure), per_replicate(run, right, figure), strict=True)
        rate = figure == "first_try_rate"
        expected = student([(100 if rate else 1) * (ours - theirs) for ours, theirs in pairs])
        label = "first_try_rate, percentage points" if rate else figure
        row = difference(run, f"{left} - {right}", label)
        assert (row["mean"], row["low"], row["high"]) == pytest.approx(expected)


def test_pairing_matters(measured: Measured) -> None:
    """All arms of a replicate share its noise: taken apart, the same data say far less."""
    run = measured(8)
    row = difference(run, "A2D - A2", "attempts")
    ours, theirs = (per_replicate(run, arm, "attempts") for arm in ("A2D", "A2"))
    unpaired = scipy.stats.ttest_ind(ours, theirs).confidence_interval(0.95)
    assert row["high"] - row["low"] < (unpaired.high - unpaired.low) / 3
    assert unpaired.low < 0 < unpaired.high
    assert row["verdict"] == "differs from zero"
    assert row["high"] < 0, "A2D needs fewer attempts"


def test_replicates_are_paired_by_their_number_and_not_by_their_place(measured: Measured) -> None:
    run = measured(6)
    again = Run(run.path, run.config, [*reversed(run.episodes)])
    pd.testing.assert_frame_equal(stats.differences(run), stats.differences(again))


# -- verdicts and degenerate cases -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.0, 2.0, 1.5, 2.5, 1.0], "differs from zero"),
        ([-1.0, -2.0, -1.5, -2.5, -1.0], "differs from zero"),
        ([-3.0, 2.0, 1.0, -1.0, 0.5], "cannot be told from zero"),
        ([0.0] * 5, "cannot be told from zero"),
        ([-2.0] * 5, "differs from zero"),
        ([1.0, 2.0, 3.0, 4.0], "no interval"),
        ([1.0, 2.0, 3.0, 4.0, math.nan], "no interval"),
        ([1.0, 2.0, 1.0, 2.0, math.nan, 1.0], "differs from zero"),
        ([math.nan] * 6, "no interval"),
    ],
)
def test_a_word_says_whether_it_can_be_told_from_zero(values: list[float], verdict: str) -> None:
    assert stats.interval(pd.Series(values)).verdict == verdict


def test_without_spread_the_interval_is_a_point(measured: Measured) -> None:
    run = measured(5, noise=False)
    for figure in stats.FIGURES:
        for arm, found in stats.intervals(metrics.episodes(run), figure).items():
            assert found.low == found.high == pytest.approx(per_replicate(run, arm, figure)[0])
    verdicts = stats.differences(run)["verdict"].xs("attempts", level="figure")
    assert set(verdicts) == {"differs from zero"}


def test_rounding_is_no_spread() -> None:
    """Equal differences of fractions that are not equal in binary; scipy would warn."""
    values = pd.Series([10 / 24 - 5 / 24, 12 / 24 - 7 / 24, 11 / 24 - 6 / 24, 9 / 24 - 4 / 24, 5 / 24])
    assert values.nunique() > 1
    found = stats.interval(values)
    assert found.low == found.high == pytest.approx(5 / 24)


def test_a_replicate_without_success_has_no_tokens_per_success(measured: Measured) -> None:
    run = measured(6, spoilt=("A0", 2))
    found = stats.intervals(metrics.episodes(run), "tokens_per_success")
    known = [value for value in per_replicate(run, "A0", "tokens_per_success") if not math.isnan(value)]
    assert len(known) == 5
    assert (found["A0"].mean, found["A0"].low, found["A0"].high) == pytest.approx(student(known))
    pair = difference(run, "A2 - A0", "tokens_per_success")
    assert pair["low"] < pair["mean"] < pair["high"]


def test_under_five_values_there_is_no_interval_though_there_are_five_replicates(
    measured: Measured,
) -> None:
    run = measured(5, spoilt=("A0", 2))
    found = stats.intervals(metrics.episodes(run), "tokens_per_success")
    assert found["A0"].verdict == "no interval"
    assert found["A2"].verdict == "differs from zero"
    row = difference(run, "A2 - A0", "tokens_per_success")
    assert row["verdict"] == "no interval"


# -- what is said ----------------------------------------------------------------------------------


def test_the_scripted_agent_gets_no_interval_and_the_reason(scripted: Scripted) -> None:
    run = scripted("phase2", arms="A0,A2", replicates=2)
    reason = "with the scripted agent seed and replicates vary nothing"
    assert reason in (stats.why_none(run) or "")
    assert reason in str(notices.notice(run))
    assert findings.intervals(run) is None
    assert not re.search(r"\[.*\]", " ".join(findings.headline(run)))


@pytest.mark.parametrize(("replicates", "few"), [(1, "one is"), (4, "4 of them are")])
def test_under_five_replicates_no_interval_and_the_reason(
    replicates: int, few: str, measured: Measured
) -> None:
    run = measured(replicates)
    reason = f"the unit is one replicate of the whole stream, and {few} too few"
    assert reason in (stats.why_none(run) or "")
    assert reason in str(notices.notice(run))
    assert findings.intervals(run) is None
    for said in (*findings.headline(run), str(findings.finding(run))):
        assert "[" not in said


def test_from_five_replicates_on_every_headline_figure_carries_its_interval(measured: Measured) -> None:
    run = measured(5)
    assert stats.why_none(run) is None
    for line in findings.headline(run):
        figures = line.split(": ", 1)[1]
        for arm in LINES:
            assert re.search(rf"\b{arm} [\d.,]+ \[[\d.,]+, [\d.,]+\]", figures), (arm, line)


@pytest.mark.parametrize("replicates", [1, 4, 5])
def test_figures_draw_the_intervals_that_there_are_and_no_others(
    measured: Measured, replicates: int
) -> None:
    run = measured(replicates)
    (bars,) = figures.tokens(run).figure.axes
    drawn = [np.asarray(line.get_ydata(), dtype=float) for line in bars.lines]
    if replicates < 5:
        assert drawn == []
    else:
        rows = metrics.episodes(run)
        known = stats.intervals(rows[rows["drift_epoch"] == 0], "tokens_per_success")
        ends = [pytest.approx((each.min(), each.max())) for each in drawn]
        assert all((each.low, each.high) in ends for each in known.values())
    for axes in figures.epochs(run).figure.axes:
        assert bool(axes.collections) is (replicates == 5)


def test_from_five_replicates_on_every_difference_carries_interval_and_verdict(
    measured: Measured,
) -> None:
    run = measured(8)
    said = str(findings.finding(run))
    for left, right in stats.PAIRS:
        row = difference(run, f"{left} - {right}", "attempts")
        assert (
            f"{left} - {right}: {row['mean']:+.1f} attempts "
            f"[{row['low']:+.1f}, {row['high']:+.1f}], {row['verdict']}"
        ) in said
    shown = findings.intervals(run)
    assert shown is not None
    html = shown._repr_html_()
    assert html.count("differs from zero") + html.count("cannot be told from zero") == 9
    assert "8 replicates, 95 % interval" in html


@pytest.mark.parametrize("spoilt", [("none", None), ("A0", 1), ("A2", None), (None, None)])
def test_no_text_of_a_report_says_nan_or_inf(
    spoilt: tuple[str | None, int | None], measured: Measured
) -> None:
    run = measured(5, spoilt=spoilt)
    shown = findings.intervals(run)
    dividend = figures.dividend(run)
    assert shown is not None
    assert not isinstance(dividend, Prose)
    texts = [
        str(notices.notice(run)),
        str(findings.finding(run)),
        findings.finding(run)._repr_html_(),
        findings.done(run),
        shown._repr_html_(),
        display.show(metrics.summary(run), "all")._repr_html_(),
        display.show(metrics.dividend(run), "dividend")._repr_html_(),
        display.show(metrics.slot_outcomes(run), "slots")._repr_html_(),
        *(display.by_epoch(run, figure)._repr_html_() for figure in stats.FIGURES),
        slots.folds(run)._repr_html_(),
        dividend.alt,
        *(draw(run).alt for draw in (figures.strip, figures.epochs, figures.memory)),
    ]
    for text in texts:
        assert not re.search(r"\b(nan|[+-]?inf)\b", text, re.IGNORECASE), text
