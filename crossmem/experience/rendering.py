"""Words for selected experience, and how much of it fits into a prompt.

**Faithful**: each field of an item is cut, nothing limits their sum. **Fixed**: one budget in tokens
over all sections, a floor for each, the newest attempts first; what is left out is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crossmem.agents.prompts import estimate_tokens

TOKENS = 800
"""Fixed: tokens of all sections together."""


@dataclass(frozen=True)
class Item:
    """One piece of a section; `name` says what is lost if it is left out."""

    name: str
    text: str


@dataclass(frozen=True)
class Section:
    """Items under a title, the most wanted first; `floor` tokens are kept for it if it needs them."""

    title: str
    items: Sequence[Item]
    floor: int = 0


@dataclass(frozen=True)
class Fitted:
    """What fits: the text, its estimated tokens, and the names of the items kept and cut."""

    text: str
    tokens: int
    kept: tuple[str, ...]
    cut: tuple[str, ...]


def fit(sections: Sequence[Section], budget: float = TOKENS) -> Fitted:
    """Return what fits into `budget` tokens: all without one, where it is infinite (faithful).

    Every section first takes from its own floor, then what is left goes to the sections in order. An
    item is kept whole or cut whole; a budget below the smallest keeps nothing and names all as cut.
    """
    kept: set[int] = set()
    left = budget
    for floors in (True, False):
        for section in sections:
            room = min(left, section.floor) if floors else left
            for item in section.items:
                begun = kept & set(map(id, section.items))
                cost = estimate_tokens(f"{item.text}\n")
                cost += 0 if begun else estimate_tokens(f"{section.title}\n")
                if id(item) not in kept and cost <= room:
                    kept.add(id(item))
                    room -= cost
                    left -= cost
    blocks = [
        "\n".join([section.title, *lines])
        for section in sections
        if (lines := [item.text for item in section.items if id(item) in kept])
    ]
    text = "\n".join(blocks)
    every = [item for section in sections for item in section.items]
    return Fitted(
        text,
        estimate_tokens(text),
        tuple(item.name for item in every if id(item) in kept),
        tuple(item.name for item in every if id(item) not in kept),
    )
