"""The figures of the experience study: all arms on one plane, and arms by drift epochs."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from crossmem.analysis import metrics
from crossmem.analysis.display import Picture, count, drawing_style, titled
from crossmem.experience.arms import EXPERIENCE_ARMS, together
from crossmem.experience.measures import plane as plane_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    from matplotlib.axes import Axes

    from crossmem.harness.results import Run

    Point = npt.NDArray[np.float64]

_MARKS = {"core": ("s", "black"), "faithful": ("o", "#d55e00"), "fixed": ("^", "#0173b2")}
_SIDES = (
    (11, 0),
    (-11, 0),
    (0, 10),
    (0, -10),
    (11, 9),
    (-11, 9),
    (11, -9),
    (-11, -9),
    (22, 0),
    (-22, 0),
)
"""Where a mark's number may stand, in points from it."""
_NUMBER_WIDTH, _NUMBER_HEIGHT = 10, 8
_LINE = 34
"""Characters of a line of the key."""


@drawing_style()
def plane(run: Run) -> Picture:
    """Draw attempts per success against the share of stale evidence.

    Arms at one place share a label; an arm that recalled nothing lies at the left edge.
    """
    table = plane_of(run).fillna({"stale_evidence": 0.0}).dropna(subset=["attempts_per_success"])
    places = _places(table)
    key = [
        f"{number}  " + "\n     ".join(wrap(names, _LINE))
        for number, names in enumerate(places.values(), start=1)
    ]
    height = max(5.0, 0.45 + 0.168 * sum(each.count("\n") + 1 for each in key))
    figure = Figure(figsize=(10, height), layout="constrained")
    axes, beside = figure.subplots(1, 2, width_ratios=(2.6, 1))
    for kind, (mark, colour) in _MARKS.items():
        of_kind = table[[_kind(arm) == kind for arm in table.index]]
        axes.scatter(
            of_kind["stale_evidence"],
            of_kind["attempts_per_success"],
            marker=mark,
            color=colour,
            alpha=0.75,
            label=kind,
        )
    beside.axis("off")
    beside.text(
        0, 1, "\n".join(key), transform=beside.transAxes, va="top", fontsize=8, linespacing=1.45
    )
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set(xlabel="stale evidence: share of recalled entries of another version than the live one")
    axes.set(ylabel="attempts per success")
    axes.set_title(titled(run, "What outdated experience costs"), loc="left", fontweight="bold")
    axes.margins(x=0.08, y=0.08)
    _number(axes, list(places))
    axes.legend(frameon=False, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
    said = "; ".join(
        f"{arm} {count(row.attempts_per_success)} attempts, {row.stale_evidence:.0%} stale"
        for arm, row in table.iterrows()
    )
    return Picture(figure, f"Scatter of attempts per success by share of stale evidence. {said}.")


@drawing_style()
def epochs(run: Run) -> Picture:
    """Draw attempts, stale attempts and tokens per success of every arm in every drift epoch."""
    figures = ("attempts", "stale_attempts", "tokens_per_success")
    tables = {figure: metrics.by_epoch(run, figure) for figure in figures}
    names = list(tables["attempts"].index)
    drawn = Figure(figsize=(10, 1.2 + 0.22 * len(names)), layout="constrained")
    for axes, (figure, table) in zip(
        drawn.subplots(1, len(figures), sharey=True), tables.items(), strict=True
    ):
        sns.heatmap(
            table,
            ax=axes,
            annot=table.map(count),
            fmt="",
            annot_kws={"size": 7},
            cmap="Blues",
            cbar=False,
            linewidths=0.5,
            xticklabels=[name.removeprefix("epoch ") for name in table.columns],
            yticklabels=names,
        )
        axes.set(xlabel="drift epoch", ylabel="")
        axes.tick_params(labelsize=8, length=0)
        axes.set_title(figure.replace("_", " "), size=10)
    drawn.suptitle(titled(run, "By drift epoch"), x=0.01, ha="left", fontweight="bold")
    lines = [
        f"{figure.replace('_', ' ')}: "
        + "; ".join(f"{arm} {', '.join(map(count, row))}" for arm, row in table.iterrows())
        for figure, table in tables.items()
    ]
    alt = f"Heat map of arms by drift epochs. Per arm, epoch by epoch, {'. '.join(lines)}."
    return Picture(drawn, alt)


def _kind(arm: str) -> str:
    return EXPERIENCE_ARMS[arm].variant if arm in EXPERIENCE_ARMS else "core"


def _places(table: pd.DataFrame) -> dict[tuple[float, float], str]:
    """Return the arms that lie at one place, top to bottom."""
    places: dict[tuple[float, float], list[str]] = {}
    for arm, row in table.sort_values(
        "attempts_per_success", ascending=False, kind="stable"
    ).iterrows():
        at = float(row.stale_evidence), float(row.attempts_per_success)
        places.setdefault(at, []).append(str(arm))
    return {at: together(names) for at, names in places.items()}


def _number(axes: Axes, places: list[tuple[float, float]]) -> None:
    """Write each place's number beside it, on the first side where nothing stands yet."""
    axes.autoscale_view()
    marks = axes.transData.transform(places) * 72 / axes.figure.dpi
    taken = list(marks)
    for number, (place, mark) in enumerate(zip(places, marks, strict=True), start=1):
        side = next((each for each in _SIDES if _free(mark + each, mark, taken)), _SIDES[0])
        taken.append(mark + side)
        axes.annotate(
            str(number),
            place,
            xytext=side,
            textcoords="offset points",
            fontsize=8,
            ha="center",
            va="center",
        )


def _free(at: Point, mark: Point, taken: list[Point]) -> bool:
    """Tell whether a number fits in: no other mark and no number is near."""
    return all(
        abs(at[0] - x) > _NUMBER_WIDTH or abs(at[1] - y) > _NUMBER_HEIGHT
        for x, y in taken
        if (x, y) != tuple(mark)
    )
