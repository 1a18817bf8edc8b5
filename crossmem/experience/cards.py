"""Cards: a small record per node, derived from it.

**Faithful**: rank and "current best" are written into a card when it is made and stay; each card embeds
the record of every candidate; all cards and the board are rewritten at each step; family and signature
come from a search of the texts of request and answer, which is the domain's to answer.
**Fixed**: rank and best are views, computed when read; a card holds the ids selected and one hash of
the candidates; cards are appended; family and signature come from the structured request and answer.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from crossmem.contract import Json
from crossmem.experience.board import Board
from crossmem.experience.node import Node, NodeJournal, line_size
from crossmem.memory.entry import canonical_json

if TYPE_CHECKING:
    from crossmem.domains.base import Domain


@dataclass(frozen=True)
class Card:
    """What is shown of a node. `delta` is the gain over its best parent, None where one is missing.

    `novelty` = 1 / sqrt(1 + earlier cards of the same family). `rank` and `best` are those at the time
    of writing (faithful) or None: then they are views of the `Deck`. `candidates` is the record of
    every candidate (faithful) or empty, with `selected` and one hash in its place.
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
    selected: tuple[int, ...] = ()
    candidates: tuple[dict[str, Json], ...] = ()
    candidates_hash: str = ""
    rank: int | None = None
    best: bool | None = None


def family_of(node: Node) -> str:
    """Return the kinds of lesson in a node and the rules it met, from the structured request."""
    met = {lesson.key[0] for lesson in node.lessons} | set(node.errors)
    return "+".join(sorted(met)) or "plain"


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
    _families: Counter[str] = field(default_factory=Counter)
    _metrics: list[float] = field(default_factory=list)

    def add(self, journal: NodeJournal, node: Node, selected: Sequence[int] = ()) -> Card:
        """Make the card of a node that the journal holds, and count it in."""
        family = self._family(node)
        deltas = [node.metric - journal.nodes[parent].metric for parent in node.parents]
        card = Card(
            node=node.id,
            episode=node.episode,
            operator=node.operator,
            family=family,
            signature=self._signature(node),
            metric=node.metric,
            delta=min(deltas) if deltas else None,
            novelty=1 / math.sqrt(1 + self._families[family]),
            text=node.plan,
            world=node.world,
            selected=tuple(selected),
        )
        self._families[family] += 1
        self.largest_delta = max(self.largest_delta, card.delta or 0.0)
        if card.signature:
            self.alike.setdefault(card.signature, []).append(node.id)
        insort(self._metrics, node.metric)
        card = self._as_faithful(card) if self.faithful else self._as_fixed(card)
        self.cards.append(card)
        self.board.add(card)
        self._write(card)
        return card

    def _family(self, node: Node) -> str:
        if self.faithful:
            text = f"{canonical_json(node.request)} {node.plan}"
            return self.domain.family_in_text(text) or "unknown"
        return family_of(node)

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
        if card.rank is not None:
            return card.rank
        return len(self._metrics) - bisect_right(self._metrics, card.metric) + 1

    def is_best(self, card: Card) -> bool:
        """Tell whether no card is better: as written (faithful) or as it is now."""
        return self.rank(card) == 1 if card.best is None else card.best

    def _as_faithful(self, card: Card) -> Card:
        embedded = tuple(
            {"node": each.node, "metric": each.metric, "delta": each.delta, "novelty": each.novelty}
            for each in self.cards
        )
        rank = len(self._metrics) - bisect_right(self._metrics, card.metric) + 1
        return Card(**{**vars(card), "candidates": embedded, "rank": rank, "best": rank == 1})

    def _as_fixed(self, card: Card) -> Card:
        of = canonical_json(list(card.selected)).encode()
        return Card(**{**vars(card), "candidates_hash": hashlib.sha256(of).hexdigest()[:16]})

    def _write(self, card: Card) -> None:
        size = line_size(asdict(card))
        self.bytes += size
        if not self.faithful:
            self.written += size
            return
        # all cards anew, and the board, which repeats what every card embeds
        self.written += self.bytes * 2
