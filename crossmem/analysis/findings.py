"""What a run says, in words that are computed from its rows. No figure stands here by itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

from crossmem import paths
from crossmem.analysis import display, metrics, stats
from crossmem.analysis.display import Prose, against, arm_title, count, grouped, joined, listed
from crossmem.analysis.ranking import check_measured, why_unranked
from crossmem.domains import domain
from crossmem.memory.arms import BOUND, ORACLE, REFERENCES

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from crossmem.analysis.compare import Comparison
    from crossmem.analysis.display import Table
    from crossmem.harness.results import Run

_MAX_LISTED_ARMS = 12
"""Arms that are listed one by one; more are grouped by their figure."""


Totals = dict[str, dict[str, float]]
"""By arm, its figures over the whole stream (`metrics.summary`) and the entries it `invalidated`."""


def finding(run: Run) -> Prose:
    """Say who paid what over the whole stream and after the drifts."""
    totals, rows = _totals(run), run.rows
    unranked = why_unranked(run)
    if (
        not unranked
        and rows["recalled"].any()
        and not any(each.attempts[0].carried for each in run.episodes)
    ):
        return Prose((_ignored_memory(run, totals),))
    sentences = [unranked or _fewest_attempts(run, totals)]
    if not unranked and (failed := metrics.unsolved_by_arm(run)):
        sentences.append(f"Not every episode succeeded. Failed: {listed(failed)}.")
    if not unranked and not stats.why_none(run):
        sentences.append(_differences(run))
    if run.config["drift_events"] and _attempts(totals):
        sentences.append(_stale_attempts(run))
        sentences += [] if unranked else _drift_findings(run, totals)
    if rows["poisoned"].any():
        sentences.append(_poisoned_attempts(totals))
    return Prose(tuple(sentences))


def _drift_findings(run: Run, totals: Totals) -> Iterator[str]:
    if {"A2", "A2D"} <= totals.keys():
        yield _dividend(run)
    if "A2" in totals and {"A1F", "LW", "LWG"} & totals.keys():
        yield _baselines(run, totals)
    if {"A1F", "A2", "A2D"} <= totals.keys() and totals["A2"]["attempts"] > totals["A1F"]["attempts"]:
        yield _whole_tables_dropped(totals)
    if "LWG" in totals and {"A2", "A2D"} & totals.keys():
        yield _invalidation_alone(totals)
    if "A2" in totals:
        went_stale, outdated = run.rows["stale_attempt"].any(), run.rows["outdated_use"].any()
        if totals["A2"]["invalidated"] and "LWG" in totals and outdated and not went_stale:
            yield _false_invalidation(totals)
        if not totals["A2"]["invalidated"] and totals["A2"]["stale_attempts"]:
            yield _silent_change(run, totals)


def _totals(run: Run) -> Totals:
    table = metrics.summary(run).rename(index=str)
    invalidated = metrics.memory_events(run).get("invalidate", 0.0)
    return cast("Totals", table.assign(invalidated=invalidated).to_dict("index"))


def headline(run: Run) -> list[str]:
    """Return the three numbers that matter, a line each, with intervals where there are any."""
    rows = metrics.episodes(run)
    after = rows[rows["drift_epoch"] > 0]
    window, when, second = (after, " after the first drift", "stale_attempts")
    if after.empty:
        window, when, second = (rows, "", "successes")
    return [
        f"attempts over {run.length} episodes: {_with_intervals(run, rows, 'attempts')}",
        f"{second.replace('_', ' ')}{when}: {_with_intervals(run, window, second)}",
        f"tokens per success{when}: {_with_intervals(run, window, 'tokens_per_success')}",
    ]


def intervals(run: Run) -> Table | None:
    """Return the table of paired differences with their intervals, None where the notice says why."""
    if stats.why_none(run):
        return None
    replicates = run.config["parameters"]["replicates"]
    caption = f"Paired differences over {replicates} replicates, 95 % interval"
    return display.show(stats.differences(run), caption)


def compared(comparison: Comparison) -> str:
    """Return the text of the comparison's sentinel cell: the fewest attempts of each run."""
    return "\n".join(
        f"{label or run.path.stem}: {why_unranked(run) or _fewest_attempts(run, _totals(run))}"
        for label, run in zip(comparison.labels, comparison.runs, strict=True)
    )


def done(run: Run) -> str:
    """Return the text of a sentinel cell: what ran, the three numbers, where the rows lie.

    Raises CrossmemError where every episode failed for reasons outside the agent.
    """
    check_measured(run)
    agent = "scripted agent" if run.scripted else "live model"
    ran = f"{run.config['phase']}, stream {run.config['stream']}"
    title = f"{ran}, {agent} {run.config['parameters']['model']}"
    doubt = filter(None, [why_unranked(run)])
    return "\n".join([title, *doubt, *headline(run), f"Results: {paths.shown(run.path)}"])


def _with_intervals(run: Run, rows: pd.DataFrame, figure: str) -> str:
    """List a figure per arm, each with its interval where it has one."""
    means = metrics.per_arm(metrics.measure(rows, ["arm"]), figure)
    if stats.why_none(run):
        return listed(means) if len(means) <= _MAX_LISTED_ARMS else grouped(means)
    known = stats.intervals(rows, figure)
    return ", ".join(f"{arm} {count(mean)}{_bounds(known[arm])}" for arm, mean in means.items())


def _bounds(known: stats.Interval) -> str:
    return "" if math.isnan(known.low) else f" [{count(known.low)}, {count(known.high)}]"


def _attempts(totals: Totals) -> dict[str, float]:
    """Return the attempts of every arm, without the reference lines, which are none."""
    return {arm: each["attempts"] for arm, each in totals.items() if arm not in REFERENCES}


def _ignored_memory(run: Run, totals: Totals) -> str:
    style = run.config["parameters"]["hint_style"]
    return (
        f"Memory was put before the agent and changed nothing: under the hint style {style} no "
        f"remembered value was sent. Attempts over {run.length} episodes: {listed(_attempts(totals))}."
    )


def _fewest_attempts(run: Run, totals: Totals) -> str:
    attempts = _attempts(totals)
    if len(attempts) < 2:  # one arm, or the reference lines alone
        alone = attempts or {line: each["attempts"] for line, each in totals.items()}
        return f"Over {run.length} episodes {listed(alone)} attempts."
    fewest = min(attempts.values())
    best = [arm for arm, number in attempts.items() if number == fewest]
    text = f"Over {run.length} episodes {joined(map(arm_title, best))} needed the fewest attempts: "
    text += count(fewest)
    if close := [arm for arm, number in attempts.items() if _too_close(run, number, fewest)]:
        text += f" ({joined(close)} within one attempt of it)"
    if "A0" in attempts and "A0" not in best:
        text += f", {count(attempts['A0'] - fewest)} fewer than an agent without memory"
    lines = [
        f"{what} would need {count(totals[line.name]['attempts'])} ({line.name})"
        for line, what in ((ORACLE, "perfect invalidation"), (BOUND, "perfect update"))
        if line.name in totals
    ]
    return "; ".join([text, *lines]) + "."


def _differences(run: Run) -> str:
    table = stats.differences(run).xs("attempts", level="figure")
    return "; ".join(
        f"{pair}: {row['mean']:+.1f} attempts [{row['low']:+.1f}, {row['high']:+.1f}], {row['verdict']}"
        for pair, row in table.iterrows()
    )


def _stale_attempts(run: Run) -> str:
    arms: dict[float, list[str]] = {}
    for arm, number in metrics.per_arm(metrics.post_drift(run), "stale_attempts").items():
        if arm not in REFERENCES:
            arms.setdefault(number, []).append(arm)
    paid = (f"{joined(arms[n])} paid {count(n) if n else 'none'}" for n in sorted(arms, reverse=True))
    return f"Stale attempts after the first drift: {'; '.join(paid)}."


def _dividend(run: Run) -> str:
    """What dropping only what changed saved over dropping the table, and on which half."""
    saved = metrics.dividend(run).sum()
    total = float(saved.pop("total"))
    sign = -1.0 if total < 0 else 1.0
    halves = listed({str(half): sign * float(number) for half, number in saved.items() if number})
    if total <= 0:
        cost = f" and cost {count(-total)} ({halves})" if total else ""
        return (
            f"{arm_title('A2D')} against {arm_title('A2')}: no granularity dividend in attempts{cost}."
        )
    text = f"The granularity dividend, attempts that A2D saves over A2, is {count(total)} ({halves})."
    for family, cause in domain(run.config["domain"]).harness_induced.items():
        if share := float(saved.get(f"{family} tasks", 0.0)):
            text += f" {count(share)} of them are harness-induced: they come from {cause}."
    tables_own = [str(half) for half in saved.index if not str(half).endswith(" tasks")]
    gaining = [half for half in tables_own if saved[half] > 0]
    if gaining and len(tables_own) > 1:
        where = "on every half of the table" if gaining == tables_own else f"in {joined(gaining)} alone"
        text += f" It shows {where}."
    return text


def _baselines(run: Run, totals: Totals) -> str:
    """The ungoverned baselines beside A2, whoever wins; those too close to call in one phrase."""
    attempts, a2 = _attempts(totals), arm_title("A2")
    beside = [arm for arm in ("A1", "A1F", "LW", "LWG") if arm in attempts]
    close = [arm for arm in beside if _too_close(run, attempts[arm], attempts["A2"])]
    parts = [
        f"{arm_title(arm)} needed {against(attempts[arm], attempts['A2'], 'attempt')} {a2}"
        for arm in beside
        if arm not in close
    ]
    if close:
        verb = "is" if len(close) == 1 else "are"
        parts.append(
            f"{joined(f'{arm} {count(attempts[arm])}' for arm in close)} {verb} within one attempt of "
            f"{a2} {count(attempts['A2'])}, too close to call on one stream"
        )
    return f"{'; '.join(parts)}."


def _too_close(run: Run, left: float, right: float) -> bool:
    """Whether two sums of attempts differ by one at most, and nothing says how far they spread."""
    return 0 < abs(left - right) <= 1 and bool(stats.why_none(run))


def _whole_tables_dropped(totals: Totals) -> str:
    a2, a2d = (count(totals[arm]["invalidated"]) for arm in ("A2", "A2D"))
    return (
        f"A2 needed more attempts than A1F because it drops whole tables: {a2} entries at the bumps, "
        f"where A2D, which drops only what changed, dropped {a2d}. What still held had to be learned "
        "again."
    )


def _invalidation_alone(totals: Totals) -> str:
    """LWG differs from the governed arms in invalidation alone; attempts are always named."""
    governed = []
    for arm in (each for each in ("A2", "A2D") if each in totals):
        parts = []
        for figure in ("attempts", "stale_attempts", "outdated_uses"):
            fewer = totals["LWG"][figure] - totals[arm][figure]
            if fewer:
                thing = figure.removesuffix("s").replace("_", " ")
                parts.append(f"{'saved' if fewer > 0 else 'cost'} {count(abs(fewer), thing)}")
            elif figure == "attempts":
                parts.append("bought no attempts")
        governed.append(f"{arm_title(arm)} {joined(parts)}")
    return (
        "LWG admits exactly what the governed arms admit and never invalidates. Measured against it, "
        f"the invalidation of {'; that of '.join(governed)}."
    )


def _false_invalidation(totals: Totals) -> str:
    """What a bump cost that made no remembered value stale."""
    lost = {arm: number - totals["LWG"]["attempts"] for arm, number in _attempts(totals).items()}
    a2d = "; A2D, which reads the diff, lost "
    return (
        "No remembered value went stale: the version moved and what was remembered still held. False "
        f"invalidation cost A2 {count(totals['A2']['invalidated'])} good entries and "
        f"{count(lost['A2'], 'attempt')}{a2d + count(lost['A2D'], 'attempt') if 'A2D' in lost else ''}."
    )


def _silent_change(run: Run, totals: Totals) -> str:
    """What trusting stamps cost where rows changed and no stamp said so."""
    heals = (
        "each key heals by being learned again"
        if run.config["parameters"]["keying"] == "task"
        else "under this keying the lesson lands under another key, and it never heals"
    )
    return (
        "The rows changed under an unchanged stamp, so no governed arm noticed by stamp: trusting "
        f"stamps cost A2 {count(totals['A2']['stale_attempts'], 'stale attempt')}; {heals}."
    )


def _poisoned_attempts(totals: Totals) -> str:
    paid = {arm: each["poisoned_attempts"] for arm, each in totals.items() if each["poisoned_attempts"]}
    return (
        f"{joined(paid)} stored values that belong to one request alone and sent them with another, "
        f"in poisoned attempts: {listed(paid)}."
    )
