"""Several runs side by side: one table, one figure, labelled by the parameters in which they differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from crossmem.analysis import metrics
from crossmem.errors import InputError
from crossmem.harness import results

if TYPE_CHECKING:
    import pandas as pd

    from crossmem.analysis.display import Picture
    from crossmem.harness.results import Run

COLUMNS = [
    *("attempts", "tokens_per_success", "first_try_rate"),
    *("stale_attempts", "outdated_uses", "poisoned_attempts", "regret"),
]


@dataclass(frozen=True)
class Comparison:
    """Runs over comparable streams. `labels` names each by what sets it apart from the others."""

    runs: list[Run]
    labels: list[str]

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row per (run, arm); a figure that a run does not have is missing."""
        import pandas as pd

        tables = [metrics.summary(run).reindex(columns=COLUMNS).rename(index=str) for run in self.runs]
        return pd.concat(dict(zip(self.labels, tables, strict=True)), names=["run", "arm"])

    def figure(self) -> Picture:
        """The attempts of every arm in every run."""
        from crossmem.analysis import figures

        return figures.side_by_side(self.table, f"Attempts by arm and run ({_agent(self.runs[0])})")


def compare(wanted: Iterable[str | Path | Run]) -> Comparison:
    """Set runs beside each other: results files by name or path, or runs at hand.

    Raises InputError for fewer than two, for one named twice, and where two runs did not replay the
    same tasks in the same order, saying what differs.
    """
    runs = [each if isinstance(each, results.Run) else results.find(str(each)) for each in wanted]
    if len(runs) < 2:
        raise InputError(f"compare: {len(runs)} results file given; name at least two")
    seen = set()
    for run in runs:
        if run.path.resolve() in seen:
            raise InputError(f"compare: {run.path.name} is named more than once")
        seen.add(run.path.resolve())
    first = runs[0]
    for run in runs[1:]:
        if difference := _difference(first, run):
            raise InputError(f"compare: {first.path.name} and {run.path.name} differ in {difference}")
    return Comparison(runs, _labels(runs))


def _difference(left: Run, right: Run) -> str | None:
    """Return in what two runs are not comparable, None if they are."""
    for what, ours, theirs in (
        ("domain", left.config["domain"], right.config["domain"]),
        ("number of episodes", left.length, right.length),
        ("kind of agent", _agent(left), _agent(right)),
    ):
        if ours != theirs:
            return f"{what}: {ours} against {theirs}"
    ours, theirs = (
        {(each.row.index, each.row.task_id) for each in run.episodes} for run in (left, right)
    )
    if differing := ours ^ theirs:
        return f"their tasks, from episode {min(differing)[0]} on"
    return None


def _agent(run: Run) -> str:
    return "scripted agent" if run.scripted else "live model"


def _labels(runs: list[Run]) -> list[str]:
    described = [_described(run) for run in runs]
    varying = [name for name in described[0] if len({each[name] for each in described}) > 1]
    labels = [", ".join(f"{name} {each[name]}" for name in varying) for each in described]
    if len(set(labels)) < len(labels):
        return [f"{label} ({run.path.stem})".strip() for label, run in zip(labels, runs, strict=True)]
    return labels


def _described(run: Run) -> dict[str, str]:
    """Return what may set a run apart, in the order in which a label says it."""
    chosen = run.config["parameters"]
    chosen = {**chosen, "budget": chosen.get("budget") or "of the stream"}
    names = ("model", "hint_style", "keying", "budget", "replicates", "seed", "max_attempts")
    return {
        **{name: run.config[name] for name in ("phase", "pattern")},
        **{name: str(chosen.get(name)) for name in names},
    }
