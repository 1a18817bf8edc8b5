"""The attempt journal of a memory: every attempt as a node, immutable, its links by id.

The base processors read it a line at a time. **Faithful** as specified: `ancestral` stops before the
success it was looking for, outdated or not; `children` is what the processor called sibling takes.
**Fixed**: `ancestral` walks on past a success that no longer holds and takes in the one that does;
`repaired_children` follows each child through the attempts that repaired it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from crossmem.contract import Json
from crossmem.memory.entry import Entry, Key, canonical_json

Operator = Literal["draft", "improve", "crossover", "debug"]
NEWEST = 500
"""Children and candidates looked at, at most."""


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
        """Add the next node and return its bytes. Costs what the node costs, not the journal."""
        self.nodes.append(node)
        for parent in node.parents:
            self._children.setdefault(parent, []).append(node.id)
        if node.accepted:
            for key in {lesson.key for lesson in node.lessons}:
                self._accepted.setdefault(key, []).append(node.id)
        size = line_size({"schema": 1, **asdict(node)})
        self.size += size
        return size

    def first_parent(self, node: Node) -> Node | None:
        """Return the first parent of a node."""
        return self.nodes[node.parents[0]] if node.parents else None

    def accepted(self) -> list[int]:
        """Return every accepted node that anything was merged into, in order."""
        return [node.id for node in self.nodes if node.accepted and node.plan]

    def accepted_with(self, key: Key) -> list[int]:
        """Return the newest accepted nodes that hold a lesson of `key`, oldest first."""
        return self._accepted.get(key, [])[-NEWEST:]

    def children(self, node: int) -> list[int]:
        """Return the newest nodes that name `node` as a parent, oldest first."""
        return self._children.get(node, [])[-NEWEST:]

    def repaired_children(self, node: int) -> list[int]:
        """Return the children of `node` and the attempts that repaired each, oldest first."""
        found = set()
        for child in self.children(node):
            found.add(child)
            while child + 1 < len(self) and self.nodes[child + 1].operator == "debug":
                child += 1  # noqa: PLW2901
                found.add(child)
        return sorted(found)

    def ancestral(self, node: int, holds: Callable[[Node], bool] | None = None) -> list[int]:
        """Return `node` and its first parents up to the first accepted one, left out; oldest first.

        With `holds` the walk ends at the first accepted one of which it is true, and takes that in.
        """
        line: list[int] = []
        at: Node | None = self.nodes[node]
        while at and not (at.accepted and holds is None):
            line.append(at.id)
            if at.accepted and holds and holds(at):
                break
            at = self.first_parent(at)
        return line[::-1]

    def ancestors(self, node: int, number: int) -> list[int]:
        """Return up to `number` ancestors, breadth first over the parents, nearest first."""
        found: dict[int, None] = {}
        layer: Iterable[int] = self.nodes[node].parents
        while layer and len(found) < number:
            found.update(dict.fromkeys(layer))
            layer = [up for each in layer for up in self.nodes[each].parents if up not in found]
        return list(found)[:number]
