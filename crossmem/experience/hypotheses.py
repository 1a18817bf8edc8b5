"""The hypotheses of the experience study, and their answers computed from a run.

H1 to H5 are those of the specification that this family raises, stated before any result; H6 and H7 are
this study's own and were written down after a first mock run had been seen. Each is answered supported,
not supported, or not testable here, with the figures that say so: means over the replicates of one
stream. An answer holds for this stream and is no inference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pandas as pd

from crossmem.analysis import metrics
from crossmem.analysis.display import count
from crossmem.analysis.ranking import why_unranked
from crossmem.experience import measures
from crossmem.experience.arms import EXPERIENCE_ARMS

if TYPE_CHECKING:
    from crossmem.harness.results import Run

Answer = Literal["supported", "not supported", "not testable here"]


@dataclass(frozen=True)
class Hypothesis:
    """A statement, the arms that its answer needs, and how a run answers it, or why none can."""

    name: str
    statement: str
    needs: tuple[str, ...]
    answer: Callable[[Run], tuple[Answer, str]] | str


def stated() -> pd.DataFrame:
    """Return what each hypothesis states."""
    frame = pd.DataFrame([{"hypothesis": h.name, "statement": h.statement} for h in HYPOTHESES])
    return frame.set_index("hypothesis")


def answered(run: Run) -> pd.DataFrame:
    """Return each hypothesis with its answer and the figures behind it."""
    unranked = why_unranked(run)
    answers = {
        each.name: ("not testable here", unranked) if unranked else _answered(each, run)
        for each in HYPOTHESES
    }
    frame = pd.DataFrame.from_dict(answers, orient="index", columns=["answer", "figures"])
    return frame.rename_axis("hypothesis")


def _answered(each: Hypothesis, run: Run) -> tuple[Answer, str]:
    lacking = [arm for arm in each.needs if arm not in run.arms]
    if lacking:
        return "not testable here", f"the run lacks {', '.join(lacking)}"
    return ("not testable here", each.answer) if isinstance(each.answer, str) else each.answer(run)


def _verdict(*holds: bool) -> Answer:
    return "supported" if all(holds) else "not supported"


def _targeted(run: Run) -> tuple[Answer, str]:
    rows = metrics.episodes(run)
    calm = metrics.measure(rows[rows["drift_epoch"] == 0], ["arm"])["attempts"]
    after = metrics.measure(rows[rows["drift_epoch"] > 0], ["arm"])["attempts"]
    gain = {
        (what, of): float(of_rows[f"simple.faithful{what}"] - of_rows[f"cards.faithful{what}"])
        for what in ("", ".A2")
        for of, of_rows in (("calm", calm), ("after", after))
    }
    why = (
        f"attempts cards save over base memory: {count(gain['', 'calm'])} before the first drift, "
        f"{count(gain['', 'after'])} after it; governed as A2 {count(gain['.A2', 'calm'])} and "
        f"{count(gain['.A2', 'after'])}"
    )
    falls = gain["", "after"] < gain["", "calm"]
    return _verdict(gain["", "calm"] > 0, falls, gain[".A2", "after"] >= gain["", "after"]), why


def _freshness(run: Run) -> tuple[Answer, str]:
    stale = metrics.summary(run)["stale_attempts"]
    made = measures.reported(run)["summaries_made"]
    damage = {v: float(stale[f"rich.{v}.A2"] - stale[f"cards.{v}.A2"]) for v in ("faithful", "fixed")}
    extra = float(made["rich.fixed.A2"] / made["rich.faithful.A2"] - 1)
    why = (
        f"stale attempts that summaries add to governed cards: {count(damage['faithful'])} by id, "
        f"{count(damage['fixed'])} by content and world; summaries made: {extra:+.0%}"
    )
    most = damage["faithful"] > 0 and damage["fixed"] <= damage["faithful"] / 2
    return _verdict(most, extra < 0.05), why


def _governance(run: Run) -> tuple[Answer, str]:
    """Answer from every pair that the run has, but for memories that put no lesson before anyone."""
    stale = metrics.summary(run)["stale_attempts"]
    recalled = run.rows.groupby("arm")["recalled"].sum()
    paid = [
        (arm, float(stale[arm]), float(stale[f"{arm}.A2"]))
        for arm in run.arms
        if arm in EXPERIENCE_ARMS and f"{arm}.A2" in run.arms and recalled[arm]
    ]
    why = "; ".join(f"{name} {count(none)} to {count(ruled)}" for name, none, ruled in paid)
    return _verdict(*(ruled < none for _, none, ruled in paid)), f"stale attempts under A2: {why}"


def _forgiving(run: Run) -> tuple[Answer, str]:
    table = measures.hysteresis(run)
    if table.empty:
        why = "the stream has no window of a tight budget with episodes before and after it"
        return "not testable here", why
    left = {arm: metrics.value(table, arm, "hysteresis") for arm in ("A2", "A3", "A3C")}
    why = ", ".join(f"{arm} {value:+.0%}" for arm, value in left.items())
    better = left["A3"] < left["A3C"]
    number = count(metrics.value(table, "A3", "episodes"), "episode")
    said = f"first-try rate in the {number} after the window less that in as many before it"
    return _verdict(better), f"{said}: {why}"


_BOTH = ("simple.faithful", "simple.faithful.A2", "cards.faithful", "cards.faithful.A2")
HYPOTHESES = (
    Hypothesis(
        "H1",
        "Targeted cards beat base memory while nothing changes; after a rule changes the advantage "
        "falls or reverses, unless items carry versions.",
        _BOTH,
        _targeted,
    ),
    Hypothesis(
        "H2",
        "Fitness with exploration recovers faster after a change than greedy selection and loses "
        "more while nothing changes.",
        (),
        "program databases with pruning are not among the arms",
    ),
    Hypothesis(
        "H3",
        "A freshness key removes at least half of the damage that cached summaries do, for less than "
        "5 % more summaries made.",
        ("rich.faithful.A2", "rich.fixed.A2", "cards.faithful.A2", "cards.fixed.A2"),
        _freshness,
    ),
    Hypothesis(
        "H4",
        "A lossy resume costs as much as one drift.",
        (),
        "no arm restarts in mid-stream",
    ),
    Hypothesis(
        "H5",
        "A frozen rank in the text alone lowers the accuracy of a small reader.",
        (),
        "the scripted agent follows lessons and reads no ranks",
    ),
    Hypothesis(
        "H6",
        "Version stamps lower the stale attempts of every selection of experience, faithful or fixed.",
        (*_BOTH, "simple.fixed", "simple.fixed.A2", "cards.fixed", "cards.fixed.A2"),
        _governance,
    ),
    Hypothesis(
        "H7",
        "A budget that forgives leaves less behind, once it has recovered, than one that evicts.",
        ("A2", "A3", "A3C"),
        _forgiving,
    ),
)
