"""Whether attempts can rank the arms of a run, and whether two runs rank them alike."""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import TYPE_CHECKING

from crossmem import paths
from crossmem.analysis import metrics
from crossmem.analysis.display import Prose, count, joined, listed
from crossmem.errors import CrossmemError
from crossmem.harness import results
from crossmem.harness.judge import OUTSIDE
from crossmem.memory.arms import REFERENCES

if TYPE_CHECKING:
    import pandas as pd

    from crossmem.harness.results import Run

LEAST_SOLVED = 0.5
"""The share of its episodes that every arm must have solved for attempts to rank it."""

_WHOSE = {
    "agent": "the agent's",
    "provider": "the model provider's",
    "api": "the API's",
    "declined": "declined cards",
}


def why_unranked(run: Run) -> str | None:
    """Return why attempts rank no arm of a run, with the cause in words; None if they do."""
    rows = run.rows[~run.rows["arm"].isin(REFERENCES)]
    per_arm = rows.groupby("arm", sort=False)["success"].mean()
    unmeasured = rows[rows["failed_by"].isin(OUTSIDE)]
    if unmeasured.empty and (per_arm >= LEAST_SOLVED).all():
        return None
    solved = int(rows["success"].sum())
    parts = [f"{solved or 'None'} of {len(rows)} episodes succeeded"]
    if not unmeasured.empty:
        by_arm = {str(arm): n for arm, n in unmeasured["arm"].value_counts(sort=False).items()}
        parts.append(f"{len(unmeasured)} have no measurement ({listed(by_arm)})")
    low = [str(arm) for arm, share in per_arm.items() if share < LEAST_SOLVED]
    if unmeasured.empty and solved:
        parts.append(f"fewer than half of those of {joined(low)}")
    return f"{', '.join(parts)}: attempts rank no arm here. {_causes(rows[~rows['success']])}"


def check_measured(run: Run) -> None:
    """Raise CrossmemError where every episode of a run failed for reasons outside the agent."""
    rows = run.rows
    if rows["failed_by"].isin(OUTSIDE).all():
        raise CrossmemError(
            f"nothing was measured: all {len(rows)} episodes failed for reasons outside the agent. "
            f"{_causes(rows)} The rows lie in {run.path.name}"
        )


def ranked_as(run: Run, phase: str) -> Prose:
    """Say whether the arms of a run rank by attempts as in the newest run of `phase` like it.

    Only pairs of arms that both runs tell apart by more than one attempt are compared.
    """
    other = _newest_like(run, phase)
    if other is None:
        agent = "scripted agent" if run.scripted else f"model {run.config['parameters']['model']}"
        said = (
            f"Whether the arms rank as in {phase} is open: no results file of {phase} with the same "
            f"{agent} and keying was found. Run {phase}, then this notebook with results=latest."
        )
        return Prose((said,), "notice")
    ours, theirs = map(_attempts, (run, other))
    shared = [arm for arm in ours if arm in theirs]
    pairs = [
        (left, right)
        for left, right in itertools.permutations(shared, 2)
        if ours[right] - ours[left] > 1 and abs(theirs[left] - theirs[right]) > 1
    ]
    turned = [(left, right) for left, right in pairs if theirs[left] > theirs[right]]
    where = f"{phase} on stream {other.config['stream']} ({other.path.name})"
    if not pairs:
        said = f"Whether the arms rank as in {where} is open: no two of them are told apart in both."
        return Prose((said,), "notice")
    if not turned:
        return Prose((f"The arms rank as in {where}: all {len(pairs)} pairs told apart agree.",))
    named = joined(f"{better} needs fewer attempts than {worse}" for better, worse in turned)
    said = (
        f"The arms do not rank quite as in {where}: of {len(pairs)} pairs told apart "
        f"{len(turned)} turned round. Here {named}; there it is the other way about."
    )
    return Prose((said,))


def _attempts(run: Run) -> dict[str, float]:
    attempts = metrics.per_arm(metrics.summary(run), "attempts")
    return {arm: number for arm, number in attempts.items() if arm not in REFERENCES}


def _newest_like(run: Run, phase: str) -> Run | None:
    """Return the newest ranked run of `phase` with the agent and keying of `run`, None without one."""
    alike = ("mock", "model", "hint_style", "keying")
    chosen = {name: run.config["parameters"][name] for name in alike}
    for path, config in results.finished(paths.results()):
        parameters = config.get("parameters", {})
        if config.get("phase") == phase and {n: parameters.get(n) for n in alike} == chosen:
            with suppress(CrossmemError):  # a damaged file
                found = results.load(path)
                if not why_unranked(found):
                    return found
    return None


def _causes(failed: pd.DataFrame) -> str:
    """Say whose failures there are, and the most frequent reason."""
    whose = failed["failed_by"].value_counts()
    listing = ", ".join(f"{_WHOSE[str(who)]} {count(number)}" for who, number in whose.items())
    reasons = failed["error"].value_counts()
    return f"Failures: {listing}; most often: {reasons.index[0]} ({count(reasons.iloc[0])})."
