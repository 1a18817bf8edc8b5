"""What a run says, in words that are computed from its rows. No figure stands here by itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from crossmem import analysis, paths
from crossmem.memory.arms import ARMS

if TYPE_CHECKING:
    import pandas as pd

    from crossmem.results import Run


@dataclass(frozen=True)
class Prose:
    """Sentences to show in a notebook, as a box of the given kind (a CSS class of the report)."""

    sentences: tuple[str, ...]
    kind: str = "finding"

    def __str__(self) -> str:
        return " ".join(self.sentences)

    def _repr_html_(self) -> str:
        body = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        return f'<div class="{self.kind}">{body}</div>'

    def _repr_markdown_(self) -> str:
        return "\n\n".join(self.sentences)


def notice(run: Run) -> Prose:
    """Say what kind of agent the figures come from, and why there are no intervals."""
    parameters = run.config["parameters"]
    if not run.scripted:
        return Prose((f"Measured with the model {parameters['model']}.",), "notice")
    origin = (
        f"Every figure here comes from a scripted agent (profile {parameters['model']}), not from a "
        "language model. The server, the table swaps, the prompts and the memory are real; tokens are "
        "estimated from the prompts a live agent would send."
    )
    spread = "It is deterministic: seed and replicates vary nothing, so no interval is given."
    return Prose((origin, spread), "notice scripted")


def finding(run: Run) -> Prose:
    """Say who paid what over the whole stream and after the drift."""
    said = [_fewest(run), _stale(run), _baselines(run), _poison(run)]
    return Prose(tuple(sentence for sentence in said if sentence))


def headline(run: Run) -> list[str]:
    """Return the three numbers that matter, a line each."""
    table, after = analysis.summary(run), analysis.post_drift(run)
    return [
        f"attempts over {run.length} episodes: {_listed(per_arm(table, 'attempts'))}",
        f"stale attempts after the drift: {_listed(per_arm(after, 'stale_attempts'))}",
        f"tokens per success after the drift: {_listed(per_arm(after, 'tokens_per_success'))}",
    ]


def done(run: Run) -> str:
    """Return the text of a sentinel cell: what ran, the three numbers, where the rows lie."""
    agent = "scripted agent" if run.scripted else "live model"
    ran = f"{run.config['phase']}, stream {run.config['stream']}"
    title = f"{ran}, {agent} {run.config['parameters']['model']}"
    return "\n".join([title, *headline(run), f"Results: {paths.shown(run.path)}"])


def per_arm(table: pd.DataFrame, column: str) -> dict[str, float]:
    """Return one figure of a table that has one row per arm."""
    return {str(arm): float(value) for arm, value in table[column].items()}


def name(arm: str) -> str:
    """Return an arm with what it stands for."""
    return f"{arm} ({ARMS[arm].title})" if arm in ARMS else arm


def count(value: float, thing: str = "") -> str:
    """Write a count or mean, with the thing counted in singular or plural; missing is `none`.

    >>> count(1, "attempt"), count(2.5, "attempt"), count(float("nan"))
    ('1 attempt', '2.5 attempts', 'none')
    """
    if math.isnan(value):
        return "none"
    whole = value == round(value) or abs(value) >= 1000
    plural = "" if not thing else f" {thing}" if value == 1 else f" {thing}s"
    return f"{value:,.0f}{plural}" if whole else f"{value:,.1f}{plural}"


def against(left: float, right: float, thing: str) -> str:
    """Say how one count compares with another.

    >>> against(35, 36, "attempt"), against(36, 36, "attempt")
    ('1 attempt fewer than', 'exactly as many attempts as')
    """
    if left == right:
        return f"exactly as many {thing}s as"
    return f"{count(abs(left - right), thing)} {'more' if left > right else 'fewer'} than"


def _fewest(run: Run) -> str:
    attempts = per_arm(analysis.summary(run), "attempts")
    fewest = min(attempts.values())
    best = [arm for arm, number in attempts.items() if number == fewest]
    text = f"Over {run.length} episodes {_and(map(name, best))} needed fewest attempts: {count(fewest)}"
    if "A0" in attempts and "A0" not in best:
        text += f", {count(attempts['A0'] - fewest)} fewer than an agent without memory"
    return text + "."


def _stale(run: Run) -> str:
    paid = per_arm(analysis.post_drift(run), "stale_attempts")
    groups: dict[float, list[str]] = {}
    for arm, number in paid.items():
        groups.setdefault(number, []).append(arm)
    parts = [
        f"{_and(groups[number])} paid {count(number) if number else 'none'}"
        for number in sorted(groups, reverse=True)
    ]
    return f"Stale attempts after the drift: {'; '.join(parts)}." if parts else ""


def _baselines(run: Run) -> str:
    """Set the ungoverned baselines beside A2, whoever wins."""
    attempts = per_arm(analysis.summary(run), "attempts")
    beside = [arm for arm in ("LW", "LWG") if arm in attempts]
    if "A2" not in attempts or not beside:
        return ""
    text = "; ".join(
        f"{name(arm)} needed {against(attempts[arm], attempts['A2'], 'attempt')} {name('A2')}"
        for arm in beside
    )
    return f"{text}.{_invalidation(run, attempts) if 'LWG' in beside else ''}"


def _invalidation(run: Run, attempts: Mapping[str, float]) -> str:
    """Say what invalidation alone bought: LWG admits as A2 does and never invalidates."""
    after = per_arm(analysis.post_drift(run), "stale_attempts")
    fewer = after["LWG"] - after["A2"]
    saved = attempts["LWG"] - attempts["A2"]
    stale = f"{count(fewer, 'stale attempt')} fewer" if fewer > 0 else "no fewer stale attempts"
    bought = f"{count(saved, 'attempt')}" if saved > 0 else "no attempts"
    return (
        " LWG admits exactly what A2 admits and never invalidates: on this stream invalidation "
        f"bought {bought} and {stale}."
    )


def _poison(run: Run) -> str:
    hit = {
        arm: number
        for arm, number in per_arm(analysis.summary(run), "poisoned_attempts").items()
        if number
    }
    if not hit:
        return ""
    numbers = _and(sorted({count(number) for number in hit.values()}))
    return (
        f"{_and(hit)} stored values that belong to one request alone and sent them with another: "
        f"{numbers} poisoned attempts each."
    )


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{arm} {count(value)}" for arm, value in values.items())


def _and(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
