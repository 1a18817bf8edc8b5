"""The stores of one experience memory, and the folder that they can be kept in.

A run needs no such folder: its journal of events makes the stores anew. The folder is for reading on
elsewhere, and for skills that another run begins with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crossmem import paths
from crossmem.errors import InputError
from crossmem.experience.cards import Deck
from crossmem.experience.node import Damage, NodeFile, NodeJournal
from crossmem.experience.skills import Guidance, read_skills, write_skills
from crossmem.experience.summaries import SummaryCache

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

NODES, SUMMARIES, SKILLS = "nodes.jsonl", "summaries.jsonl", "skills"


@dataclass
class Stores:
    """Attempt journal, cards with their board, summaries, guidance; `world`: the versions last seen."""

    faithful: bool
    journal: NodeJournal = field(default_factory=NodeJournal)
    world: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.deck = Deck(self.faithful)
        self.cache = SummaryCache(self.faithful)
        self.guidance = Guidance(self.faithful)

    @property
    def bytes(self) -> int:
        """The bytes of all that is kept."""
        prompt = len(self.guidance.prompt.encode())
        return self.journal.size + self.deck.bytes + self.cache.bytes + prompt

    @property
    def written(self) -> int:
        """The bytes that cards and guidance have written so far."""
        return self.deck.written + self.guidance.written

    def nodes(self) -> pd.DataFrame:
        """Return the attempts as a table, one row per node, with what its card shows of it now."""
        import pandas as pd

        rows = [
            {
                "node": node.id,
                "episode": node.episode,
                "operator": node.operator,
                "parents": ", ".join(map(str, node.parents)),
                "metric": node.metric,
                "family": card.family,
                "rank": self.deck.rank(card),
                "best": self.deck.is_best(card),
                "refused for": ", ".join(node.errors),
                "lessons": len(node.lessons),
            }
            for node, card in zip(self.journal.nodes, self.deck.cards, strict=True)
        ]
        return pd.DataFrame(rows).set_index("node") if rows else pd.DataFrame()

    def save(self, folder: Path) -> None:
        """Write the stores into `folder`, each file whole."""
        with paths.whole(folder / NODES) as draft:
            NodeFile(draft).save(self.journal.nodes)
        with paths.whole(folder / SUMMARIES) as draft:
            self.cache.save(draft)
        write_skills(self.guidance.in_force.values(), folder / SKILLS)


def load(folder: Path, *, faithful: bool) -> tuple[Stores, Mapping[str, list[Damage]]]:
    """Return the stores that lie in `folder`, and by file the damaged records, which are left out.

    Cards and board are made anew from the attempts. Raises InputError where there are no attempts, and
    as `read_skills` for a skill that is none.
    """
    if not (folder / NODES).is_file():
        raise InputError(f"stores: {folder} holds no {NODES}")
    journal, damaged = NodeFile(folder / NODES).load()
    stores = Stores(faithful, journal)
    for node in journal.nodes:
        stores.deck.add(journal, node, node.parents)
        stores.world.update(node.world)
    damage = {NODES: damaged}
    if damaged and faithful:  # a summary kept by id alone would be another node's now
        damage[SUMMARIES] = [Damage(0, "none is read: nodes are lost, and these are kept by id")]
    elif (folder / SUMMARIES).is_file():
        damage[SUMMARIES] = stores.cache.load(folder / SUMMARIES)
    if any((folder / SKILLS).glob("**/*.md")):
        for skill in read_skills(folder / SKILLS).values():
            stores.guidance.learn(skill)
    return stores, {name: found for name, found in damage.items() if found}
