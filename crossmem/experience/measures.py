"""Tables of an experience run: how current what was recalled is, what it cost, how soon an arm
recovers.

Every figure is computed per arm and replicate and averaged over replicates. They hold for the core's
arms as well, read off the same attempts; what only this room's memories report is missing there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pandas as pd

from crossmem.analysis import metrics
from crossmem.experience.arms import EXPERIENCE_ARMS

if TYPE_CHECKING:
    from crossmem.harness.records import Attempt
    from crossmem.harness.results import Run


def summary(run: Run) -> pd.DataFrame:
    """Return one row per arm: outcomes, tokens, how current the evidence was, what was written.

    `stale_evidence` and `contradictions` are shares in [0, 1], `stale_hits` the share of summaries
    served from the cache that no longer said what one made now would; bytes are per episode.
    """
    table = metrics.measure(metrics.episodes(run), ["arm"])
    outcomes = ["success_rate", "attempts", "stale_attempts", "poisoned_attempts", "tokens_per_success"]
    return table[outcomes].join([evidence(run), reported(run)])


def plane(run: Run) -> pd.DataFrame:
    """Return attempts per success and stale evidence per arm: the plane of the figure."""
    table = metrics.measure(metrics.episodes(run), ["arm"])
    per_success = table["attempts"] / table["successes"].where(table["successes"] > 0)
    return pd.DataFrame({"attempts_per_success": per_success}).join(evidence(run))


def evidence(run: Run) -> pd.DataFrame:
    """Return per arm how much of what was recalled is outdated or contradicts itself.

    `stale_evidence`: of the recalled entries whose table the episode consulted, the share learned or
    re-stamped under another version than the one in force. `contradictions`: of the episodes that
    recalled anything, the share in which one key came with several values.
    """
    found = pd.DataFrame(
        [(each.row.arm, each.row.replicate, *_looked_at(each.attempts)) for each in run.episodes],
        columns=["arm", "replicate", "known", "outdated", "recalling", "contradicting"],
    )
    per = found.groupby(["arm", "replicate"]).sum()
    shares = pd.DataFrame(
        {
            "stale_evidence": per["outdated"] / per["known"].where(per["known"] > 0),
            "contradictions": per["contradicting"] / per["recalling"].where(per["recalling"] > 0),
        }
    )
    return _by_arm(run, shares)


def _looked_at(made: list[Attempt]) -> tuple[int, int, int, int]:
    """Return of one episode: entries of known currency, outdated ones, and two flags as 0 or 1."""
    live: dict[str, str] = {}
    for attempt in made:
        live.update(attempt.stamps)
    recalled = made[0].recalled
    known = [(each.version, live[each.table]) for each in recalled if each.table and each.table in live]
    outdated = sum(version != present for version, present in known)
    values: dict[str, set[str]] = {}
    for each in recalled:
        values.setdefault(json.dumps(each.key), set()).add(json.dumps(each.value))
    return len(known), outdated, int(bool(recalled)), int(any(len(v) > 1 for v in values.values()))


def reported(run: Run) -> pd.DataFrame:
    """Return per arm what its memory reported: bytes written, context tokens, summaries."""
    records = [
        {
            "arm": each.row.arm,
            "replicate": each.row.replicate,
            **({"written": event.value} if event.kind == "write" else event.value),
        }
        for each in run.episodes
        for event in each.events
        if event.kind in {"serve", "write"}
    ]
    names = ["written", "tokens", "cut", "calls", "hits", "stale_hits"]
    frame = pd.DataFrame(records, columns=["arm", "replicate", *names])
    frame["cut"] = frame["cut"].str.len()
    per = frame.groupby(["arm", "replicate"])[names].sum(min_count=1)
    shares = pd.DataFrame(
        {
            "bytes_written": per["written"] / run.length,
            "context_tokens": per["tokens"] / run.length,
            "items_cut": per["cut"] / run.length,
            "summaries_made": per["calls"],
            "stale_hits": per["stale_hits"] / per["hits"].where(per["hits"] > 0),
        },
        dtype=float,
    )
    return _by_arm(run, shares)


def recovery(run: Run) -> pd.DataFrame:
    """Return, per arm and drift, the episodes until both halves were solved at the first try again.

    Counted from the drift on, over the family that the drifting table governs; missing where a half
    was not solved at the first try before the next drift.
    """
    rows = metrics.episodes(run)
    rows = rows[(rows["drift_epoch"] > 0) & (rows["family"] == metrics.slot_family(run))]
    begins = {n: event["before"] for n, event in enumerate(run.config["drift_events"], start=1)}
    found = [
        (arm, replicate, epoch, _recovered(group) - begins[int(str(epoch))] + 1)
        for (arm, replicate, epoch), group in rows.groupby(
            ["arm", "replicate", "drift_epoch"], observed=True
        )
    ]
    frame = pd.DataFrame(found, columns=["arm", "replicate", "epoch", "episodes"])
    table: pd.DataFrame = frame.groupby(["arm", "epoch"])["episodes"].mean().unstack("epoch")
    table.columns = pd.Index([f"drift {epoch}" for epoch in table.columns])
    return table.reindex([arm for arm in run.arms if arm in table.index])


def _recovered(group: pd.DataFrame) -> float:
    """Return the episode at which the last of the halves was first solved at the first try."""
    first = [
        half.loc[half["first_try"], "index"].min() if half["first_try"].any() else float("nan")
        for _, half in group.groupby("drift_row")
    ]
    return float("nan") if any(map(pd.isna, first)) else float(max(first))


def hysteresis(run: Run) -> pd.DataFrame:
    """Return, per arm, the first-try rate before, in and after the window of the tight byte budget.

    Before and after are equally many `episodes`: as many as the window has, if there are as many.
    `hysteresis` = after less before: what the tight budget left behind once it was gone, to be read
    against an arm without budget. Without the memories of attempts, which have none. Empty where the
    stream has no such window with episodes on both sides.
    """
    steps = run.config["budget"]
    begin = next((step["before"] for step in steps if step["bytes"] is not None), 0)
    end = next((s["before"] for s in steps if s["bytes"] is None and s["before"] > begin), run.length)
    around = min(begin, end - begin, run.length - end)
    if around <= 0:
        return pd.DataFrame()
    windows = {
        "before": (begin - around, begin),
        "in the window": (begin, end),
        "after": (end, end + around),
    }
    rows = metrics.episodes(run)
    rows = rows[~rows["arm"].isin(EXPERIENCE_ARMS)]
    table = pd.DataFrame(
        {
            name: rows[rows["index"].between(low, high - 1)]
            .groupby("arm", observed=True)["first_try"]
            .mean()
            for name, (low, high) in windows.items()
        }
    )
    table["hysteresis"] = table["after"] - table["before"]
    table["episodes"] = around
    return table


def _by_arm(run: Run, per: pd.DataFrame) -> pd.DataFrame:
    table: pd.DataFrame = per.groupby(level="arm").mean()
    return table.reindex([arm for arm in run.arms if arm in table.index])
