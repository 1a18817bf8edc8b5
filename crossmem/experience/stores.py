"""The stores of one experience memory: attempts, cards with their board, summaries, guidance."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from crossmem.experience.cards import Deck
from crossmem.experience.node import NodeJournal
from crossmem.experience.skills import Guidance
from crossmem.experience.summaries import SummaryCache

if TYPE_CHECKING:
    from crossmem.domains.base import Domain


@dataclass
class Stores:
    """What a memory holds; `world` maps each table to the version last seen."""

    faithful: bool
    domain: Domain
    journal: NodeJournal = field(default_factory=NodeJournal)
    world: dict[str, str] = field(default_factory=dict)
    budget: ClassVar[None] = None  # none is in force here

    def __post_init__(self) -> None:
        self.deck = Deck(self.faithful, self.domain)
        self.cache = SummaryCache(self.faithful)
        self.guidance = Guidance(self.faithful)

    @property
    def count(self) -> int:
        """The number of nodes."""
        return len(self.journal)

    @property
    def bytes(self) -> int:
        """The bytes of all that is kept."""
        prompt = len(self.guidance.prompt.encode())
        return self.journal.size + self.deck.bytes + self.cache.bytes + prompt

    @property
    def written(self) -> int:
        """The bytes that cards, summaries and guidance have written so far."""
        return self.deck.written + self.cache.bytes + self.guidance.written
