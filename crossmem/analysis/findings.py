"""What a run says, in words that are computed from its rows. No figure stands here by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from crossmem import paths
from crossmem.analysis import metrics, stats, tables
from crossmem.analysis.prose import Prose, against, count, grouped, joined, listed, name
from crossmem.domains import domain
from crossmem.memory.arms import BOUND, ORACLE, REFERENCES

if TYPE_CHECKING:
    import pandas as pd

    from crossmem.analysis.compare import Comparison
    from crossmem.analysis.tables import Table
    from crossmem.harness.results import Run


_MOST_LISTED = 12
"""Arms that are listed one by one; more are grouped by their figure."""


def finding(run: Run) -> Prose:
    """Say who paid what over the whole stream and after the drifts."""
    if unheeded := _unheeded(run):
        return Prose((unheeded,))
    said = [_fewest(run), _failures(run), _differences(run)]
    if run.config["drift_events"]:
        said += [_stale(run), _dividend(run), _baselines(run), _overreach(run)]
        said += [_invalidation(run), _false_alarm(run), _silence(run)]
    return Prose(tuple(filter(None, [*said, _poison(run)])))


def headline(run: Run) -> list[str]:
    """Return the three numbers that matter, a line each, with intervals where there are any."""
    rows = metrics.episodes(run)
    after = rows[rows["drift_epoch"] > 0]
    attempts = f"attempts over {run.length} episodes: {_figures(run, rows, 'attempts')}"
    if after.empty:
        return [
            attempts,
            f"successes: {_figures(run, rows, 'successes')}",
            f"tokens per success: {_figures(run, rows, 'tokens_per_success')}",
        ]
    return [
        attempts,
        f"stale attempts after the first drift: {_figures(run, after, 'stale_attempts')}",
        f"tokens per success after the first drift: {_figures(run, after, 'tokens_per_success')}",
    ]


def intervals(run: Run) -> Table | None:
    """Return the table of paired differences with their intervals, None where the notice says why."""
    if stats.why_none(run):
        return None
    caption = (
        f"Paired differences over {run.config['parameters']['replicates']} replicates, 95 % interval"
    )
    return tables.show(stats.differences(run), caption)


def compared(comparison: Comparison) -> str:
    """Return the text of the comparison's sentinel cell: the fewest attempts of each run."""
    return "\n".join(
        f"{label or run.path.stem}: {_fewest(run)}"
        for label, run in zip(comparison.labels, comparison.runs, strict=True)
    )


def done(run: Run) -> str:
    """Return the text of a sentinel cell: what ran, the three numbers, where the rows lie."""
    agent = "scripted agent" if run.scripted else "live model"
    ran = f"{run.config['phase']}, stream {run.config['stream']}"
    title = f"{ran}, {agent} {run.config['parameters']['model']}"
    return "\n".join([title, *headline(run), f"Results: {paths.shown(run.path)}"])


def per_arm(table: pd.DataFrame, column: str) -> dict[str, float]:
    """Return one figure of a table that has one row per arm."""
    return {str(arm): float(value) for arm, value in table[column].items()}


def _figures(run: Run, rows: pd.DataFrame, figure: str) -> str:
    """List a figure per arm, each with its interval where it has one."""
    means = per_arm(metrics.measure(rows, ["arm"]), figure)
    if stats.why_none(run):
        return listed(means) if len(means) <= _MOST_LISTED else grouped(means)
    known = stats.intervals(rows, figure)
    return ", ".join(f"{arm} {count(mean)}{_bounds(known[arm])}" for arm, mean in means.items())


def _bounds(known: stats.Interval) -> str:
    return "" if math.isnan(known.low) else f" [{count(known.low)}, {count(known.high)}]"


def _differences(run: Run) -> str:
    """Say which paired differences in attempts can be told from zero."""
    if stats.why_none(run):
        return ""
    table = stats.differences(run).xs("attempts", level="figure")
    return "; ".join(
        f"{pair}: {row['mean']:+.1f} attempts [{row['low']:+.1f}, {row['high']:+.1f}], {row['verdict']}"
        for pair, row in table.iterrows()
    )


def _arms_only(values: Mapping[str, float]) -> dict[str, float]:
    return {arm: value for arm, value in values.items() if arm not in REFERENCES}


def _fewest(run: Run) -> str:
    table = per_arm(metrics.summary(run), "attempts")
    attempts = _arms_only(table)
    if len(attempts) == 1:
        return f"Over {run.length} episodes {listed(attempts)} attempts."
    fewest = min(attempts.values())
    best = [arm for arm, number in attempts.items() if number == fewest]
    text = f"Over {run.length} episodes {joined(map(name, best))} needed the fewest attempts: "
    text += count(fewest)
    if "A0" in attempts and "A0" not in best:
        text += f", {count(attempts['A0'] - fewest)} fewer than an agent without memory"
    lines = [
        f"{what} would need {count(table[line.name])} ({line.name})"
        for line, what in ((ORACLE, "perfect invalidation"), (BOUND, "perfect update"))
        if line.name in table
    ]
    return "; ".join([text, *lines]) + "."


def _failures(run: Run) -> str:
    """Say which arms left episodes unsolved: fewer attempts are no gain there."""
    failed = metrics.unsolved_by_arm(run)
    if not failed:
        return ""
    provider = count(float(metrics.summary(run)["provider_failures"].sum()))
    text = f"Not every episode succeeded. Failed: {listed(failed)}"
    return f"{text}; {provider} of them by the model's provider." if provider != "0" else f"{text}."


def _unheeded(run: Run) -> str:
    """Say so where memory was put before the agent and none of it was sent: it changed nothing."""
    if not run.rows["recalled"].any() or any(each.attempts[0].carried for each in run.episodes):
        return ""
    style = run.config["parameters"]["hint_style"]
    attempts = _arms_only(per_arm(metrics.summary(run), "attempts"))
    return (
        f"Memory was put before the agent and changed nothing: under the hint style {style} no "
        f"remembered value was sent. Attempts over {run.length} episodes: {listed(attempts)}."
    )


def _stale(run: Run) -> str:
    paid = _arms_only(per_arm(metrics.post_drift(run), "stale_attempts"))
    groups: dict[float, list[str]] = {}
    for arm, number in paid.items():
        groups.setdefault(number, []).append(arm)
    parts = [
        f"{joined(groups[number])} paid {count(number) if number else 'none'}"
        for number in sorted(groups, reverse=True)
    ]
    return f"Stale attempts after the first drift: {'; '.join(parts)}." if parts else ""


def _dividend(run: Run) -> str:
    """Say what dropping only what changed saved over dropping the table, and on which half."""
    if not metrics.has(run, "A2", "A2D"):
        return ""
    saved = metrics.dividend(run).sum()
    total = float(saved.pop("total"))
    sign = -1.0 if total < 0 else 1.0
    halves = listed({str(half): sign * float(number) for half, number in saved.items() if number})
    if total <= 0:
        cost = f" and cost {count(-total)} ({halves})" if total else ""
        return f"{name('A2D')} against {name('A2')}: no granularity dividend in attempts{cost}."
    text = f"The granularity dividend, attempts that A2D saves over A2, is {count(total)} ({halves})."
    for family, cause in domain(run.config["domain"]).harness_induced.items():
        if share := float(saved.get(f"{family} tasks", 0.0)):
            text += f" {count(share)} of them are harness-induced: they come from {cause}."
    return text


def _baselines(run: Run) -> str:
    """Set the ungoverned baselines beside A2, whoever wins."""
    attempts = per_arm(metrics.summary(run), "attempts")
    beside = [arm for arm in ("A1F", "LW", "LWG") if arm in attempts]
    if "A2" not in attempts or not beside:
        return ""
    return (
        "; ".join(
            f"{name(arm)} needed {against(attempts[arm], attempts['A2'], 'attempt')} {name('A2')}"
            for arm in beside
        )
        + "."
    )


def _overreach(run: Run) -> str:
    """Say why A2 needs more attempts than A1F, which never invalidates, where it does."""
    attempts = per_arm(metrics.summary(run), "attempts")
    if not metrics.has(run, "A1F", "A2", "A2D") or attempts["A2"] <= attempts["A1F"]:
        return ""
    dropped, changed = (_per_replicate(run, _events(run, arm, "invalidate")) for arm in ("A2", "A2D"))
    return (
        "A2 needed more attempts than A1F because it drops whole tables: "
        f"{count(dropped)} entries at the bumps, where A2D, which drops only what changed, dropped "
        f"{count(changed)}. What still held had to be learned again."
    )


def _invalidation(run: Run) -> str:
    """Say what invalidation alone bought: LWG admits as the governed arms do and never invalidates."""
    governed = [arm for arm in ("A2", "A2D") if metrics.has(run, "LWG", arm)]
    if not governed:
        return ""
    bought = "; that of ".join(f"{name(arm)} {_bought(run, arm)}" for arm in governed)
    return (
        "LWG admits exactly what the governed arms admit and never invalidates. Measured against it, "
        f"the invalidation of {bought}."
    )


def _bought(run: Run, arm: str) -> str:
    """Say what an arm has fewer or more of than LWG; attempts are always named."""
    table = metrics.summary(run)
    said = []
    for column, thing in (
        ("attempts", "attempt"),
        ("stale_attempts", "stale attempt"),
        ("outdated_uses", "outdated use"),
    ):
        fewer = metrics.value(table, "LWG", column) - metrics.value(table, arm, column)
        if fewer:
            said.append(f"{'saved' if fewer > 0 else 'cost'} {count(abs(fewer), thing)}")
        elif column == "attempts":
            said.append("bought no attempts")
    return joined(said)


def _false_alarm(run: Run) -> str:
    """Say what a bump cost that made no remembered value stale."""
    rows = run.rows
    if not metrics.has(run, "A2", "LWG") or rows["stale_attempt"].any():
        return ""
    dropped = _per_replicate(run, _events(run, "A2", "invalidate"))
    if not dropped or not rows["outdated_use"].any():
        return ""
    attempts = per_arm(metrics.summary(run), "attempts")
    text = (
        "No remembered value went stale: the version moved and what was remembered still held. False "
        f"invalidation cost A2 {count(dropped)} good entries and "
        f"{count(attempts['A2'] - attempts['LWG'], 'attempt')}"
    )
    if "A2D" in attempts:
        text += (
            f"; A2D, which reads the diff, lost {count(attempts['A2D'] - attempts['LWG'], 'attempt')}"
        )
    return text + "."


def _silence(run: Run) -> str:
    """Say what trusting stamps cost where rows changed and no stamp said so."""
    if not metrics.has(run, "A2") or _events(run, "A2", "invalidate"):
        return ""
    stale = metrics.value(metrics.summary(run), "A2", "stale_attempts")
    if not stale:
        return ""
    heals = (
        "each key heals by being learned again"
        if run.config["parameters"]["keying"] == "task"
        else "under this keying the lesson lands under another key, and it never heals"
    )
    return (
        "The rows changed under an unchanged stamp, so no governed arm noticed by stamp: trusting "
        f"stamps cost A2 {count(stale, 'stale attempt')}; {heals}."
    )


def _events(run: Run, arm: str, kind: str) -> int:
    return int(((run.events["arm"] == arm) & (run.events["kind"] == kind)).sum())


def _per_replicate(run: Run, number: int) -> float:
    return number / int(run.config["parameters"]["replicates"])


def _poison(run: Run) -> str:
    table = per_arm(metrics.summary(run), "poisoned_attempts")
    hit = {arm: number for arm, number in table.items() if number}
    if not hit:
        return ""
    return (
        f"{joined(hit)} stored values that belong to one request alone and sent them with another, "
        f"in poisoned attempts: {listed(hit)}."
    )
