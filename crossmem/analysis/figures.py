"""Figures of a run. Each is a `Picture`: a PNG with its alt text, computed from the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from crossmem.analysis import metrics, stats
from crossmem.analysis.display import Picture, Prose, count, drawing_style, titled
from crossmem.memory.arms import REFERENCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer

    from crossmem.harness.results import Run

_PALETTE = sns.color_palette("colorblind").as_hex()
_OUTCOME_STYLE = {
    "first try": ("#e3e7ea", "", "black"),
    "cold retry": (_PALETTE[9], "c", "black"),
    "stale attempt": (_PALETTE[3], "S", "white"),
    "poisoned attempt": (_PALETTE[4], "P", "black"),
    "other retry": (_PALETTE[8], "o", "white"),
    "declined": (_PALETTE[5], "d", "black"),
    "provider failed": (_PALETTE[7], "x", "black"),
    "failed": ("#222222", "F", "white"),
}
"""Colour of the cell, its letter, and the letter's colour; by the letter, colour is not all."""


def strip(run: Run) -> Picture:
    """Draw what became of each episode in each arm, a line at every drift."""
    rows = _first_replicate(run)
    grid = rows.pivot(index="arm", columns="index", values="outcome").astype(str)
    with _canvas(10, 1.55 + 0.34 * len(grid), (0.65, 1.0, 0.1, 0.55)) as (figure, (axes,)):
        # Not seaborn's heatmap, which draws the whole figure once more to see whether labels overlap.
        axes.pcolormesh(
            grid.map(metrics.OUTCOMES.index).to_numpy(),
            cmap=ListedColormap([_OUTCOME_STYLE[outcome][0] for outcome in metrics.OUTCOMES]),
            vmin=-0.5,
            vmax=len(metrics.OUTCOMES) - 0.5,
            linewidths=1.5,
            edgecolors="white",
        )
        axes.invert_yaxis()
        sns.despine(ax=axes, left=True, bottom=True)
        for (row, column), outcome in np.ndenumerate(grid.to_numpy()):
            _, letter, ink = _OUTCOME_STYLE[outcome]
            if letter:
                axes.text(column + 0.5, row + 0.5, letter, ha="center", va="center", size=8, color=ink)
        _mark_drifts(axes, run, offset=0.0)
        _label_strip(figure, axes, rows, [*grid.index])
        axes.set_title(titled(run, "What became of each episode"), pad=18)
    counts = rows.groupby("arm", observed=True)["outcome"].value_counts().unstack(fill_value=0)
    outcomes = "; ".join(
        f"{arm}: " + ", ".join(f"{number} {outcome}" for outcome, number in row.items() if number)
        for arm, row in counts.iterrows()
    )
    drifts = ", ".join(str(event["before"]) for event in run.config["drift_events"])
    alt = f"Grid of arms by episodes, coloured by outcome; drift before episode {drifts}. {outcomes}."
    return Picture(figure, alt)


def tokens(run: Run) -> Picture:
    """Draw tokens per success before and after the first drift, with intervals where there are any."""
    rows = metrics.episodes(run)
    rows["window"] = rows["drift_epoch"].map(lambda epoch: "after the drift" if epoch else "before")
    table = metrics.measure(rows, ["arm", "window"])["tokens_per_success"]
    units = stats.per_replicate(rows, ["arm", "window"]).reset_index()
    with _canvas(8, 3.6, (0.75, 0.55, 0.1, 0.4)) as (figure, (axes,)):
        _bars(
            *(axes, units, "arm", "tokens_per_success", "window"),
            hue_order=["before", "after the drift"],
            palette=[_PALETTE[7], _PALETTE[0]],
            errorbar=_errorbar(run),
        )
        for bars in axes.containers:
            axes.bar_label(cast("BarContainer", bars), fmt="{:,.0f}", fontsize=8, padding=1)
        axes.set(xlabel="arm", ylabel=f"{_tokens_source(run)} tokens per success")
        axes.set_title(titled(run, "What a success costs, before and after the drift"))
        axes.legend(title=None, frameon=False, ncols=2, loc="upper right")
        axes.margins(y=0.18)
    costs = "; ".join(
        f"{arm} {window} {count(cost)}" for arm, window, cost in table.reset_index().to_numpy()
    )
    alt = f"Bars of {_tokens_source(run)} tokens per success by arm and window: {costs}."
    return Picture(figure, alt)


def memory(run: Run) -> Picture:
    """Draw entries and bytes held after each episode, with the byte budget where one is in force."""
    rows = _first_replicate(run)
    with_memory = rows[rows["arm"] != "A0"]
    rows = rows if with_memory.empty else with_memory
    with _canvas(10, 3.8, (0.7, 0.55, 0.1, 0.65), columns=2) as (figure, panels):
        for axes, column in zip(panels, ("entries", "bytes"), strict=True):
            _lines(axes, rows, "index", column, legend=column == "entries", drawstyle="steps-post")
            _mark_drifts(axes, run, offset=-0.5)
            axes.set(xlabel="episode", ylabel=f"{column} held", ylim=(0, None))
        _mark_budget(axes, rows)
        _figure_title(figure, run, "What each memory holds after each episode")
    peaks = rows.groupby("arm", observed=True)[["entries", "bytes"]].max()
    most = "; ".join(
        f"{arm} {peak.entries} entries, {peak.bytes:,} bytes" for arm, peak in peaks.iterrows()
    )
    alt = f"Lines of entries and bytes held per arm over the episodes. Most held: {most}."
    return Picture(figure, alt)


def epochs(run: Run, family: str | None = None) -> Picture:
    """Draw tokens per success and first-try rate per drift epoch, of one family only if named.

    With intervals where there are any.
    """
    table = metrics.windows(run, family).reset_index()
    units = stats.per_replicate(metrics.episodes(run, family), ["arm", "drift_epoch"]).reset_index()
    columns = {
        "tokens_per_success": f"{_tokens_source(run)} tokens per success",
        "first_try_rate": "first-try rate",
    }
    bars = {"errorbar": _errorbar(run), "err_style": "bars"}
    of = f"{family} episodes" if family else "all episodes"
    with _canvas(10, 3.8, (0.75, 0.55, 0.1, 0.45), columns=2) as (figure, panels):
        for axes, (column, label) in zip(panels, columns.items(), strict=True):
            legend = column != "first_try_rate"
            _lines(axes, units, "drift_epoch", column, legend=legend, marker="o", linewidth=1.8, **bars)
            axes.set(xlabel="drift epoch", ylabel=label, xticks=sorted(table["drift_epoch"].unique()))
            axes.margins(y=0.12)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        _figure_title(figure, run, f"Each drift epoch by arm, {of}")
    points = "; ".join(
        f"{arm} epoch {epoch} {count(cost)} tokens, {rate:.0%} first try"
        for arm, epoch, cost, rate in table[["arm", "drift_epoch", *columns]].to_numpy()
    )
    return Picture(figure, f"Lines per arm over the drift epochs, {of}: {points}.")


def dividend(run: Run) -> Picture | Prose:
    """Draw the attempts that A2D saves over A2, per drift epoch and half of the table.

    Returns words where the run lacks one of the two arms.
    """
    if not metrics.has(run, "A2", "A2D"):
        return Prose(("The granularity dividend needs both A2 and A2D among the arms.",), "notice")
    table = metrics.dividend(run).drop(columns="total")
    data = table.reset_index().melt("drift_epoch", var_name="drift_row", value_name="saved")
    with _canvas(8, 3.2) as (figure, (axes,)):
        _bars(axes, data, "drift_epoch", "saved", "drift_row")
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set(xlabel="drift epoch", ylabel="attempts saved")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_title(titled(run, "Attempts that A2D saves over A2, by half of the table"))
    saved = "; ".join(
        f"epoch {epoch} {half} {count(number)}" for epoch, half, number in data.to_numpy() if number
    )
    return Picture(figure, f"Bars of attempts that A2D saves over A2: {saved or 'none anywhere'}.")


def side_by_side(table: pd.DataFrame, title: str) -> Picture:
    """Draw the attempts of each arm in several runs: `table` has the index (run, arm)."""
    data = table.reset_index()
    with _canvas(10, 4) as (figure, (axes,)):
        _bars(axes, data, "arm", "attempts", "run")
        axes.set(xlabel="arm", ylabel="attempts over the stream")
        axes.set_title(title)
    attempts = "; ".join(
        f"{run}, {arm}: {count(number)}"
        for run, arm, number in data[["run", "arm", "attempts"]].to_numpy()
    )
    return Picture(figure, f"Bars of attempts by arm, one colour per run: {attempts}.")


@contextmanager
def _canvas(
    width: float,
    height: float,
    margins: tuple[float, float, float, float] | None = None,
    columns: int = 1,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """Open a figure of `width` x `height` inches with a row of axes, in the style of the study.

    With `margins` (left, bottom, right, top, in inches) nothing has to be laid out, which is a third of
    the time a figure takes; without, matplotlib finds the room that labels need.
    """
    with drawing_style():
        figure = Figure(figsize=(width, height), layout=None if margins else "constrained")
        if margins:
            left, bottom, right, top = margins
            figure.subplots_adjust(
                left / width, bottom / height, 1 - right / width, 1 - top / height, wspace=0.2
            )
        yield figure, [*figure.subplots(1, columns, squeeze=False).flat]


def _first_replicate(run: Run) -> pd.DataFrame:
    return metrics.episodes(run).query("replicate == replicate.min()")


def _errorbar(run: Run) -> Callable[[Iterable[float]], tuple[float, float]] | None:
    """Return what draws the interval of replicate values, None where the notice says why."""

    def bounds(values: Iterable[float]) -> tuple[float, float]:
        interval = stats.interval(pd.Series(list(values)))
        return interval.low, interval.high

    return None if stats.why_none(run) else bounds


def _lines(axes: Axes, rows: pd.DataFrame, x: str, y: str, *, legend: bool, **style: Any) -> None:
    """Draw a line per arm, the reference lines in black."""
    names = [str(arm) for arm in rows["arm"].cat.categories if (rows["arm"] == arm).any()]
    colours = dict(zip(names, sns.color_palette("colorblind", len(names)), strict=True))
    palette = {**colours, **dict.fromkeys(REFERENCES, "black")}
    arms = {"hue": "arm", "style": "arm", "hue_order": names, "style_order": names, "palette": palette}
    sns.lineplot(rows, x=x, y=y, legend=legend, ax=axes, **{"errorbar": None, **arms, **style})
    if legend:
        axes.legend(title=None, frameon=False, fontsize=8, ncols=2)
    sns.despine(ax=axes)


def _bars(axes: Axes, data: pd.DataFrame, x: str, y: str, hue: str, **style: Any) -> None:
    sns.barplot(data, x=x, y=y, hue=hue, ax=axes, **{"palette": "colorblind", **style})
    axes.legend(title=None, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    sns.despine(ax=axes)


def _figure_title(figure: Figure, run: Run, title: str) -> None:
    figure.suptitle(titled(run, title), x=0.01, ha="left", fontweight="bold")


def _tokens_source(run: Run) -> str:
    return "estimated" if (run.rows["tokens_source"] == "estimated").all() else "reported"


def _mark_drifts(axes: Axes, run: Run, offset: float) -> None:
    events = run.config["drift_events"]
    for event in events:
        at = event["before"] + offset
        axes.axvline(at, color="black", linewidth=1.6, linestyle=(0, (4, 2)))
        label = event["snapshot"] if len(events) > 2 else f"drift to {event['snapshot']}"
        _label_above(axes, label, (at, 1.0), 3, xycoords=("data", "axes fraction"))


def _mark_budget(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw the budget in force over the episodes where there is one."""
    for arm, each in rows.dropna(subset=["budget"]).groupby("arm", observed=True):
        lowest = each["budget"].min()
        axes.step(each["index"], each["budget"], where="mid", color="black", linewidth=2)
        label = f"budget of {arm}: {count(lowest)} bytes"
        _label_above(axes, label, (each["index"].mean(), lowest), 4)


def _label_above(axes: Axes, text: str, at: tuple[float, float], points: int, **given: Any) -> None:
    axes.annotate(
        text, at, xytext=(0, points), textcoords="offset points", ha="center", fontsize=8, **given
    )


def _label_strip(figure: Figure, axes: Axes, rows: pd.DataFrame, arms: list[str]) -> None:
    tasks = rows.drop_duplicates("index")
    labels = tasks["index"].astype(str) + "\n" + tasks["family"].str[:3]
    size = 7 if len(tasks) <= 24 else 5
    axes.set_xticks(tasks["index"] + 0.5, labels, rotation=0, fontsize=size)
    axes.set_yticks(np.arange(len(arms)) + 0.5, arms)
    axes.tick_params(length=0)
    axes.set(xlabel="episode and family of its task", ylabel="")
    patches = [
        Patch(facecolor=colour, label=f"{name} ({letter})" if letter else name)
        for name, (colour, letter, _) in _OUTCOME_STYLE.items()
        if (rows["outcome"] == name).any()
    ]
    figure.legend(handles=patches, ncols=len(patches), loc="lower center", frameon=False)
