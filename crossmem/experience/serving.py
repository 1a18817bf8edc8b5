"""What an experience memory puts before an agent: entries, never whole requests, and the text of them.

Before the first attempt these are the lessons of the nodes selected that match the task. Of several
values for one key the best supported is listed last, which is the one that the scripted agent follows:
support is the number of selected nodes that hold the value and were accepted (faithful), each halved
every `HALF_LIFE` episodes of age (fixed); of equals, the one seen last. After a refusal it is a text
alone: what was refused alike, or the line of attempts behind it. What the API then suggests is
followed first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from crossmem.experience.rendering import Fitted, Item, Section, fit
from crossmem.experience.select import Context, Selector, decay, place_of
from crossmem.experience.skills import key_of
from crossmem.experience.summaries import PLAIN_CUT, Subject, cut
from crossmem.memory.entry import Entry, Key, canonical_json

if TYPE_CHECKING:
    from crossmem.domains.base import Domain
    from crossmem.experience.arms import ExperienceArm
    from crossmem.experience.node import Node
    from crossmem.experience.stores import Stores
    from crossmem.experience.summaries import Summary


@dataclass(frozen=True)
class Served:
    """What is put before the agent at one place."""

    context: Context
    entries: Sequence[Entry]
    fitted: Fitted


@dataclass
class Serving:
    """Chooses and words what one arm serves out of its stores; reads only.

    `current` returns a lesson under the version it is now known to hold in, None where it must not be
    served.
    """

    arm: ExperienceArm
    domain: Domain
    stores: Stores
    current: Callable[[Entry], Entry | None]
    chance: str

    def __post_init__(self) -> None:
        stores = self.stores
        usable = self._still_served
        self._selector = Selector(stores.journal, stores.deck, self.arm.faithful, self.chance, usable)
        self._targeted = self.arm.component in {"cards", "rich"}
        self._governed = self.arm.governed != "none"

    # -- before the first attempt ----------------------------------------------------------------

    def first(self, keys: Sequence[Key], episode: int) -> Served:
        """Return what stands before an agent at the start of a task with these keys."""
        if self.arm.component == "skills":
            return self._skills(keys)
        faithful, nodes = self.arm.faithful, self.stores.journal.nodes
        context = self._first_context(keys, episode)
        taught = {node: self._taught(nodes[node], keys) for node in context.nodes}
        weight = {
            node: 1.0 if faithful else decay(episode - nodes[node].episode) for node in context.nodes
        }
        order: Sequence[int] = context.nodes
        if not faithful:
            order = sorted(filter(taught.get, order), key=lambda node: -weight[node])
        items = [Item(str(node), self._line(node)) for node in order]
        board = Section("Overall:", self._board(context, episode), 80)
        fitted = self._fit([Section("Attempts:", items, 500), board], self.arm.tokens)
        kept = {int(name) for name in fitted.kept if name.isdigit()}
        listed = [(weight[node], node, lesson) for node in kept for lesson in taught[node]]
        return Served(context, _by_support(keys, listed), fitted)

    def _first_context(self, keys: Sequence[Key], episode: int) -> Context:
        journal = self.stores.journal
        if self.arm.component == "simple":
            return Context("draft", (), tuple(journal.accepted()))
        context = self._selector.context(keys, episode)
        if not self._targeted:
            nodes = [node for primary in context.primaries for node in self._line_of(primary)]
            return replace(context, nodes=tuple(dict.fromkeys(nodes)))
        if context.operator == "draft" and self.arm.faithful:  # a draft has base memory alone
            return replace(context, nodes=tuple(journal.accepted()))
        return context

    def _line_of(self, node: int) -> list[int]:
        """Return the line of attempts that the arm's base processor makes of a node."""
        journal = self.stores.journal
        if self.arm.component == "sibling":
            return (journal.children if self.arm.faithful else journal.repaired_children)(node)
        return journal.ancestral(node, None if self.arm.faithful else self._still_teaches)

    def _skills(self, keys: Sequence[Key]) -> Served:
        entries: list[Entry] = []
        items = []
        for skill in filter(None, map(self.stores.guidance.in_force.get, map(key_of, keys))):
            found = self.current(skill.lesson) if skill.lesson else None
            if found or skill.lesson is None:
                items.append(Item(str(len(entries)) if found else skill.key, skill.text))
                entries += [found] if found else []
        fitted = self._fit([Section("Skills:", items)], self.arm.tokens)
        kept = [entries[int(name)] for name in fitted.kept if name.isdigit()]
        return Served(Context("draft"), kept, fitted)

    def _taught(self, node: Node, keys: Sequence[Key]) -> list[Entry]:
        """Return the lessons of an accepted node for `keys`, as far as they may still be served."""
        if not node.accepted:
            return []
        lessons = self._summary(node) or self.subject(node)
        return [lesson for lesson in lessons.lessons if lesson.key in keys]

    # -- after a refusal -------------------------------------------------------------------------

    def again(self, node: int, tokens: int) -> Served:
        """Return what stands before an agent after the refusal of `node`, within `tokens` if fixed."""
        if self.arm.component == "skills":
            return Served(Context("debug", (node,)), (), self._fit([], tokens))
        if self._targeted:
            context = self._selector.debug(node)
        else:  # the base memory of a retry is ancestral, unless another is the arm's
            context = Context("debug", (node,), tuple(self._line_of(node)))
        items = [Item(str(each), self._retry_line(each, node)) for each in context.nodes]
        return Served(context, (), self._fit([Section("Attempts before:", items)], tokens))

    # -- governance ------------------------------------------------------------------------------

    def subject(self, node: Node) -> Subject:
        """Return a node with those of its lessons that may still be served."""
        lessons = tuple(found for lesson in node.lessons if (found := self.current(lesson)))
        return Subject(node, self.stores.journal.first_parent(node), lessons, self.stores.world)

    def _summary(self, node: Node) -> Summary | None:
        """Return the summary of a node; None where there is none, or the arm has none."""
        return self.stores.cache.read(self.subject(node)) if self.arm.component == "rich" else None

    def _still_served(self, lesson: Entry) -> bool:
        return self.current(lesson) is not None

    def _still_teaches(self, node: Node) -> bool:
        return any(map(self._still_served, node.lessons))

    def _quotable(self, node: Node) -> bool:
        """Tell whether a node's own words may be shown.

        Governed: only where it met no other version of a table than the one last seen.
        """
        return not self._governed or node.world.items() <= self.stores.world.items()

    # -- words -----------------------------------------------------------------------------------

    def _line(self, number: int) -> str:
        """Return what a prompt shows of a node before the first attempt."""
        deck, node = self.stores.deck, self.stores.journal.nodes[number]
        if not self._targeted:
            words = f"{node.plan} {node.output}" if self._quotable(node) else self._values(node)
            return f"- attempt {number}, {node.metric:.2f}: {words}"
        card = deck.cards[number]
        place = deck.rank(card)
        rank = f"rank {place} ({'the best' if place == 1 else 'not the best'})"
        fresh = "" if self.arm.faithful else f", sent under {canonical_json(node.world)}"
        gain = "" if card.delta is None else f", {card.delta:+.2f} over its parent"
        new = ", a new direction" if card.novelty == 1 else ""
        head = f"- attempt {number}, {card.family}, {node.metric:.2f}{gain}, {rank}{new}{fresh}"
        return f"{head}: {self._text(node)}"

    def _retry_line(self, number: int, refused: int) -> str:
        """Return what a prompt shows of a node after the refusal of `refused`."""
        node, card = self.stores.journal.nodes[number], self.stores.deck.cards[number]
        outcome = "accepted" if node.accepted else _refused(node)
        alike = "" if self.arm.faithful or number == refused else ", refused alike"
        head = f"- attempt {number}, {card.family}, {outcome}{alike}, {node.metric:.2f}"
        if self._targeted:
            return f"{head}: {self._text(node)}"
        return f"{head}: {node.plan} {node.output}" if self._quotable(node) else head

    def _text(self, node: Node) -> str:
        """Return the summary of a node, else the text of its card, cut."""
        summary = self._summary(node)
        return summary.shown if summary else cut(self._values(node), PLAIN_CUT)

    def _values(self, node: Node) -> str:
        """Return the lessons of a node in words, else what was merged into it."""
        if lessons := self.subject(node).lessons:
            return "; ".join(worded(self.domain, each) for each in lessons)
        if not self._quotable(node):
            return "what it was sent with no longer holds"
        if self._governed and not node.accepted:
            return _refused(node)
        return node.plan or "sent as given"

    def _board(self, context: Context, episode: int) -> list[Item]:
        if not self._targeted:
            return []
        deck = self.stores.deck
        if self.arm.faithful:
            lines = deck.board.lines([deck.cards[node] for node in context.primaries])
        else:
            lines = deck.board.lines_of(self.stores.world, episode)
        return [Item(f"board {number}", f"- {line}") for number, line in enumerate(lines)]

    def _fit(self, sections: Sequence[Section], tokens: int) -> Fitted:
        filled = [section for section in sections if section.items]
        return fit(filled, math.inf if self.arm.faithful else max(0, tokens))


def worded(domain: Domain, lesson: Entry) -> str:
    """Return a lesson in words."""
    return f"{domain.describe(lesson.key)}: {canonical_json(lesson.value)}"


def _refused(node: Node) -> str:
    return f"refused for {', '.join(node.errors) or 'no known rule'}"


def _by_support(keys: Sequence[Key], listed: Sequence[tuple[float, int, Entry]]) -> list[Entry]:
    """Return each value once, key by key, the best supported of a key last."""
    support: dict[tuple[Key, str], tuple[float, int, Entry]] = {}
    for weight, node, lesson in sorted(listed, key=lambda each: each[1]):
        at = place_of(lesson)
        support[at] = (support[at][0] + weight if at in support else weight, node, lesson)
    ranked = sorted(support.values(), key=lambda each: (each[0], each[1]))
    return [lesson for key in keys for _, _, lesson in ranked if lesson.key == key]
