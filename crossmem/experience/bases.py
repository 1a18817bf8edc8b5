"""Base processors: memory of the whole journal, or of one line of it. `none` is the arm A0.

**Faithful** as specified: *simple* takes every accepted node with a plan, uncut; *ancestral* walks from
a node along first parents to the first accepted one, which it leaves out, so that it stops before the
success it was looking for, outdated or not; *sibling* takes, for all its name, the node's children.
**Fixed**: *ancestral* walks on past a success that no longer holds and takes in the one that does;
*sibling* follows each child through the attempts that repaired it, to the one that was accepted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from crossmem.experience.node import Node, NodeJournal

NEWEST = 500
"""Children looked at, at most."""


def simple(journal: NodeJournal) -> list[int]:
    """Return every accepted node that anything was merged into, in journal order."""
    return [node.id for node in journal.nodes if node.accepted and node.plan]


def ancestral(journal: NodeJournal, node: int) -> list[int]:
    """Return `node` and its first parents up to the first accepted one, left out; oldest first."""
    line: list[int] = []
    at: int | None = node
    while at is not None and not journal.nodes[at].accepted:
        line.append(at)
        at = _first_parent(journal, at)
    return line[::-1]


def ancestral_validated(
    journal: NodeJournal, node: int, still_holds: Callable[[Node], bool]
) -> list[int]:
    """Return `node` and its first parents up to the first accepted one that `still_holds`, with it."""
    line: list[int] = []
    at: int | None = node
    while at is not None:
        line.append(at)
        if journal.nodes[at].accepted and still_holds(journal.nodes[at]):
            break
        at = _first_parent(journal, at)
    return line[::-1]


def sibling(journal: NodeJournal, node: int) -> list[int]:
    """Return the children of `node`, as the processor of that name does; oldest first."""
    return journal.children(node, NEWEST)


def sibling_repaired(journal: NodeJournal, node: int) -> list[int]:
    """Return the children of `node`, each followed by the attempts that repaired it; oldest first."""
    found: dict[int, None] = {}
    for child in journal.children(node, NEWEST):
        at: int | None = child
        while at is not None:
            found[at] = None
            after = (each for each in journal.children(at) if journal.nodes[each].operator == "debug")
            at = next(after, None)
    return sorted(found)


def _first_parent(journal: NodeJournal, node: int) -> int | None:
    return next(iter(journal.nodes[node].parents), None)
