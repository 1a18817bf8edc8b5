"""The figure of the experience study:

Every arm on the plane of attempts per success and stale evidence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from crossmem.experience.arms import EXPERIENCE_ARMS, ExperienceArm
from crossmem.experience.measures import plane as plane_of
from crossmem.picture import Picture
from crossmem.prose import count

if TYPE_CHECKING:
    import pandas as pd

    from crossmem.results import Run

_MARKS = {"core": ("s", "black"), "faithful": ("o", "#d55e00"), "fixed": ("^", "#0173b2")}


def plane(run: Run) -> Picture:
    """Draw attempts per success against the share of stale evidence;

    Arms at one place share a label.
    """
    table = plane_of(run).fillna({"stale_evidence": 0.0}).dropna(subset=["attempts_per_success"])
    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    for kind, (mark, colour) in _MARKS.items():
        of_kind = table[[_kind(str(arm)) == kind for arm in table.index]]
        axes.scatter(
            of_kind["stale_evidence"],
            of_kind["attempts_per_success"],
            marker=mark,
            color=colour,
            alpha=0.75,
            label=kind,
        )
    places = _together(table)
    for number, (x, y) in enumerate(places, start=1):
        axes.annotate(str(number), (x, y), xytext=(6, -3), textcoords="offset points", fontsize=8)
    key = "\n".join(f"{number}  {names}" for number, names in enumerate(places.values(), start=1))
    axes.text(1.02, 1.0, key, transform=axes.transAxes, va="top", fontsize=8, linespacing=1.5)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set(xlabel="stale evidence: share of recalled entries of another version than the live one")
    axes.set(ylabel="attempts per success")
    who = "scripted agent" if run.scripted else run.config["parameters"]["model"]
    axes.set_title(f"What outdated experience costs ({who})", loc="left", fontweight="bold")
    axes.margins(x=0.08, y=0.1)
    axes.legend(frameon=False, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
    said = "; ".join(
        f"{arm} {count(row.attempts_per_success)} attempts, {row.stale_evidence:.0%} stale"
        for arm, row in table.iterrows()
    )
    return Picture(figure, f"Scatter of attempts per success by share of stale evidence. {said}.")


def _kind(arm: str) -> str:
    known = EXPERIENCE_ARMS.get(arm)
    return known.variant if isinstance(known, ExperienceArm) else "core"


def _together(table: pd.DataFrame) -> dict[tuple[float, float], str]:
    """Return the arms that lie at one place, top to bottom, two to a line."""
    places: dict[tuple[float, float], list[str]] = {}
    for arm, row in table.sort_values(["attempts_per_success", "stale_evidence"])[::-1].iterrows():
        at = float(row.stale_evidence), float(row.attempts_per_success)
        places.setdefault(at, []).append(str(arm))
    return {
        at: ",\n     ".join(", ".join(names[n : n + 2]) for n in range(0, len(names), 2))
        for at, names in places.items()
    }
