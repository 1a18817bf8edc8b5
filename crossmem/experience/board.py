"""The strategy board: the aggregate of all cards, kept up as they come.

**Faithful**: one set of counters over all time; what a drift has made wrong weighs as much as ever.
**Fixed**: counters per version of each table, of which errors halve every `HALF_LIFE` episodes; a
prompt is shown those of the present versions alone.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crossmem.experience.select import HALF_LIFE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crossmem.experience.cards import Card


@dataclass
class Fading:
    """Counts that halve every `HALF_LIFE` episodes."""

    _counted: dict[str, tuple[float, int]] = field(default_factory=dict)

    def add(self, name: str, episode: int) -> None:
        """Count one more."""
        self._counted[name] = (self.at(name, episode) + 1, episode)

    def at(self, name: str, episode: int) -> float:
        """Return what is left of a count by `episode`."""
        number, counted = self._counted.get(name, (0.0, episode))
        return float(number * 0.5 ** ((episode - counted) / HALF_LIFE))

    def most(self, number: int, episode: int) -> list[tuple[str, float]]:
        """Return the highest counts of at least a half, highest first."""
        left = ((name, self.at(name, episode)) for name in self._counted)
        return sorted((each for each in left if each[1] >= 0.5), key=lambda each: -each[1])[:number]


@dataclass
class Version:
    """What was seen under one version of one table."""

    number: int = 0
    best: Card | None = None
    errors: Fading = field(default_factory=Fading)

    def add(self, card: Card) -> None:
        """Count a card in."""
        self.number += 1
        if card.signature:
            self.errors.add(card.signature, card.episode)
        if self.best is None and card.metric == 1.0:  # none is better than accepted
            self.best = card


@dataclass
class Board:
    """Counters over all cards, and per table and version the ones of that world."""

    number: int = 0
    valid: int = 0
    families: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    worlds: dict[tuple[str, str], Version] = field(default_factory=dict)
    best: Card | None = None
    deltas: deque[float] = field(default_factory=lambda: deque(maxlen=5))

    def add(self, card: Card) -> None:
        """Count a card in, in constant time."""
        self.number += 1
        self.families[card.family] += 1
        good = card.metric == 1.0
        self.valid += good
        if not good:
            self.failed[card.family] += 1
        if card.signature:
            self.errors[card.signature] += 1
        for world in card.world.items():
            self.worlds.setdefault(world, Version()).add(card)
        if card.delta is not None:
            self.deltas.append(card.delta)
        if good and self.best is None:  # none is better than accepted
            self.best = card

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
        said = []
        for table, version in sorted(world.items()):
            seen = self.worlds.get((table, version), Version())
            line = f"Under {table} {version}: {seen.number} attempts"
            if seen.best:
                line += f", best {_named(seen.best)}"
            if lately := seen.errors.most(3, episode):
                line += f"; refused lately for {', '.join(f'{n} x{left:.1f}' for n, left in lately)}"
            said.append(line)
        return said


def _named(card: Card) -> str:
    return f"attempt {card.node} ({card.family}, {card.metric:.2f})"
