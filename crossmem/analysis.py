"""Tables of a run: per arm, per window, per memory event. What they say stands in `findings.py`.

The unit is one stream replicate: every figure is computed per (arm, replicate) over its window and then
averaged over replicates. Tokens per success = all tokens of the window / successes in it, missing where
nothing succeeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from crossmem.domains import domain

if TYPE_CHECKING:
    from crossmem.results import Run

OUTCOMES = (
    "first try",
    "cold retry",
    "stale attempt",
    "poisoned attempt",
    "other retry",
    "failed",
)
"""What became of an episode, for the figures."""

EVENT_KINDS = ("admit", "relearn", "confirm", "hit", "refuse", "invalidate", "restamp", "evict")


def episodes(run: Run) -> pd.DataFrame:
    """Return the rows of a run with their `outcome`; arms and outcomes are ordered categories."""
    rows = run.rows.copy()
    outcome = pd.Series("other retry", index=rows.index)
    for name, flag in (  # a later one that fits overrules an earlier one
        ("first try", rows["first_try"]),
        ("cold retry", rows["cold_retry"]),
        ("poisoned attempt", rows["poisoned"]),
        ("stale attempt", rows["stale_attempt"]),
        ("failed", ~rows["success"]),
    ):
        outcome[flag] = name
    rows["outcome"] = pd.Categorical(outcome, OUTCOMES, ordered=True)
    rows["arm"] = pd.Categorical(rows["arm"], run.arms, ordered=True)
    return rows


def measure(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the figures of each group: summed over a replicate, then averaged over replicates.

    Counts are means per replicate, rates lie in [0, 1], tokens are per success.
    """
    groups = rows.groupby([*by, "replicate"], observed=True)
    per = groups.agg(
        episodes=("index", "size"),
        successes=("success", "sum"),
        attempts=("attempts", "sum"),
        first_tries=("first_try", "sum"),
        cold_retries=("cold_retry", "sum"),
        stale_attempts=("stale_attempt", "sum"),
        outdated_uses=("outdated_use", "sum"),
        poisoned_attempts=("poisoned", "sum"),
        tokens=("total_tokens", "sum"),
        peak_bytes=("bytes", "max"),
    )
    per["success_rate"] = per["successes"] / per["episodes"]
    per["first_try_rate"] = per["first_tries"] / per["episodes"]
    per["tokens_per_success"] = per["tokens"] / per["successes"].where(per["successes"] > 0)
    return per.groupby(level=by, observed=True).mean()


def summary(run: Run) -> pd.DataFrame:
    """Return one row per arm over the whole stream."""
    return measure(episodes(run), ["arm"])


def windows(run: Run, family: str | None = None) -> pd.DataFrame:
    """Return one row per arm and drift epoch, of one family only if named."""
    rows = episodes(run)
    if family:
        rows = rows[rows["family"] == family]
    return measure(rows, ["arm", "drift_epoch"])


def post_drift(run: Run) -> pd.DataFrame:
    """Return one row per arm over all episodes after the first drift."""
    rows = episodes(run)
    return measure(rows[rows["drift_epoch"] > 0], ["arm"])


def memory_events(run: Run) -> pd.DataFrame:
    """Count memory events per arm and kind, per replicate; kinds that never occur are left out."""
    counts = (
        run.events.groupby(["arm", "kind"])
        .size()
        .unstack(fill_value=0)
        .reindex(index=run.arms, columns=list(EVENT_KINDS), fill_value=0)
    )
    counts.index.name, counts.columns.name = "arm", None
    seen: pd.DataFrame = counts.loc[:, (counts > 0).any()]
    replicates = int(run.config["parameters"]["replicates"])
    return seen / replicates


def compositions(run: Run) -> pd.DataFrame:
    """Return the policies of each arm, as the run's config holds them."""
    table = pd.DataFrame(run.config["arms"]).set_index("name")
    table.index.name = "arm"
    words = table.map(lambda value: str(value).replace("_", " "))
    return words.rename(columns=lambda name: str(name).replace("_", " "))


def slot_family(run: Run) -> str:
    """Return the family that the drifting table governs."""
    return domain(run.config["domain"]).slot_family
