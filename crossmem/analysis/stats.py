"""Intervals over replicates: episodes of a stream are not independent, the unit is one replicate.

Figures get Student's t interval over their replicate values; differences are paired, since all arms of
a replicate saw the same stream. Under `MIN_REPLICATES` no interval is given, and `why_none` says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from crossmem.analysis import metrics

if TYPE_CHECKING:
    from crossmem.harness.results import Run

MIN_REPLICATES = 5
CONFIDENCE = 0.95
PAIRS = (("A2D", "A2"), ("A2", "A0"), ("A2", "LWG"))
FIGURES = ("attempts", "tokens_per_success", "first_try_rate")


def why_none(run: Run) -> str | None:
    """Return why a run carries no intervals, None if it does."""
    replicates = run.config["parameters"]["replicates"]
    if run.scripted and not run.config.get("draws"):
        return "No interval is given: with the scripted agent seed and replicates vary nothing."
    if replicates >= MIN_REPLICATES:
        return None
    few = "one is" if replicates == 1 else f"{replicates} of them are"
    why = (
        f"No interval is given: the unit is one replicate of the whole stream, and {few} too few to "
        f"estimate a spread from ({MIN_REPLICATES} are needed)."
    )
    if run.scripted:
        why += " With the scripted agent they differ only in the parents that some memories draw."
    return why


@dataclass(frozen=True)
class Interval:
    """A mean over replicates and its interval; NaN bounds where under `MIN_REPLICATES` have a value."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """A word on whether the value can be told from zero."""
        if math.isnan(self.low):
            return "no interval"
        return "differs from zero" if self.low > 0 or self.high < 0 else "cannot be told from zero"


def intervals(rows: pd.DataFrame, figure: str) -> dict[str, Interval]:
    """Return the interval of a figure of `metrics.measure` for each arm in `rows`."""
    return {
        str(arm): interval(values.droplevel("arm"))
        for arm, values in per_replicate(rows)[figure].groupby(level="arm", observed=True)
    }


def differences(run: Run) -> pd.DataFrame:
    """Return the paired differences of `PAIRS`: mean, low, high and verdict per pair and figure.

    Differences of rates are in percentage points.
    """
    units = per_replicate(metrics.episodes(run))
    table = {}
    for left, right in (pair for pair in PAIRS if metrics.has(run, *pair)):
        for figure in FIGURES:
            points = 100 if figure.endswith("_rate") else 1
            each = interval(points * (units.loc[left][figure] - units.loc[right][figure]))
            label = figure.replace("_rate", "_rate, percentage points")
            table[f"{left} - {right}", label] = (each.mean, each.low, each.high, each.verdict)
    index = pd.MultiIndex.from_tuples(table, names=["difference", "figure"])
    return pd.DataFrame([*table.values()], index, ["mean", "low", "high", "verdict"])


def per_replicate(rows: pd.DataFrame, by: Sequence[str] = ("arm",)) -> pd.DataFrame:
    """Return the figures of `metrics.measure` per group and replicate, which is called `unit`."""
    return metrics.measure(rows.assign(unit=rows["replicate"]), [*by, "unit"])


def interval(values: pd.Series[float]) -> Interval:
    """Return mean and Student's t interval of the replicate values that are there."""
    known = values.dropna()
    mean = float(known.mean())
    if len(known) < MIN_REPLICATES:
        return Interval(mean, math.nan, math.nan)
    rounding = 1e-9 * max(1.0, float(known.abs().max()))
    if known.max() - known.min() <= rounding:  # without any spread scipy would warn and give NaN
        return Interval(mean, mean, mean)
    from scipy import stats

    low, high = stats.ttest_1samp(known, 0.0).confidence_interval(CONFIDENCE)
    return Interval(mean, float(low), float(high))
