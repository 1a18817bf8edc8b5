"""Words for figures: sentences in a box, counts with their thing, names of arms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

from crossmem.memory.arms import ARMS


@dataclass(frozen=True)
class Prose:
    """Sentences to show in a notebook, as a box of the given kind (a CSS class of the report).

    `data` is what goes into the notebook beside them by type; nothing shows it.
    """

    sentences: tuple[str, ...]
    kind: str = "finding"
    data: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        return " ".join(self.sentences)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return dict(self.data)

    def _repr_html_(self) -> str:
        body = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        return f'<div class="{self.kind}">{body}</div>'

    def _repr_markdown_(self) -> str:
        return "\n\n".join(self.sentences)


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
    whole = value == round(value) or round(abs(value), 1) >= 100
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


def listed(values: Mapping[str, float]) -> str:
    """List a figure per arm."""
    return ", ".join(f"{arm} {count(value)}" for arm, value in values.items())


def grouped(values: Mapping[str, float]) -> str:
    """List the arms by figure, lowest first and a missing one last.

    >>> grouped({"A0": 36, "A2": 34, "LW": 36})
    '34 A2; 36 A0, LW'
    """
    groups: dict[str, list[str]] = {}
    for arm, value in sorted(values.items(), key=lambda each: (math.isnan(each[1]), each[1])):
        groups.setdefault(count(value), []).append(arm)
    return "; ".join(f"{number} {', '.join(arms)}" for number, arms in groups.items())


def joined(names: Iterable[str]) -> str:
    """Join names with commas and a last `and`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
