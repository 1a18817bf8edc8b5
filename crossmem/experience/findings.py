"""What an experience run says, in words that are computed from its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from crossmem.analysis import metrics
from crossmem.analysis.display import Prose, against, count, grouped, joined
from crossmem.analysis.metrics import per_arm
from crossmem.analysis.ranking import why_unranked
from crossmem.experience.arms import EXPERIENCE_ARMS, VARIANTS, together
from crossmem.experience.measures import evidence, hysteresis, reported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crossmem.analysis.display import Table
    from crossmem.experience.arms import ExperienceArm
    from crossmem.harness.results import Run


def finding(run: Run) -> Prose:
    """Say which memories of attempts paid, what governance and repairs took away, and what did not."""
    ours = [EXPERIENCE_ARMS[arm] for arm in run.arms if arm in EXPERIENCE_ARMS]
    if unranked := why_unranked(run):
        return Prose(tuple(filter(None, (unranked, _idle(run, ours), _nothing_fitted(run)))))
    table = metrics.summary(run)
    attempts, stale = per_arm(table, "attempts"), per_arm(table, "stale_attempts")
    failed = metrics.unsolved_by_arm(run)
    said = [
        f"Not every episode succeeded. Failed: {grouped(failed)}." if failed else "",
        _fewest(ours, attempts, run.length) if ours else "",
        *_governed(run, ours, stale),
        _variants(ours, attempts),
        _bypass(stale),
        _idle(run, ours),
        _forgiving(run),
        _nothing_fitted(run),
    ]
    return Prose(tuple(filter(None, said)) or ("No memory of attempts is among the arms.",))


def spread(run: Run) -> Prose | Table:
    """Return attempts and stale attempts with their intervals, or the words why there are none."""
    from crossmem.analysis import display, stats

    if why := stats.why_none(run):
        return Prose((why,), "notice")
    rows = metrics.episodes(run)
    found = {
        figure.replace("_", " "): {
            arm: f"{count(each.mean)} [{count(each.low)}, {count(each.high)}]"
            for arm, each in stats.intervals(rows, figure).items()
        }
        for figure in ("attempts", "stale_attempts")
    }
    number = run.config["parameters"]["replicates"]
    caption = f"Means over {number} replicates, with their 95 % intervals"
    return display.show(pd.DataFrame(found).reindex(run.arms).rename_axis("arm"), caption)


def _fewest(ours: list[ExperienceArm], attempts: dict[str, float], length: int) -> str:
    of_each = {arm.name: attempts[arm.name] for arm in ours}
    fewest = min(of_each.values())
    best = [name for name, number in of_each.items() if number == fewest]
    text = (
        f"Of the memories of attempts {together(best)} needed the fewest: {count(fewest)} over "
        f"{length} episodes"
    )
    beside = [
        f"{against(fewest, attempts[arm], 'attempt')} {arm}"
        for arm in ("A0", "LWG", "A2", "A2D")
        if arm in attempts
    ]
    return f"{text}; {joined(beside)}." if beside else f"{text}."


def _governed(run: Run, ours: list[ExperienceArm], stale: dict[str, float]) -> Iterator[str]:
    """Say what governance does to stale evidence and stale attempts, over the pairs of the run."""
    shares = evidence(run)["stale_evidence"]
    for rule in ("A2", "A2D"):
        pairs = [
            (arm.name, f"{arm.name}.{rule}")
            for arm in ours
            if arm.governed == "none" and f"{arm.name}.{rule}" in run.arms
        ]
        pairs = [pair for pair in pairs if not shares.loc[list(pair)].isna().any()]
        if not pairs:
            continue
        fewer = [pair for pair in pairs if stale[pair[1]] < stale[pair[0]]]
        before, after = (_between(shares[list(side)]) for side in zip(*pairs, strict=True))
        all_of = f"all {len(pairs)}" if len(fewer) == len(pairs) else f"{len(fewer)} of {len(pairs)}"
        yield (
            f"Governed as {rule}, {all_of} of these memories paid fewer stale attempts, and the stale "
            f"share of what they recalled went from {before} to {after}."
        )


def _variants(ours: list[ExperienceArm], attempts: dict[str, float]) -> str:
    """Say what removing the weaknesses saves each ungoverned component in attempts."""
    saved = {
        component: attempts[f"{component}.faithful"] - attempts[f"{component}.fixed"]
        for component in dict.fromkeys(arm.component for arm in ours)
        if all(f"{component}.{each}" in attempts for each in VARIANTS)
    }
    if not saved:
        return ""
    listed = joined(f"{component} {_more(number)}" for component, number in saved.items())
    return f"Attempts that the fixed variant needs against the faithful one, ungoverned: {listed}."


def _between(shares: pd.Series[float]) -> str:
    least, most = f"{shares.min():.0%}", f"{shares.max():.0%}"
    return least if least == most else f"between {least} and {most}"


def _more(fewer: float) -> str:
    return f"{count(abs(fewer))} {'fewer' if fewer > 0 else 'more'}" if fewer else "as many"


def _bypass(stale: dict[str, float]) -> str:
    """Say so where summaries cached by id serve what governance has dropped."""
    paid = [
        f"{count(stale[rich] - stale[cards], 'stale attempt')} under {rule}"
        for rule in ("A2", "A2D")
        if (rich := f"rich.faithful.{rule}") in stale
        and (cards := f"cards.faithful.{rule}") in stale
        and stale[rich] > stale[cards]
    ]
    if not paid:
        return ""
    return (
        f"Summaries cached by id bypass governance and add {joined(paid)} to those of governed cards."
    )


def _idle(run: Run, ours: list[ExperienceArm]) -> str:
    """Say which memories never put a lesson before the agent."""
    recalled = run.rows.groupby("arm")["recalled"].sum()
    idle = [arm.name for arm in ours if not recalled[arm.name]]
    if not idle:
        return ""
    return (
        f"{together(idle)} put no lesson before any first attempt, at most words about earlier "
        "attempts."
    )


def _forgiving(run: Run) -> str:
    table = hysteresis(run)
    if table.empty or not metrics.has(run, "A3", "A3C"):
        return ""
    left = {arm: metrics.value(table, arm, "hysteresis") for arm in ("A3", "A3C")}
    beside = (
        f", A2, which has no budget, {metrics.value(table, 'A2', 'hysteresis'):+.0%}"
        if metrics.has(run, "A2")
        else ""
    )
    number = count(metrics.value(table, "A3", "episodes"), "episode")
    return (
        f"First-try rate in the {number} after the tight byte budget, less that in as many before it: "
        f"A3 {left['A3']:+.0%}, A3C {left['A3C']:+.0%}{beside}."
    )


def _nothing_fitted(run: Run) -> str:
    """Name the arms whose token budget is below their smallest item."""
    table = reported(run)
    none = table[(table["items_cut"] > 0) & (table["context_tokens"] == 0)]
    if none.empty:
        return ""
    budget, arms = run.config["parameters"]["context_tokens"], [str(arm) for arm in none.index]
    return f"In {budget} tokens nothing fitted of what {together(arms)} selected."


def successes(run: Run) -> Prose | Table:
    """Return the success rate by drift epoch, or the words that it was 1 everywhere."""
    from crossmem.analysis import display

    if run.rows["success"].all():
        return Prose(("Every arm solved every episode, in every drift epoch.",))
    return display.by_epoch(run, "success_rate")
