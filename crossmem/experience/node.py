"""The attempt journal of a memory: every attempt as a node, immutable, its links by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from crossmem.contract import Json
from crossmem.memory.entry import Entry, Key, canonical_json

Operator = Literal["draft", "improve", "crossover", "debug"]
SCHEMA = 1


@dataclass(frozen=True)
class Node:
    """One attempt.

    `id` is its place in the journal. `parents` are the attempt before it in its episode, or the nodes
    whose experience stood in the prompt. `plan` names what was merged into the request. `lessons` are
    the entries that stood in it, stamped with the world it was sent into. `metric` is
    1 - violated families / families of the domain, 1.0 = accepted. `info` holds the evaluator's facts:
    status, violated families, table versions.
    """

    id: int
    episode: int
    operator: Operator
    parents: tuple[int, ...]
    keys: tuple[Key, ...]
    request: dict[str, Json]
    plan: str
    output: str
    metric: float
    info: dict[str, Json]
    lessons: tuple[Entry, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the API took the request."""
        return self.metric == 1.0

    @property
    def errors(self) -> tuple[str, ...]:
        """The error signature: the families that the request violated."""
        return tuple(self.info.get("violated", ()))

    @property
    def world(self) -> dict[str, str]:
        """The version of each table that the attempt consulted."""
        return dict(self.info.get("stamps", {}))


def line_size(content: Mapping[str, Any]) -> int:
    """Return the bytes of an object as a line of a file that begins with a checksum of 8 digits."""
    return len(canonical_json(content).encode()) + len("00000000 \n")


@dataclass
class NodeJournal:
    """The nodes in order, with the indices that selection reads. `size` = the bytes of its lines."""

    nodes: list[Node] = field(default_factory=list)
    size: int = 0
    _children: dict[int, list[int]] = field(default_factory=dict)
    _accepted: dict[Key, list[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.nodes)

    def append(self, node: Node) -> int:
        """Add a node and return the bytes it takes. Costs what the node costs, not the journal.

        Raises ValueError where the id is not the next or a parent is unknown.
        """
        if node.id != len(self.nodes) or any(not 0 <= parent < node.id for parent in node.parents):
            raise ValueError(
                f"node {node.id} with parents {node.parents} cannot follow {len(self)} nodes"
            )
        self.nodes.append(node)
        for parent in node.parents:
            self._children.setdefault(parent, []).append(node.id)
        if node.accepted:
            for key in {lesson.key for lesson in node.lessons}:
                self._accepted.setdefault(key, []).append(node.id)
        size = line_size({"schema": SCHEMA, **asdict(node)})
        self.size += size
        return size

    def accepted_with(self, key: Key, newest: int) -> list[int]:
        """Return the `newest` accepted nodes that hold a lesson of `key`, oldest first."""
        return self._accepted.get(key, [])[-newest:]

    def children(self, node: int, newest: int | None = None) -> list[int]:
        """Return the nodes that name `node` as a parent, oldest first."""
        return self._children.get(node, [])[-(newest or 0) :]

    def ancestors(self, node: int, number: int) -> list[int]:
        """Return up to `number` ancestors, breadth first over the parents, nearest first."""
        found: dict[int, None] = {}
        layer: Iterable[int] = self.nodes[node].parents
        while layer and len(found) < number:
            found.update(dict.fromkeys(layer))
            layer = [up for each in layer for up in self.nodes[each].parents if up not in found]
        return list(found)[:number]
