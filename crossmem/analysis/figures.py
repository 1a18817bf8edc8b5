"""Figures of a run. Each is a `Picture`: a PNG with its alt text, computed from the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from crossmem.analysis import metrics, stats
from crossmem.analysis.picture import Picture, titled
from crossmem.analysis.prose import Prose, count
from crossmem.memory.arms import REFERENCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer

    from crossmem.harness.results import Run

_BLIND = sns.color_palette("colorblind").as_hex()
COLOURS = {
    "first try": "#e3e7ea",
    "cold retry": _BLIND[9],
    "stale attempt": _BLIND[3],
    "poisoned attempt": _BLIND[4],
    "other retry": _BLIND[8],
    "declined": _BLIND[5],
    "provider failed": _BLIND[7],
    "failed": "#222222",
}
"""Colour-blind-safe; each outcome but the first try also has a letter, so that colour is not all."""
LETTERS = {
    "first try": "",
    "cold retry": "c",
    "stale attempt": "S",
    "poisoned attempt": "P",
    "other retry": "o",
    "declined": "d",
    "provider failed": "x",
    "failed": "F",
}
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
}


def strip(run: Run) -> Picture:
    """Draw what became of each episode in each arm, a line at every drift."""
    rows = metrics.episodes(run)
    first = rows[rows["replicate"] == rows["replicate"].min()]
    grid = first.pivot(index="arm", columns="index", values="outcome").astype(str)
    with mpl.rc_context(_STYLE):
        figure = _figure(10, 1.55 + 0.34 * len(grid), (0.65, 1.0, 0.1, 0.55))
        axes = figure.subplots()
        # Not seaborn's heatmap, which draws the whole figure once more to see whether labels overlap.
        axes.pcolormesh(
            grid.map(metrics.OUTCOMES.index).to_numpy(),
            cmap=ListedColormap([COLOURS[outcome] for outcome in metrics.OUTCOMES]),
            vmin=-0.5,
            vmax=len(metrics.OUTCOMES) - 0.5,
            linewidths=1.5,
            edgecolors="white",
        )
        axes.invert_yaxis()
        sns.despine(ax=axes, left=True, bottom=True)
        for (row, column), outcome in np.ndenumerate(grid.to_numpy()):
            if letter := LETTERS[outcome]:  # light letters on dark cells, dark ones on light
                ink = "white" if outcome in {"stale attempt", "failed", "other retry"} else "black"
                axes.text(column + 0.5, row + 0.5, letter, ha="center", va="center", size=8, color=ink)
        _mark_drifts(axes, run, offset=0.0)
        _label_cells(axes, grid.index, first)
        axes.set_title(titled(run, "What became of each episode"), pad=18)
        _outcome_legend(figure, set(grid.stack()))
    return Picture(figure, _strip_alt(run, first))


def tokens(run: Run) -> Picture:
    """Draw tokens per success before and after the first drift, with intervals where there are any."""
    rows = metrics.episodes(run)
    rows["window"] = rows["drift_epoch"].map(lambda epoch: "after the drift" if epoch else "before")
    table = metrics.measure(rows, ["arm", "window"])["tokens_per_success"]
    units = stats.per_replicate(rows, ["arm", "window"])["tokens_per_success"]
    with mpl.rc_context(_STYLE):
        figure = _figure(8, 3.6, (0.75, 0.55, 0.1, 0.4))
        axes = figure.subplots()
        sns.barplot(
            units.rename("tokens").reset_index(),
            x="arm",
            y="tokens",
            hue="window",
            hue_order=["before", "after the drift"],
            palette=[_BLIND[7], _BLIND[0]],
            errorbar=_errorbar(run),
            ax=axes,
        )
        for bars in axes.containers:
            axes.bar_label(cast("BarContainer", bars), fmt="{:,.0f}", fontsize=8, padding=1)
        axes.set(xlabel="arm", ylabel=f"{_source(run)} tokens per success")
        axes.set_title(titled(run, "What a success costs, before and after the drift"))
        axes.legend(title=None, frameon=False, ncols=2, loc="upper right")
        axes.margins(y=0.18)
        sns.despine(figure)
    said = "; ".join(
        f"{arm} {window} {count(tokens)}" for arm, window, tokens in table.reset_index().to_numpy()
    )
    return Picture(figure, f"Bars of {_source(run)} tokens per success by arm and window: {said}.")


def memory(run: Run) -> Picture:
    """Draw entries and bytes held after each episode, with the byte budget where one is in force."""
    rows = metrics.episodes(run)
    rows = rows[rows["replicate"] == rows["replicate"].min()]
    remembering = rows[rows["arm"] != "A0"]
    rows = rows if remembering.empty else remembering
    with mpl.rc_context(_STYLE):
        figure = _figure(10, 3.8, (0.7, 0.55, 0.1, 0.65))
        left, right = figure.subplots(1, 2)
        _held(left, run, rows, "entries")
        _held(right, run, rows, "bytes")
        right.get_legend().remove()
        _mark_budget(right, rows)
        title = titled(run, "What each memory holds after each episode")
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    peaks = rows.groupby("arm", observed=True)[["entries", "bytes"]].max()
    said = "; ".join(
        f"{arm} {peak.entries} entries, {peak.bytes:,} bytes" for arm, peak in peaks.iterrows()
    )
    return Picture(
        figure, f"Lines of entries and bytes held per arm over the episodes. Most held: {said}."
    )


def epochs(run: Run, family: str | None = None) -> Picture:
    """Draw tokens per success and first-try rate per drift epoch, of one family only if named.

    With intervals where there are any.
    """
    table = metrics.windows(run, family).reset_index()
    rows = metrics.episodes(run)
    rows = rows[rows["family"] == family] if family else rows
    units = stats.per_replicate(rows, ["arm", "drift_epoch"]).reset_index()
    bars = {"errorbar": _errorbar(run), "err_style": "bars"}
    panels = (
        ("tokens_per_success", f"{_source(run)} tokens per success"),
        ("first_try_rate", "first-try rate"),
    )
    with mpl.rc_context(_STYLE):
        figure = _figure(10, 3.8, (0.75, 0.55, 0.1, 0.45))
        for axes, (column, label) in zip(figure.subplots(1, 2), panels, strict=True):
            _lines(axes, units, "drift_epoch", column, marker="o", linewidth=1.8, **bars)
            axes.set(xlabel="drift epoch", ylabel=label, xticks=sorted(table["drift_epoch"].unique()))
            axes.margins(y=0.12)
            if column == "first_try_rate":
                axes.yaxis.set_major_formatter(PercentFormatter(1.0))
                axes.get_legend().remove()
        of = f"{family} episodes" if family else "all episodes"
        title = titled(run, f"Each drift epoch by arm, {of}")
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    said = "; ".join(
        f"{arm} epoch {epoch} {count(tokens)} tokens, {rate:.0%} first try"
        for arm, epoch, tokens, rate in table[
            ["arm", "drift_epoch", "tokens_per_success", "first_try_rate"]
        ].to_numpy()
    )
    return Picture(figure, f"Lines per arm over the drift epochs, {of}: {said}.")


def dividend(run: Run) -> Picture | Prose:
    """Draw the attempts that A2D saves over A2, per drift epoch and half of the table.

    Returns words where the run lacks one of the two arms.
    """
    if not metrics.has(run, "A2", "A2D"):
        return Prose(("The granularity dividend needs both A2 and A2D among the arms.",), "notice")
    table = metrics.dividend(run).drop(columns="total")
    shown = table.reset_index().melt("drift_epoch", var_name="drift_row", value_name="saved")
    with mpl.rc_context(_STYLE):
        figure = _figure(8, 3.2)
        axes = figure.subplots()
        sns.barplot(shown, x="drift_epoch", y="saved", hue="drift_row", palette="colorblind", ax=axes)
        axes.axhline(0, color="black", linewidth=0.8)
        axes.set(xlabel="drift epoch", ylabel="attempts saved")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_title(titled(run, "Attempts that A2D saves over A2, by half of the table"))
        axes.legend(title=None, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        sns.despine(figure)
    said = "; ".join(
        f"epoch {epoch} {half} {count(saved)}" for epoch, half, saved in shown.to_numpy() if saved
    )
    return Picture(figure, f"Bars of attempts that A2D saves over A2: {said or 'none anywhere'}.")


def side_by_side(table: pd.DataFrame, title: str) -> Picture:
    """Draw the attempts of each arm in several runs: `table` has the index (run, arm)."""
    shown = table.reset_index()
    with mpl.rc_context(_STYLE):
        figure = _figure(10, 4)
        axes = figure.subplots()
        sns.barplot(shown, x="arm", y="attempts", hue="run", palette="colorblind", ax=axes)
        axes.set(xlabel="arm", ylabel="attempts over the stream")
        axes.set_title(title)
        axes.legend(title=None, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        sns.despine(figure)
    said = "; ".join(
        f"{run}, {arm}: {count(number)}"
        for run, arm, number in shown[["run", "arm", "attempts"]].to_numpy()
    )
    return Picture(figure, f"Bars of attempts by arm, one colour per run: {said}.")


def _errorbar(run: Run) -> Callable[[Iterable[float]], tuple[float, float]] | None:
    """Return what draws the interval of replicate values, None where the notice says why."""
    return None if stats.why_none(run) else _bounds


def _bounds(values: Iterable[float]) -> tuple[float, float]:
    found = stats.interval(pd.Series(list(values)))
    return found.low, found.high


def _lines(axes: Axes, rows: pd.DataFrame, x: str, y: str, **style: Any) -> None:
    """Draw a line per arm, the reference lines in black."""
    names = [str(arm) for arm in rows["arm"].cat.categories if (rows["arm"] == arm).any()]
    colours = dict(zip(names, sns.color_palette("colorblind", len(names)), strict=True))
    sns.lineplot(
        rows,
        x=x,
        y=y,
        hue="arm",
        style="arm",
        hue_order=names,
        style_order=names,
        palette={**colours, **dict.fromkeys(REFERENCES, "black")},
        ax=axes,
        **{"errorbar": None, **style},
    )
    axes.legend(title=None, frameon=False, fontsize=8, ncols=2)
    sns.despine(ax=axes)


def _held(axes: Axes, run: Run, rows: pd.DataFrame, column: str) -> None:
    _lines(axes, rows, "index", column, drawstyle="steps-post")
    _mark_drifts(axes, run, offset=-0.5)
    axes.set(xlabel="episode", ylabel=f"{column} held", ylim=(0, None))


def _figure(
    width: float, height: float, margins: tuple[float, float, float, float] | None = None
) -> Figure:
    """Return a figure of `width` x `height` inches.

    With `margins` (left, bottom, right, top, in inches) nothing has to be laid out, which is a third of
    the time a figure takes; without, matplotlib finds the room that labels need.
    """
    if margins is None:
        return Figure(figsize=(width, height), layout="constrained")
    left, bottom, right, top = margins
    figure = Figure(figsize=(width, height))
    figure.subplots_adjust(
        left / width, bottom / height, 1 - right / width, 1 - top / height, wspace=0.2
    )
    return figure


def _source(run: Run) -> str:
    return "estimated" if (run.rows["tokens_source"] == "estimated").all() else "reported"


def _mark_drifts(axes: Axes, run: Run, offset: float) -> None:
    events = run.config["drift_events"]
    for event in events:
        at = event["before"] + offset
        axes.axvline(at, color="black", linewidth=1.6, linestyle=(0, (4, 2)))
        axes.annotate(
            event["snapshot"] if len(events) > 2 else f"drift to {event['snapshot']}",
            (at, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )


def _mark_budget(axes: Axes, rows: pd.DataFrame) -> None:
    """Draw the budget in force over the episodes where there is one."""
    for arm, each in rows.dropna(subset=["budget"]).groupby("arm", observed=True):
        lowest = each["budget"].min()
        axes.step(each["index"], each["budget"], where="mid", color="black", linewidth=2)
        axes.annotate(
            f"budget of {arm}: {count(lowest)} bytes",
            (each["index"].mean(), lowest),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )


def _label_cells(axes: Axes, arms: pd.Index, rows: pd.DataFrame) -> None:
    tasks = rows.drop_duplicates("index")
    axes.set_xticks(
        tasks["index"] + 0.5,
        [
            f"{index}\n{family[:3]}"
            for index, family in zip(tasks["index"], tasks["family"], strict=True)
        ],
        rotation=0,
        fontsize=7 if len(tasks) <= 24 else 5,
    )
    axes.set_yticks(np.arange(len(arms)) + 0.5, arms)
    axes.tick_params(length=0)
    axes.set(xlabel="episode and family of its task", ylabel="")


def _outcome_legend(figure: Figure, seen: set[str]) -> None:
    patches = [
        Patch(facecolor=COLOURS[name], label=f"{name} ({LETTERS[name]})" if LETTERS[name] else name)
        for name in metrics.OUTCOMES
        if name in seen
    ]
    figure.legend(handles=patches, ncols=len(patches), loc="lower center", frameon=False)


def _strip_alt(run: Run, rows: pd.DataFrame) -> str:
    counts = rows.groupby("arm", observed=True)["outcome"].value_counts().unstack(fill_value=0)
    said = "; ".join(
        f"{arm}: " + ", ".join(f"{number} {outcome}" for outcome, number in row.items() if number)
        for arm, row in counts.iterrows()
    )
    drifts = ", ".join(str(event["before"]) for event in run.config["drift_events"])
    return f"Grid of arms by episodes, coloured by outcome; drift before episode {drifts}. {said}."
