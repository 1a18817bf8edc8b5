"""The strategy board: the aggregate of all cards, kept up as they come.

**Faithful**: one set of counters over all time; what a drift has made wrong weighs as much as ever.
**Fixed**: counters per version of each table, of which errors halve every `HALF_LIFE` episodes; a
prompt is shown those of the present versions alone.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crossmem.experience.select import decay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crossmem.experience.cards import Card


@dataclass
class Version:
    """What was seen under one version of a table. `errors`: counts, and when each was made."""

    number: int = 0
    best: Card | None = None
    errors: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, card: Card) -> None:
        """Count a card in."""
        self.number += 1
        if card.signature:
            self.errors[card.signature] = (self.left(card.signature, card.episode) + 1, card.episode)
        if self.best is None and card.metric == 1.0:  # none is better than accepted
            self.best = card

    def left(self, error: str, episode: int) -> float:
        """Return what is left of an error's count by `episode`."""
        number, counted = self.errors.get(error, (0.0, episode))
        return number * decay(episode - counted)

    def line(self, episode: int) -> str:
        """Return what a prompt shows: of the errors the three highest counts of at least a half."""
        line = f"{self.number} attempts"
        if self.best:
            line += f", best {_named(self.best)}"
        counts = {error: self.left(error, episode) for error in self.errors}
        most = sorted(filter(lambda error: counts[error] >= 0.5, counts), key=lambda e: -counts[e])[:3]
        lately = ", ".join(f"{error} x{counts[error]:.1f}" for error in most)
        return f"{line}; refused lately for {lately}" if lately else line


@dataclass
class Board:
    """Counters over all cards, and per table and version the ones of that world."""

    families: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    worlds: dict[tuple[str, str], Version] = field(default_factory=dict)
    best: Card | None = None
    deltas: deque[float] = field(default_factory=lambda: deque(maxlen=5))

    def add(self, card: Card) -> None:
        """Count a card in, in constant time."""
        self.families[card.family] += 1
        if card.metric != 1.0:
            self.failed[card.family] += 1
        elif self.best is None:  # none is better than accepted
            self.best = card
        if card.signature:
            self.errors[card.signature] += 1
        for world in card.world.items():
            self.worlds.setdefault(world, Version()).add(card)
        if card.delta is not None:
            self.deltas.append(card.delta)

    @property
    def trend(self) -> float | None:
        """The mean of the last five gains over a parent."""
        return sum(self.deltas) / len(self.deltas) if self.deltas else None

    @property
    def underexplored(self) -> list[str]:
        """Families with at most two cards, not all of them failures."""
        return sorted(
            name
            for name, number in self.families.items()
            if number <= 2 and self.failed[name] < number and name != "unknown"
        )

    def lines(self, parents: Sequence[Card] = ()) -> list[str]:
        """Return what a prompt shows of all time, beside the cards of its `parents` (faithful)."""
        said = [f"Best so far: {_named(self.best)}"] if self.best else []
        families = list(dict.fromkeys(card.family for card in parents))
        said += [
            f"Family {name}: {self.families[name]} attempts, {self.failed[name]} refused"
            for name in families
        ]
        if len(parents) > 1:
            kind = "different families" if len(families) > 1 else "the same family"
            said.append(f"The parents are of {kind}")
        if self.errors:
            often = ", ".join(f"{name} x{number}" for name, number in self.errors.most_common(3))
            said.append(f"Refused before for: {often}")
        if self.underexplored:
            said.append(f"Rare: {', '.join(self.underexplored[:3])}")
        if self.trend is not None:
            said.append(f"Gain over a parent, last five: {self.trend:+.2f}")
        return said

    def lines_of(self, world: Mapping[str, str], episode: int) -> list[str]:
        """Return what a prompt shows of the present `world`, a line for each table (fixed)."""
        return [
            f"Under {' '.join(each)}: {self.worlds.get(each, Version()).line(episode)}"
            for each in sorted(world.items())
        ]


def _named(card: Card) -> str:
    return f"attempt {card.node} ({card.family}, {card.metric:.2f})"
