"""Words for selected experience, and how much of it fits into a prompt.

**Faithful**: each field of an item is cut, nothing limits their sum. **Fixed**: one budget in tokens
over all sections, a floor for each, the newest attempts first; what is left out is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crossmem.agents.prompts import estimate_tokens
from crossmem.errors import InputError

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


def unlimited(sections: Sequence[Section]) -> Fitted:
    """Return all sections whole (faithful)."""
    kept = [item for section in sections for item in section.items]
    text = _text(sections, {id(item) for item in kept})
    return Fitted(text, estimate_tokens(text), tuple(item.name for item in kept), ())


def fit(sections: Sequence[Section], budget: int = TOKENS) -> Fitted:
    """Return what fits into `budget` tokens (fixed).

    Every section first takes from its own floor, then what is left goes to the sections in order. An
    item is kept whole or cut whole. Raises InputError for a negative budget; one below the smallest
    item keeps nothing and names all that was cut.
    """
    if budget < 0:
        raise InputError(f"token budget {budget}: a budget is 0 or more")
    kept: set[int] = set()
    left = budget
    for floors in (True, False):
        for section in sections:
            room = min(left, section.floor) if floors else left
            for item in section.items:
                cost = estimate_tokens(f"{item.text}\n")
                title = (
                    0 if kept & set(map(id, section.items)) else estimate_tokens(f"{section.title}\n")
                )
                if id(item) not in kept and cost + title <= room:
                    kept.add(id(item))
                    room -= cost + title
                    left -= cost + title
    text = _text(sections, kept)
    every = [item for section in sections for item in section.items]
    return Fitted(
        text,
        estimate_tokens(text),
        tuple(item.name for item in every if id(item) in kept),
        tuple(item.name for item in every if id(item) not in kept),
    )


def _text(sections: Sequence[Section], kept: set[int]) -> str:
    blocks = []
    for section in sections:
        lines = [item.text for item in section.items if id(item) in kept]
        if lines:
            blocks.append("\n".join([section.title, *lines]))
    return "\n".join(blocks)
