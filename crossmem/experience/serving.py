"""What an experience memory puts before an agent: entries, never whole requests, and the text of them.

Before the first attempt these are the lessons of the nodes selected that match the task. Of several
values for one key the best supported is listed last, which is the one that the scripted agent follows:
support is the number of selected nodes that hold the value and were accepted (faithful), each halved
every `HALF_LIFE` episodes of age (fixed); of equals, the one seen last. After a refusal it is a text
alone: what was refused alike, or the line of attempts behind it. What the API then suggests is
followed first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from crossmem.experience import bases
from crossmem.experience.rendering import Fitted, Item, Section, fit, unlimited
from crossmem.experience.select import HALF_LIFE, Context, Selector, place_of
from crossmem.experience.skills import key_of
from crossmem.experience.summaries import shown
from crossmem.memory.entry import Entry, Key, canonical_json

if TYPE_CHECKING:
    from crossmem.domains.base import Domain
    from crossmem.experience.arms import ExperienceArm
    from crossmem.experience.node import Node
    from crossmem.experience.stores import Stores
    from crossmem.experience.summaries import Summary


@dataclass
class Served:
    """What is put before the agent at one place."""

    context: Context
    entries: list[Entry] = field(default_factory=list)
    fitted: Fitted = field(default_factory=lambda: Fitted("", 0, (), ()))


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
        self._selector = Selector(
            stores.journal, stores.deck, self.arm.faithful, self.chance, self._still_served
        )

    # -- before the first attempt ----------------------------------------------------------------

    def first(self, keys: Sequence[Key], episode: int) -> Served:
        """Return what stands before an agent at the start of a task with these keys."""
        if self.arm.component == "skills":
            return self._skills(keys)
        context = self._first_context(keys, episode)
        taught = {node: self._taught(node, keys) for node in context.nodes}
        weight = {node: self._weight(node, episode) for node in context.nodes}
        useful = [node for node in context.nodes if taught[node] or self.arm.faithful]
        order = useful if self.arm.faithful else sorted(useful, key=lambda node: -weight[node])
        items = [Item(str(node), self._line(node)) for node in order]
        sections = [
            Section("Attempts:", items, 500),
            Section("Overall:", self._board(context, episode), 80),
        ]
        fitted = self._fit(sections, self.arm.tokens)
        kept = {int(name) for name in fitted.kept if name.isdigit()}
        listed = [(weight[node], node, lesson) for node in kept for lesson in taught[node]]
        return Served(context, _by_support(keys, listed), fitted)

    def _first_context(self, keys: Sequence[Key], episode: int) -> Context:
        journal, component = self.stores.journal, self.arm.component
        if component == "simple":
            return Context("draft", (), tuple(bases.simple(journal)))
        context = self._selector.context(keys, episode)
        if component in {"ancestral", "sibling"}:
            lines = [self._line_of(primary) for primary in context.primaries]
            return replace(context, nodes=tuple(dict.fromkeys(node for line in lines for node in line)))
        if context.operator == "draft" and self.arm.faithful:  # a draft has base memory alone
            return replace(context, nodes=tuple(bases.simple(journal)))
        return context

    def _line_of(self, node: int) -> list[int]:
        """Return the line of attempts that the arm's base processor makes of a node."""
        journal = self.stores.journal
        if self.arm.component == "sibling":
            follow = bases.sibling if self.arm.faithful else bases.sibling_repaired
            return follow(journal, node)
        if self.arm.faithful:
            return bases.ancestral(journal, node)
        return bases.ancestral_validated(journal, node, self._still_teaches)

    def _skills(self, keys: Sequence[Key]) -> Served:
        guidance = self.stores.guidance
        entries: list[Entry] = []
        items = []
        for key in keys:
            skill = guidance.in_force.get(key_of(key))
            if skill is None:
                continue
            found = self.current(skill.lesson) if skill.lesson else None
            if found or skill.lesson is None:
                items.append(Item(str(len(entries)) if found else skill.key, skill.text))
                entries += [found] if found else []
        fitted = self._fit([Section("Skills:", items)], self.arm.tokens)
        kept = [entries[int(name)] for name in fitted.kept if name.isdigit()]
        return Served(Context("draft"), kept, fitted)

    # -- after a refusal -------------------------------------------------------------------------

    def again(self, node: int, tokens: int) -> Served:
        """Return what stands before an agent after the refusal of `node`, within `tokens` if fixed."""
        component = self.arm.component
        if component == "skills":
            return Served(Context("debug", (node,)))
        if component in {"cards", "rich"}:
            context = self._selector.debug(node)
        else:  # the base memory of a retry is ancestral, unless another is the arm's
            context = Context("debug", (node,), tuple(self._line_of(node)))
        items = [Item(str(each), self._retry_line(each, node)) for each in context.nodes]
        return Served(context, [], self._fit([Section("Attempts before:", items)], tokens))

    # -- governance ------------------------------------------------------------------------------

    def lessons(self, node: Node) -> list[Entry]:
        """Return the lessons of a node that may still be served."""
        return [found for lesson in node.lessons if (found := self.current(lesson))]

    def parent(self, node: Node) -> Node | None:
        """Return the first parent of a node."""
        return self.stores.journal.nodes[node.parents[0]] if node.parents else None

    def _taught(self, number: int, keys: Sequence[Key]) -> list[Entry]:
        """Return the lessons of an accepted node for `keys`, as far as they may still be served."""
        node = self.stores.journal.nodes[number]
        if not node.accepted:
            return []
        lessons: Sequence[Entry] = self.lessons(node)
        if self.arm.component == "rich" and (summary := self._summary(node)):
            lessons = summary.lessons
        return [lesson for lesson in lessons if lesson.key in keys]

    def _summary(self, node: Node) -> Summary | None:
        stores = self.stores
        return stores.cache.read(node, self.parent(node), self.lessons(node), stores.world)

    def _still_served(self, lesson: Entry) -> bool:
        return self.current(lesson) is not None

    def _still_teaches(self, node: Node) -> bool:
        return any(map(self._still_served, node.lessons))

    def _quotable(self, node: Node) -> bool:
        """Tell whether a node's own words may be shown.

        Governed: only where it met no other version of a table than the one last seen.
        """
        world = self.stores.world
        same = all(world.get(table) == version for table, version in node.world.items())
        return self.arm.governed == "none" or same

    def _weight(self, node: int, episode: int) -> float:
        age = episode - self.stores.journal.nodes[node].episode
        return 1.0 if self.arm.faithful else float(0.5 ** (age / HALF_LIFE))

    # -- words -----------------------------------------------------------------------------------

    def _line(self, number: int) -> str:
        """Return what a prompt shows of a node before the first attempt."""
        stores = self.stores
        node, card = stores.journal.nodes[number], stores.deck.cards[number]
        if self.arm.component not in {"cards", "rich"}:
            words = f"{node.plan} {node.output}" if self._quotable(node) else self._values(node)
            return f"- attempt {number}, {node.metric:.2f}: {words}"
        summary = self._summary(node) if self.arm.component == "rich" else None
        best = "the best" if stores.deck.is_best(card) else "not the best"
        text = shown(summary, self._values(node))
        rank = f"rank {stores.deck.rank(card)} ({best})"
        fresh = "" if self.arm.faithful else f", sent under {canonical_json(node.world)}"
        gain = "" if card.delta is None else f", {card.delta:+.2f} over its parent"
        new = ", a new direction" if card.novelty == 1 else ""
        head = f"- attempt {number}, {card.family}, {node.metric:.2f}{gain}, {rank}{new}{fresh}"
        return f"{head}: {text}"

    def _retry_line(self, number: int, refused: int) -> str:
        """Return what a prompt shows of a node after the refusal of `refused`."""
        stores = self.stores
        node, card = stores.journal.nodes[number], stores.deck.cards[number]
        outcome = "accepted" if node.accepted else _refused(node)
        alike = "" if self.arm.faithful or number == refused else ", refused alike"
        head = f"- attempt {number}, {card.family}, {outcome}{alike}, {node.metric:.2f}"
        if self.arm.component == "rich":
            return f"{head}: {shown(self._summary(node), self._values(node))}"
        if self.arm.component == "cards":
            return f"{head}: {shown(None, self._values(node))}"
        return f"{head}: {node.plan} {node.output}" if self._quotable(node) else head

    def _values(self, node: Node) -> str:
        """Return the lessons of a node in words, else what was merged into it."""
        values = [
            f"{self.domain.describe(e.key)}: {canonical_json(e.value)}" for e in self.lessons(node)
        ]
        if values:
            return "; ".join(values)
        if not self._quotable(node):
            return "what it was sent with no longer holds"
        if self.arm.governed != "none" and not node.accepted:
            return _refused(node)
        return node.plan or "sent as given"

    def _board(self, context: Context, episode: int) -> list[Item]:
        if self.arm.component not in {"cards", "rich"}:
            return []
        deck = self.stores.deck
        parents = [deck.cards[node] for node in context.primaries]
        lines = (
            deck.board.lines(parents)
            if self.arm.faithful
            else deck.board.lines_of(self.stores.world, episode)
        )
        return [Item(f"board {number}", f"- {line}") for number, line in enumerate(lines)]

    def _fit(self, sections: Sequence[Section], tokens: int) -> Fitted:
        filled = [section for section in sections if section.items]
        return unlimited(filled) if self.arm.faithful else fit(filled, max(0, tokens))


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
