"""The attempt journal: every attempt as a node, its links by id, its file without loss.

**Fixed**: a node is immutable; links are ids resolved through one index; a line of the file is its
CRC-32 and one JSON object of one schema, so that a bad record is named and the rest kept; appending
costs what the node costs.
**Faithful** (`FaithfulFile`): the evaluator's facts are written nested and read flattened, so that they
come back empty; links are rebuilt as copies, so that a parent is a shadow of the node that the journal
holds; one torn line ends the whole reading; every save rewrites everything.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from crossmem.contract import Json
from crossmem.memory.entry import Entry, Key, canonical_json

if TYPE_CHECKING:
    from pathlib import Path

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

    def dumped(self) -> dict[str, Json]:
        """Return the node as JSON."""
        return {"schema": SCHEMA, **asdict(self)}


def loaded(content: Mapping[str, Any]) -> Node:
    """Return the node that `dumped` wrote; raises ValueError for another schema."""
    plain = dict(content)
    if plain.pop("schema", None) != SCHEMA:
        raise ValueError(f"schema {content.get('schema')!r}, not {SCHEMA}")
    if not isinstance(plain["metric"], int | float) or not isinstance(plain["info"], dict):
        raise TypeError("its metric is no number, or its info no object")
    plain["parents"] = tuple(plain["parents"])
    plain["keys"] = tuple(map(tuple, plain["keys"]))
    plain["lessons"] = tuple(Entry(**{**each, "key": tuple(each["key"])}) for each in plain["lessons"])
    return Node(**plain)


@dataclass
class NodeJournal:
    """The nodes in order, with the indices that selection reads. `size` = the bytes of its lines."""

    nodes: list[Node] = field(default_factory=list)
    size: int = 0
    _children: dict[int, list[int]] = field(default_factory=dict)
    _accepted: dict[Key, list[int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.nodes)

    def append(self, node: Node) -> bytes:
        """Add a node and return its line. Costs what the node costs, not what the journal holds.

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
        line = checked_line(node.dumped())
        self.size += len(line)
        return line

    def reload(self, nodes: Iterable[Node]) -> None:
        """Hold `nodes` in place of what is held."""
        vars(self).update(vars(NodeJournal()))
        for node in nodes:
            self.append(node)

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


# -- files ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Damage:
    """A record that could not be read: its line, from 1, and why."""

    line: int
    why: str


def checked_line(content: Mapping[str, Json]) -> bytes:
    """Return an object as a line that begins with its checksum."""
    text = canonical_json(dict(content)).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read_lines(path: Path) -> tuple[list[tuple[int, dict[str, Any]]], list[Damage]]:
    """Return the whole records of a file, each with its line from 1, and what is damaged."""
    good: list[tuple[int, dict[str, Any]]] = []
    bad: list[Damage] = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        checksum, _, text = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n"):
            bad.append(Damage(number, "torn: the line has no end"))
        elif checksum != b"%08x" % zlib.crc32(text):
            bad.append(Damage(number, "altered: its checksum is another"))
        elif (content := _object(text)) is None:
            bad.append(Damage(number, "no record: its checksum holds, but it is no JSON object"))
        else:
            good.append((number, content))
    return good, bad


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


class NodeFile:
    """The fixed file: appended to, checked line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, nodes: Iterable[Node]) -> None:
        """Write all nodes anew."""
        self.path.write_bytes(b"".join(checked_line(node.dumped()) for node in nodes))

    def append(self, line: bytes) -> None:
        """Add a line; a torn end left by a killed process is ended first, so that nothing is glued."""
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                torn = file.read(1) != b"\n"
                line = b"\n" + line if torn else line
            file.write(line)

    def load(self) -> tuple[NodeJournal, list[Damage]]:
        """Return the journal, and the records that are damaged or hang on a damaged one.

        Nodes keep what they hold; ids are given anew, links into lost records are dropped.
        """
        records, bad = read_lines(self.path)
        journal, new = NodeJournal(), dict[int, int]()
        for number, content in records:
            try:
                node = loaded(content)
            except (ValueError, KeyError, TypeError) as error:
                bad.append(Damage(number, f"no node of schema {SCHEMA}: {error}"))
                continue
            parents = tuple(new[each] for each in node.parents if each in new)
            new[node.id] = len(journal)
            journal.append(replace(node, id=len(journal), parents=parents))
        return journal, bad


@dataclass(eq=False)
class Shadow:
    """A node as the faithful file brings it back: its parents are copies, `info` is empty.

    `summary` is what may be attached later: to this object, which the journal does not hold.
    """

    id: int
    metric: float
    info: dict[str, Json]
    parents: list[Shadow] = field(default_factory=list)
    summary: str | None = None


class FaithfulFile:
    """The faithful file: everything rewritten at each save, and read back with loss."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, nodes: Sequence[Node]) -> int:
        """Write all nodes over what was there; return the bytes written."""
        lines = [{**each.dumped(), "info": {}, "metric_info": each.info} for each in nodes]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        return self.path.write_text(text, encoding="utf-8")

    def load(self) -> list[Shadow]:
        """Return the nodes. Raises JSONDecodeError where any line is torn."""
        nodes = self.restored()
        first = {node.id: Shadow(node.id, node.metric, node.info) for node in nodes}
        for node in nodes:
            first[node.id].parents = [first[each] for each in node.parents]
        return list(_copies(first.values()))

    def restored(self) -> list[Node]:
        """Return what a resume goes on with: every node without its evaluator's facts."""
        found = []
        for line in self.path.read_text(encoding="utf-8").splitlines():
            content = json.loads(line)
            del content[
                "metric_info"
            ]  # read as metric_info/status and so on, under which nothing stands
            found.append(loaded(content))
        return found


def _copies(nodes: Iterable[Shadow]) -> Iterator[Shadow]:
    for node in nodes:
        yield replace(node, parents=list(node.parents))


def pick_final(nodes: Sequence[Node | Shadow], seed: int) -> int | None:
    """Return the node handed in at the end: the best validated, else one at random.

    Validated = the evaluator's facts hold a status. None for no nodes.
    """
    import random

    known = [node for node in nodes if node.info.get("status") is not None]
    if known:
        return max(known, key=lambda node: (node.metric, node.id)).id
    chooser = random.Random(seed)  # noqa: S311
    return chooser.choice(nodes).id if nodes else None
