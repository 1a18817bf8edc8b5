"""Frames of a run: per arm, per window, per memory event. What they say stands in `findings`.

The unit is one stream replicate: every figure is computed per (arm, replicate) over its window and then
averaged over replicates. Tokens per success = all tokens of the window / successes in it, missing where
nothing succeeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

import pandas as pd

from crossmem.domains import domain
from crossmem.harness.judge import OUTSIDE
from crossmem.memory.arms import BOUND
from crossmem.memory.policies import Kind

if TYPE_CHECKING:
    from crossmem.harness.records import Row
    from crossmem.harness.results import Run

OUTCOMES = (
    *("first try", "cold retry", "stale attempt", "poisoned attempt", "other retry"),
    *("declined", "provider failed", "failed"),
)
"""What became of an episode, for the figures."""

_SUMS = {
    "success": "successes",
    "attempts": "attempts",
    "first_try": "first_tries",
    "cold_retry": "cold_retries",
    "stale_attempt": "stale_attempts",
    "outdated_use": "outdated_uses",
    "poisoned": "poisoned_attempts",
    "total_tokens": "tokens",
    "unmeasured": "unmeasured",
}
"""The columns of the rows that are summed over a window, and what their sums are called."""


def episodes(run: Run, family: str | None = None) -> pd.DataFrame:
    """Return the rows of a run with their `outcome`, of one family only if named.

    Arms and outcomes are ordered categories.
    """
    rows = run.rows.copy()
    rows["outcome"] = pd.Categorical(
        [outcome_of(each.row) for each in run.episodes], OUTCOMES, ordered=True
    )
    rows["arm"] = pd.Categorical(rows["arm"], run.arms, ordered=True)
    rows["unmeasured"] = rows["failed_by"].isin(OUTSIDE)
    return rows[rows["family"] == family] if family else rows


def outcome_of(row: Row) -> str:
    """Return what became of an episode: the first of these that fits."""
    fits = {
        "declined": row.failed_by == "declined",
        "provider failed": row.failed_by == "provider",
        "failed": not row.success,
        "stale attempt": row.stale_attempt,
        "poisoned attempt": row.poisoned,
        "cold retry": row.cold_retry,
        "first try": row.first_try,
        "other retry": True,
    }
    return next(outcome for outcome, fit in fits.items() if fit)


def measure(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the figures of each group: summed over a replicate, then averaged over replicates.

    Counts are means per replicate, rates lie in [0, 1], tokens are per success.
    """
    groups = rows.groupby([*by, "replicate"], observed=True)
    per = groups[list(_SUMS)].sum().rename(columns=_SUMS)  # at once: a column at a time takes thrice
    per.insert(0, "episodes", groups.size())
    per["peak_bytes"] = groups["bytes"].max()
    per["success_rate"] = per["successes"] / per["episodes"]
    per["first_try_rate"] = per["first_tries"] / per["episodes"]
    per["tokens_per_success"] = per["tokens"] / per["successes"].where(per["successes"] > 0)
    return per.groupby(level=by, observed=True).mean()


def summary(run: Run) -> pd.DataFrame:
    """Return one row per arm over the whole stream; `regret` is attempts above the bound's.

    It is missing where the run has no bound.
    """
    table = measure(episodes(run), ["arm"])
    bound = value(table, BOUND.name, "attempts") if has(run, BOUND.name) else float("nan")
    table["regret"] = table["attempts"] - bound
    return table


def post_drift(run: Run) -> pd.DataFrame:
    """Return one row per arm over all episodes after the first drift."""
    rows = episodes(run)
    return measure(rows[rows["drift_epoch"] > 0], ["arm"])


def windows(run: Run, family: str | None = None) -> pd.DataFrame:
    """Return one row per arm and drift epoch, of one family only if named."""
    return measure(episodes(run, family), ["arm", "drift_epoch"])


def by_epoch(run: Run, figure: str, family: str | None = None) -> pd.DataFrame:
    """Return one figure as arms by drift epochs, of one family only if named."""
    table = windows(run, family)[figure].unstack("drift_epoch")
    table.columns = pd.Index([f"epoch {epoch}" for epoch in table.columns])
    return table


def unsolved_by_arm(run: Run) -> dict[str, float]:
    """Return how many episodes each arm left unsolved, of those that left any."""
    table = summary(run)
    failed = per_arm(table.assign(failed=table["episodes"] - table["successes"]), "failed")
    return {arm: number for arm, number in failed.items() if number > 0}


def unsolved(run: Run) -> pd.DataFrame:
    """Return every episode that failed, with whose failure it is and why."""
    rows = run.rows[~run.rows["success"]]
    return rows[["arm", "index", "family", "attempts", "failed_by", "error"]].reset_index(drop=True)


def memory_events(run: Run) -> pd.DataFrame:
    """Count memory events per arm and kind, per replicate; kinds that never occur are left out."""
    counts = (
        run.events.groupby(["arm", "kind"])
        .size()
        .unstack(fill_value=0)
        .reindex(index=run.arms, columns=list(get_args(Kind)), fill_value=0)
    )
    counts.index.name, counts.columns.name = "arm", None
    seen = counts.loc[:, (counts > 0).any()]
    return seen.div(int(run.config["parameters"]["replicates"]))


def compositions(run: Run) -> pd.DataFrame:
    """Return the policies of each arm, as the run's config holds them."""
    table = pd.DataFrame(run.config["arms"], dtype=object).set_index("name").fillna("nothing")
    table.index.name = "arm"
    words = table.map(lambda value: str(value).replace("_", " "))
    return words.rename(columns=lambda name: str(name).replace("_", " "))


def slot_rows(run: Run) -> pd.DataFrame:
    """Return the rows of the stale-attempt slots: the slot family's first episode after each drift."""
    rows = episodes(run, slot_family(run))
    after = rows[rows["drift_epoch"] > 0]
    first = after.groupby("drift_epoch")["index"].transform("min")
    return after[after["index"] == first]


def slot_outcomes(run: Run) -> pd.DataFrame:
    """Return what became of each slot in the first replicate, arms by drift epochs."""
    slots = slot_rows(run)
    slots = slots[slots["replicate"] == slots["replicate"].min()]
    titles = [
        f"epoch {row.drift_epoch}: {row.drift_row}, episode {row.index}"
        for row in slots.rename_axis("place").reset_index().itertuples(index=False)
    ]
    table = slots.assign(slot=titles).pivot(index="arm", columns="slot", values="outcome")
    table.columns.name = None
    return pd.DataFrame(table.astype(str))


def dividend(run: Run) -> pd.DataFrame:
    """Return the granularity dividend, attempts of A2 minus attempts of A2D, per drift epoch.

    A column per half of the drifting table, one per family that does not consult it, and the total;
    empty where the run lacks one of the two arms. Means over replicates.
    """
    if not has(run, "A2", "A2D"):
        return pd.DataFrame()
    rows = episodes(run)
    rows["drift_row"] = rows["drift_row"].fillna(rows["family"] + " tasks")
    by = ["replicate", "drift_epoch", "drift_row", "arm"]
    attempts = rows.groupby(by, observed=True)["attempts"].sum().unstack("arm")
    saved = attempts["A2"] - attempts["A2D"]
    table = saved.groupby(["drift_epoch", "drift_row"]).mean().unstack("drift_row")
    halves_first = sorted(map(str, table), key=lambda half: (half.endswith(" tasks"), half))
    table = table[halves_first].rename_axis(columns=None)
    table["total"] = table.sum(axis=1)
    return table


def slot_family(run: Run) -> str:
    """Return the family that the drifting table governs."""
    return domain(run.config["domain"]).slot_family


def stable_families(run: Run) -> list[str]:
    """Return the families of the run's tasks that the drifting table does not govern."""
    return [str(family) for family in run.rows["family"].unique() if family != slot_family(run)]


def per_arm(table: pd.DataFrame, column: str) -> dict[str, float]:
    """Return one figure of a table that has one row per arm."""
    return {str(arm): float(value) for arm, value in table[column].items()}


def value(table: pd.DataFrame, row: str, column: str) -> float:
    """Return one figure of a table."""
    return float(cast("float", table.at[row, column]))


def has(run: Run, *arms: str) -> bool:
    """Tell whether a run holds all of the `arms`."""
    return set(arms) <= set(run.arms)
