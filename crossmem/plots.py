"""Figures of a run. Each is a `Picture`: a PNG with its alt text, computed from the same rows."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import matplotlib as mpl
import seaborn as sns
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from crossmem import analysis
from crossmem.findings import count

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.container import BarContainer

    from crossmem.results import Run

_BLIND = sns.color_palette("colorblind").as_hex()
COLOURS = {
    "first try": "#e3e7ea",
    "cold retry": _BLIND[9],
    "stale attempt": _BLIND[3],
    "poisoned attempt": _BLIND[4],
    "other retry": _BLIND[8],
    "failed": "#222222",
}
"""Colour-blind-safe; each outcome but the first try also has a letter, so that colour is not all."""
LETTERS = {
    "first try": "",
    "cold retry": "c",
    "stale attempt": "S",
    "poisoned attempt": "P",
    "other retry": "o",
    "failed": "F",
}
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
}


@dataclass(frozen=True)
class Picture:
    """A drawn figure and what it shows in words."""

    figure: Figure
    alt: str

    @cached_property
    def png(self) -> bytes:
        """The figure as a PNG at twice the size it is shown at."""
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png", dpi=200, metadata={"Software": None})
        return buffer.getvalue()

    def save(self, path: Path) -> Path:
        """Write the PNG and return where it lies."""
        path.write_bytes(self.png)
        return path

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        width = round(self.figure.get_figwidth() * 100)
        return (
            {"image/png": self.png, "text/plain": self.alt},
            {"image/png": {"alt": self.alt, "width": width}},
        )


def strip(run: Run) -> Picture:
    """Draw what became of each episode in each arm, a line at every drift."""
    rows = analysis.episodes(run)
    first = rows[rows["replicate"] == rows["replicate"].min()]
    grid = first.pivot(index="arm", columns="index", values="outcome").astype(str)
    with mpl.rc_context(_STYLE):
        figure = _figure(10, 1.5 + 0.34 * len(grid))
        axes = figure.subplots()
        sns.heatmap(
            grid.map(analysis.OUTCOMES.index),
            ax=axes,
            cmap=ListedColormap([COLOURS[outcome] for outcome in analysis.OUTCOMES]),
            vmin=-0.5,
            vmax=len(analysis.OUTCOMES) - 0.5,
            annot=grid.map(LETTERS.__getitem__),
            fmt="",
            annot_kws={"size": 8},
            cbar=False,
            linewidths=1.5,
            linecolor="white",
        )
        _mark_drifts(axes, run, offset=0.0)
        _label_episodes(axes, first)
        axes.set_title(_titled(run, "What became of each episode"), pad=18)
        _outcome_legend(figure, set(grid.stack()))
    return Picture(figure, _strip_alt(run, first))


def tokens(run: Run) -> Picture:
    """Draw tokens per success before and after the first drift."""
    rows = analysis.episodes(run)
    rows["window"] = rows["drift_epoch"].map(lambda epoch: "after the drift" if epoch else "before")
    table = analysis.measure(rows, ["arm", "window"])["tokens_per_success"]
    with mpl.rc_context(_STYLE):
        figure = _figure(8, 3.6)
        axes = figure.subplots()
        sns.barplot(
            table.rename("tokens").reset_index(),
            x="arm",
            y="tokens",
            hue="window",
            hue_order=["before", "after the drift"],
            palette=[_BLIND[7], _BLIND[0]],
            ax=axes,
        )
        for bars in axes.containers:
            axes.bar_label(cast("BarContainer", bars), fmt="{:,.0f}", fontsize=8, padding=1)
        axes.set(xlabel="arm", ylabel=f"{_source(run)} tokens per success")
        axes.set_title(_titled(run, "What a success costs, before and after the drift"))
        axes.legend(title=None, frameon=False, ncols=2, loc="upper right")
        axes.margins(y=0.18)
        sns.despine(figure)
    said = "; ".join(
        f"{arm} {window} {count(tokens)}" for arm, window, tokens in table.reset_index().to_numpy()
    )
    return Picture(figure, f"Bars of {_source(run)} tokens per success by arm and window: {said}.")


def memory(run: Run) -> Picture:
    """Draw entries and bytes held after each episode, with the byte budget where one is in force."""
    rows = analysis.episodes(run)
    rows = rows[(rows["replicate"] == rows["replicate"].min()) & (rows["arm"] != "A0")]
    rows["arm"] = rows["arm"].cat.remove_unused_categories()
    with mpl.rc_context(_STYLE):
        figure = _figure(10, 3.8)
        left, right = figure.subplots(1, 2)
        _held(left, run, rows, "entries")
        _held(right, run, rows, "bytes")
        left.legend(title=None, frameon=False, fontsize=8, loc="lower right", ncols=2)
        right.get_legend().remove()
        _mark_budget(right, rows)
        title = _titled(run, "What each memory holds after each episode")
        figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    peaks = rows.groupby("arm", observed=True)[["entries", "bytes"]].max()
    said = "; ".join(
        f"{arm} {peak.entries} entries, {peak.bytes:,} bytes" for arm, peak in peaks.iterrows()
    )
    return Picture(
        figure, f"Lines of entries and bytes held per arm over the episodes. Most held: {said}."
    )


def _held(axes: Axes, run: Run, rows: pd.DataFrame, column: str) -> None:
    sns.lineplot(
        rows,
        x="index",
        y=column,
        hue="arm",
        style="arm",
        palette="colorblind",
        drawstyle="steps-post",
        errorbar=None,
        ax=axes,
    )
    _mark_drifts(axes, run, offset=-0.5)
    axes.set(xlabel="episode", ylabel=f"{column} held", ylim=(0, None))
    sns.despine(ax=axes)


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _titled(run: Run, title: str) -> str:
    return f"{title} ({'scripted agent' if run.scripted else run.config['parameters']['model']})"


def _source(run: Run) -> str:
    return "estimated" if (run.rows["tokens_source"] == "estimated").all() else "reported"


def _mark_drifts(axes: Axes, run: Run, offset: float) -> None:
    for event in run.config["drift_events"]:
        at = event["before"] + offset
        axes.axvline(at, color="black", linewidth=1.6, linestyle=(0, (4, 2)))
        axes.annotate(
            f"drift to {event['snapshot']}",
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


def _label_episodes(axes: Axes, rows: pd.DataFrame) -> None:
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
    axes.set_yticks(axes.get_yticks(), [each.get_text() for each in axes.get_yticklabels()], rotation=0)
    axes.tick_params(length=0)
    axes.set(xlabel="episode and family of its task", ylabel="")


def _outcome_legend(figure: Figure, seen: set[str]) -> None:
    patches = [
        Patch(facecolor=COLOURS[name], label=f"{name} ({LETTERS[name]})" if LETTERS[name] else name)
        for name in analysis.OUTCOMES
        if name in seen
    ]
    figure.legend(handles=patches, ncols=len(patches), loc="outside lower center", frameon=False)


def _strip_alt(run: Run, rows: pd.DataFrame) -> str:
    counts = rows.groupby("arm", observed=True)["outcome"].value_counts().unstack(fill_value=0)
    said = "; ".join(
        f"{arm}: " + ", ".join(f"{number} {outcome}" for outcome, number in row.items() if number)
        for arm, row in counts.iterrows()
    )
    drifts = ", ".join(str(event["before"]) for event in run.config["drift_events"])
    return f"Grid of arms by episodes, coloured by outcome; drift before episode {drifts}. {said}."
