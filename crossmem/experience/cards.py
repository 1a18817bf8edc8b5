"""Cards: a small record per node, derived from it.

**Faithful**: a rank is written into a card when it is made and stays; each card's line embeds the
record of every candidate; all cards and the board are rewritten at each step; family and signature
come from a search of the texts of request and answer, which is the domain's to answer.
**Fixed**: a rank is a view, computed when read; a line holds the ids selected and one hash of them;
cards are appended; family and signature come from the structured request and answer.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from crossmem.experience.board import Board
from crossmem.experience.node import Node, NodeJournal, line_size
from crossmem.memory.entry import canonical_json

if TYPE_CHECKING:
    from crossmem.domains.base import Domain


@dataclass(frozen=True)
class Card:
    """What is shown of a node. `delta` is the gain over its best parent, None where one is missing.

    `novelty` = 1 / sqrt(1 + earlier cards of the same family). `rank` is that at the time of writing
    (faithful), 1 = best, or None: then it is a view of the `Deck`.
    """

    node: int
    episode: int
    operator: str
    family: str
    signature: str | None
    metric: float
    delta: float | None
    novelty: float
    text: str
    world: dict[str, str]
    rank: int | None


@dataclass
class Deck:
    """The cards of a journal, and the board. Adding a card rewrites no other (fixed).

    `bytes` are those of the cards as lines; `written` counts what files would have taken so far: what
    is appended (fixed) or rewritten (faithful).
    """

    faithful: bool
    domain: Domain
    cards: list[Card] = field(default_factory=list)
    board: Board = field(default_factory=Board)
    written: int = 0
    bytes: int = 0
    largest_delta: float = 0.0
    alike: dict[str, list[int]] = field(default_factory=dict)
    """The nodes of each signature, oldest first."""
    _metrics: list[float] = field(default_factory=list)

    def add(self, journal: NodeJournal, node: Node, selected: Sequence[int] = ()) -> Card:
        """Make the card of a node that the journal holds, and count it in."""
        family = self._family(node)
        deltas = [node.metric - journal.nodes[parent].metric for parent in node.parents]
        insort(self._metrics, node.metric)
        card = Card(
            node=node.id,
            episode=node.episode,
            operator=node.operator,
            family=family,
            signature=self._signature(node),
            metric=node.metric,
            delta=min(deltas) if deltas else None,
            novelty=1 / math.sqrt(1 + self.board.families[family]),
            text=node.plan,
            world=node.world,
            rank=self._rank(node.metric) if self.faithful else None,
        )
        self._write(card, selected)
        self.largest_delta = max(self.largest_delta, card.delta or 0.0)
        if card.signature:
            self.alike.setdefault(card.signature, []).append(node.id)
        self.cards.append(card)
        self.board.add(card)
        return card

    def _family(self, node: Node) -> str:
        if self.faithful:
            text = f"{canonical_json(node.request)} {node.plan}"
            return self.domain.family_in_text(text) or "unknown"
        met = {lesson.key[0] for lesson in node.lessons} | set(node.errors)
        return "+".join(sorted(met)) or "plain"

    def _signature(self, node: Node) -> str | None:
        """Return what tells a refusal's cause, None if accepted."""
        if node.accepted:
            return None
        if not self.faithful:
            return "+".join(node.errors) or None
        failed = (node.info.get("status") or 0) >= 500
        return self.domain.error_in_text(node.output) or ("sandbox_error" if failed else None)

    @property
    def metrics(self) -> tuple[float, float]:
        """The lowest and the highest metric of all cards."""
        return self._metrics[0], self._metrics[-1]

    def rank(self, card: Card) -> int:
        """Return the card's rank among all, 1 = best: as written (faithful) or as it is now."""
        return card.rank or self._rank(card.metric)

    def _rank(self, metric: float) -> int:
        return len(self._metrics) - bisect_right(self._metrics, metric) + 1

    def _write(self, card: Card, selected: Sequence[int]) -> None:
        """Count the bytes of a card's line, which names its candidates."""
        embedded = self.cards if self.faithful else []
        hashed = hashlib.sha256(canonical_json(list(selected)).encode()).hexdigest()[:16]
        line = {
            **asdict(card),
            "best": card.rank == 1 if self.faithful else None,
            "selected": list(selected),
            "candidates": [
                {"node": each.node, "metric": each.metric, "delta": each.delta, "novelty": each.novelty}
                for each in embedded
            ],
            "candidates_hash": "" if self.faithful else hashed,
        }
        size = line_size(line)
        self.bytes += size
        # faithful: all cards anew, and the board, which repeats what every card embeds
        self.written += self.bytes * 2 if self.faithful else size
