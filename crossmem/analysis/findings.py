"""What a run says, in words that are computed from its rows. No figure stands here by itself."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from crossmem import paths
from crossmem.analysis import display, metrics, stats
from crossmem.analysis.display import Prose, against, arm_title, count, grouped, joined, listed
from crossmem.domains import domain
from crossmem.memory.arms import ORACLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from crossmem.analysis.compare import Comparison
    from crossmem.analysis.display import Table
    from crossmem.run.results import Run

_MAX_LISTED_ARMS = 12
"""Arms that are listed one by one; more are grouped by their figure."""


class Facts:
    """A run and the figures that sentences are made of."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.summary = metrics.summary(run)

    def total(self, arm: str, figure: str = "attempts") -> float:
        """Return a figure of an arm, mean per replicate."""
        return metrics.value(self.summary, arm, figure)

    def attempts(self) -> dict[str, float]:
        """Return the attempts of every arm, without the oracle, which is none."""
        return {arm: self.total(arm) for arm in self.run.arms if arm != ORACLE.name}

    def invalidated(self, arm: str) -> float:
        """Return how many entries an arm invalidated, mean per replicate."""
        events = self.run.events
        number = ((events["arm"] == arm) & (events["kind"] == "invalidate")).sum()
        return float(number) / int(self.run.config["parameters"]["replicates"])

    def has(self, *arms: str) -> bool:
        """Tell whether the run holds all of the `arms`."""
        return metrics.has(self.run, *arms)


def finding(run: Run) -> Prose:
    """Say who paid what over the whole stream and after the drifts."""
    ignored = run.rows["recalled"].any() and not any(e.attempts[0].carried for e in run.episodes)
    return Prose((_ignored_memory(Facts(run)),) if ignored else tuple(_sentences(Facts(run))))


def _sentences(facts: Facts) -> Iterator[str]:
    """Yield every sentence that applies."""
    run, rows, has = facts.run, facts.run.rows, facts.has
    yield _fewest_attempts(facts)
    if metrics.unsolved_by_arm(run):
        yield _failures(facts)
    if not stats.why_none(run):
        yield _differences(run)
    if run.config["drift_events"]:
        yield _stale_attempts(run)
        if has("A2", "A2D"):
            yield _dividend(run)
        if baselines := [arm for arm in ("A1", "LW", "LWG") if has("A2", arm)]:
            yield _baselines(facts, baselines)
        if has("A1", "A2", "A2D") and facts.total("A2") > facts.total("A1"):
            yield _whole_tables_dropped(facts)
        if governed := [arm for arm in ("A2", "A2D") if has("LWG", arm)]:
            yield _invalidation_alone(facts, governed)
        went_stale, bumped = rows["stale_attempt"].any(), has("A2") and facts.invalidated("A2")
        if has("LWG") and bumped and not went_stale and rows["outdated_use"].any():
            yield _false_invalidation(facts)
        if has("A2") and not bumped and facts.total("A2", "stale_attempts"):
            yield _silent_change(facts)
    if rows["poisoned"].any():
        yield _poisoned_attempts(facts)


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
        f"{label or run.path.stem}: {_fewest_attempts(Facts(run))}"
        for label, run in zip(comparison.labels, comparison.runs, strict=True)
    )


def done(run: Run) -> str:
    """Return the text of a sentinel cell: what ran, the three numbers, where the rows lie."""
    agent = "scripted agent" if run.scripted else "live model"
    ran = f"{run.config['phase']}, stream {run.config['stream']}"
    title = f"{ran}, {agent} {run.config['parameters']['model']}"
    return "\n".join([title, *headline(run), f"Results: {paths.shown(run.path)}"])


def _with_intervals(run: Run, rows: pd.DataFrame, figure: str) -> str:
    """List a figure per arm, each with its interval where it has one."""
    means = metrics.per_arm(metrics.measure(rows, ["arm"]), figure)
    if stats.why_none(run):
        return listed(means) if len(means) <= _MAX_LISTED_ARMS else grouped(means)
    known = stats.intervals(rows, figure)
    return ", ".join(f"{arm} {count(mean)}{_bounds(known[arm])}" for arm, mean in means.items())


def _bounds(known: stats.Interval) -> str:
    return "" if math.isnan(known.low) else f" [{count(known.low)}, {count(known.high)}]"


def _ignored_memory(facts: Facts) -> str:
    style = facts.run.config["parameters"]["hint_style"]
    return (
        f"Memory was put before the agent and changed nothing: under the hint style {style} no "
        f"remembered value was sent. Attempts over {facts.run.length} episodes: "
        f"{listed(facts.attempts())}."
    )


def _fewest_attempts(facts: Facts) -> str:
    attempts = facts.attempts()
    if len(attempts) == 1:
        return f"Over {facts.run.length} episodes {listed(attempts)} attempts."
    fewest = min(attempts.values())
    best = [arm for arm, number in attempts.items() if number == fewest]
    text = (
        f"Over {facts.run.length} episodes {joined(map(arm_title, best))} needed the fewest attempts: "
    )
    text += count(fewest)
    if "A0" in attempts and "A0" not in best:
        text += f", {count(attempts['A0'] - fewest)} fewer than an agent without memory"
    if facts.has(ORACLE.name):
        text += f"; the oracle needs {count(facts.total(ORACLE.name))}"
    return text + "."


def _failures(facts: Facts) -> str:
    """Fewer attempts are no gain where episodes were left unsolved."""
    failed = metrics.unsolved_by_arm(facts.run)
    provider = count(float(facts.summary["provider_failures"].sum()))
    theirs = f"; {provider} of them by the model's provider" if provider != "0" else ""
    return f"Not every episode succeeded. Failed: {listed(failed)}{theirs}."


def _differences(run: Run) -> str:
    table = stats.differences(run).xs("attempts", level="figure")
    return "; ".join(
        f"{pair}: {row['mean']:+.1f} attempts [{row['low']:+.1f}, {row['high']:+.1f}], {row['verdict']}"
        for pair, row in table.iterrows()
    )


def _stale_attempts(run: Run) -> str:
    arms: dict[float, list[str]] = {}
    for arm, number in metrics.per_arm(metrics.post_drift(run), "stale_attempts").items():
        if arm != ORACLE.name:
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
    return text


def _baselines(facts: Facts, baselines: list[str]) -> str:
    """The ungoverned baselines beside A2, whoever wins."""
    attempts = facts.attempts()
    parts = (
        f"{arm_title(arm)} needed {against(attempts[arm], attempts['A2'], 'attempt')} {arm_title('A2')}"
        for arm in baselines
    )
    return f"{'; '.join(parts)}."


def _whole_tables_dropped(facts: Facts) -> str:
    """Why A2 needs more attempts than A1, which never invalidates."""
    return (
        "A2 needed more attempts than A1 because it drops whole tables: "
        f"{count(facts.invalidated('A2'))} entries at the bumps, where A2D, which drops only what "
        f"changed, dropped {count(facts.invalidated('A2D'))}. What still held had to be learned again."
    )


def _invalidation_alone(facts: Facts, governed: list[str]) -> str:
    bought = "; that of ".join(f"{arm_title(arm)} {_bought(facts, arm)}" for arm in governed)
    return (
        "LWG admits exactly what the governed arms admit and never invalidates. Measured against it, "
        f"the invalidation of {bought}."
    )


def _bought(facts: Facts, arm: str) -> str:
    """Say what an arm has fewer or more of than LWG; attempts are always named."""
    parts = []
    for figure in ("attempts", "stale_attempts", "outdated_uses"):
        fewer = facts.total("LWG", figure) - facts.total(arm, figure)
        thing = figure.removesuffix("s").replace("_", " ")
        if fewer:
            parts.append(f"{'saved' if fewer > 0 else 'cost'} {count(abs(fewer), thing)}")
        elif figure == "attempts":
            parts.append("bought no attempts")
    return joined(parts)


def _false_invalidation(facts: Facts) -> str:
    """What a bump cost that made no remembered value stale."""
    lost = {arm: facts.total(arm) - facts.total("LWG") for arm in ("A2", "A2D") if facts.has(arm)}
    text = (
        "No remembered value went stale: the version moved and what was remembered still held. False "
        f"invalidation cost A2 {count(facts.invalidated('A2'))} good entries and "
        f"{count(lost['A2'], 'attempt')}"
    )
    if "A2D" in lost:
        text += f"; A2D, which reads the diff, lost {count(lost['A2D'], 'attempt')}"
    return text + "."


def _silent_change(facts: Facts) -> str:
    """What trusting stamps cost where rows changed and no stamp said so."""
    heals = (
        "each key heals by being learned again"
        if facts.run.config["parameters"]["keying"] == "task"
        else "under this keying the lesson lands under another key, and it never heals"
    )
    return (
        "The rows changed under an unchanged stamp, so no governed arm noticed by stamp: trusting "
        f"stamps cost A2 {count(facts.total('A2', 'stale_attempts'), 'stale attempt')}; {heals}."
    )


def _poisoned_attempts(facts: Facts) -> str:
    paid = metrics.per_arm(facts.summary, "poisoned_attempts")
    poisoned = {arm: number for arm, number in paid.items() if number}
    return (
        f"{joined(poisoned)} stored values that belong to one request alone and sent them with "
        f"another, in poisoned attempts: {listed(poisoned)}."
    )
