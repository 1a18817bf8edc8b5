"""A memory made of experience: attempts, cards, summaries or skills behind the fold of any other arm.

What is put before the agent are entries, never whole requests: the lessons of the nodes selected that
match the task. Of several values for one key the best supported is listed last, which is the one that
the scripted agent follows: support is the number of selected nodes that hold the value and were
accepted (faithful), each halved every `HALF_LIFE` episodes of age (fixed); of equals, the one seen
last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from crossmem.contract import Json
from crossmem.experience.cards import Deck
from crossmem.experience.nodes import Node, NodeJournal, Operator
from crossmem.experience.rendering import Fitted, Item, Section, fit, unlimited
from crossmem.experience.rich import SummaryCache, shown
from crossmem.experience.selecting import HALF_LIFE, Context, Selector, place_of, simple
from crossmem.experience.skills import Guidance, Skill
from crossmem.memory.entry import Entry, Key, Rendered, canonical_json
from crossmem.memory.memory import Event, Memory, Observation
from crossmem.memory.policies import Action

if TYPE_CHECKING:
    from crossmem.domains.base import Domain, Keying, Task
    from crossmem.experience.arms import ExperienceArm


@dataclass(frozen=True)
class Held:
    """Sizes: nodes, and the bytes of all that is kept. No byte budget is in force for it."""

    count: int
    bytes: int
    budget: int | None = None


@dataclass
class _Served:
    """What one recall puts before the agent."""

    context: Context
    entries: list[Entry] = field(default_factory=list)
    fitted: Fitted = field(default_factory=lambda: Fitted("", 0, (), ()))


class ExperienceMemory:
    """One experience arm's memory over one domain. The same events give the same state."""

    def __init__(self, arm: ExperienceArm, domain: Domain, keying: Keying) -> None:
        self.arm = arm
        self.domain = domain
        self.keying = keying
        self.journal = NodeJournal()
        self.deck = Deck(arm.faithful)
        self.cache = SummaryCache(arm.faithful)
        self.guidance = Guidance(arm.faithful)
        self.world: dict[str, str] = {}
        self._ledger = Memory(arm, domain, keying)
        """Every lesson that was ever suggested, governed by the same code as A2's and A2D's."""
        self._skilled: dict[Key, Entry] = {}
        self._uncacheable: set[tuple[Key, str]] = set()
        self._episode = -1
        self._task: str | None = None
        self._pending: tuple[Entry, ...] = ()
        self._context = Context("draft")
        self._selector = Selector(self.journal, self.deck, arm.faithful, 0, self._served_still)

    @property
    def store(self) -> Held:
        """The sizes as they are now."""
        size = self.journal.size + self.deck.bytes + self.cache.bytes
        return Held(len(self.journal), size + len(self.guidance.prompt.encode()))

    # -- recall ------------------------------------------------------------------------------------

    def recall(self, task: Task) -> Rendered:
        """Return the lessons selected for `task`, and the text that a live agent reads."""
        served = self._serve(task, self._episode + 1)
        return Rendered(served.entries, served.fitted.text)

    def _serve(self, task: Task, episode: int) -> _Served:
        keys = self.domain.keys(task)
        if self.arm.component == "skills":
            return self._serve_skills(keys)
        if self.arm.component == "simple":
            context = Context("draft", (), tuple(simple(self.journal)))
        else:
            context = self._selector.context(keys, episode)
            if context.operator == "draft" and self.arm.faithful:  # a draft has base memory alone
                context = replace(context, nodes=tuple(simple(self.journal)))
        taught = {node: self._taught(node, keys) for node in context.nodes}
        weight = {node: self._weight(node, episode) for node in context.nodes}
        board = [] if self.arm.component == "simple" else self._board()
        useful = [node for node in context.nodes if taught[node] or self.arm.faithful]
        order = useful if self.arm.faithful else sorted(useful, key=lambda node: -weight[node])
        items = [Item(str(node), self._line(node)) for node in order]
        sections = [Section("Attempts:", items, 500), Section("Overall:", board, 80)]
        sections = [section for section in sections if section.items]
        fitted = unlimited(sections) if self.arm.faithful else fit(sections, self.arm.tokens)
        kept = {int(name) for name in fitted.kept if name.isdigit()}
        listed = [(weight[node], node, lesson) for node in kept for lesson in taught[node]]
        return _Served(context, _by_support(keys, listed), fitted)

    def _serve_skills(self, keys: Sequence[Key]) -> _Served:
        held = [entry for key in keys if (entry := self._skilled.get(key))]
        entries = [found for entry in held if (found := self._current(entry))]
        items = [
            Item(str(number), self.guidance.in_force[" ".join(each.key)].text)
            for number, each in enumerate(entries)
        ]
        sections = [Section("Skills:", items)] if items else []
        fitted = unlimited(sections) if self.arm.faithful else fit(sections, self.arm.tokens)
        return _Served(Context("draft"), [entries[int(name)] for name in fitted.kept], fitted)

    def _taught(self, number: int, keys: Sequence[Key]) -> list[Entry]:
        """Return the lessons of an accepted node for `keys`, as far as they may still be served."""
        node = self.journal.nodes[number]
        if not node.accepted:
            return []
        lessons: Sequence[Entry] = self._lessons(node)
        if self.arm.component == "rich":
            lessons = self.cache.read(node, self._parent(node), lessons, self.world).lessons
        return [lesson for lesson in lessons if lesson.key in keys]

    def _lessons(self, node: Node) -> list[Entry]:
        return [found for lesson in node.lessons if (found := self._current(lesson))]

    def _served_still(self, lesson: Entry) -> bool:
        return self._current(lesson) is not None

    def _current(self, lesson: Entry) -> Entry | None:
        """Return a lesson under the version it is now known to hold in; None where it must not be
        served.

        Governed: what the ledger has dropped is not served. Fixed: neither is what the server marked as
        belonging to one request alone.
        """
        if not self.arm.faithful and place_of(lesson) in self._uncacheable:
            return None
        if self.arm.governed == "none":
            return lesson
        held = self._ledger.store.find(lesson.key, lesson.value)
        return replace(lesson, version=self._ledger.store.version(held)) if held else None

    def _parent(self, node: Node) -> Node | None:
        return self.journal.nodes[node.parents[0]] if node.parents else None

    def _weight(self, node: int, episode: int) -> float:
        age = episode - self.journal.nodes[node].episode
        return 1.0 if self.arm.faithful else float(0.5 ** (age / HALF_LIFE))

    # -- words -------------------------------------------------------------------------------------

    def _line(self, number: int) -> str:
        """Return what a prompt shows of a node."""
        node, card = self.journal.nodes[number], self.deck.cards[number]
        if self.arm.component == "simple":
            return f"- attempt {number}, {node.metric:.2f}: {node.plan} {node.output}"
        lessons = self._lessons(node)
        values = [f"{self.domain.describe(e.key)}: {canonical_json(e.value)}" for e in lessons]
        summary = None
        if self.arm.component == "rich":
            summary = self.cache.read(node, self._parent(node), lessons, self.world)
        best = "the best" if self.deck.is_best(card) else "not the best"
        text = shown(summary, "; ".join(values) or node.plan)
        rank = f"rank {self.deck.rank(card)} ({best})"
        fresh = "" if self.arm.faithful else f", sent under {canonical_json(node.world)}"
        return f"- attempt {number}, {card.family}, {node.metric:.2f}, {rank}{fresh}: {text}"

    def _board(self) -> list[Item]:
        world = None if self.arm.faithful else self.world
        lines = enumerate(self.deck.board.lines(world))
        return [Item(f"board {number}", f"- {line}") for number, line in lines]

    # -- fold --------------------------------------------------------------------------------------

    def fold(self, event: Event) -> list[Action]:
        """Take in one event and return what was done about it."""
        if not isinstance(event, Observation):
            return self._ledger.fold(event)
        actions: list[Action] = []
        before = self.deck.written + self.guidance.written
        first = self._task != event.task.id
        kept = 0
        if first:
            self._episode += 1
            self._pending = ()
            served = self._serve(event.task, self._episode)
            self._context = served.context
            kept, used = self._summaries()
            actions.append(_served_action(served, used))
        actions += self._ledger.fold(event)
        self.world.update(event.response.stamps)
        node = self._node(event, first=first)
        line = len(self.journal.append(node))
        written = self.journal.size if self.arm.faithful else line
        self.deck.add(self.journal, node, self._context.nodes if first else ())
        self._learn(event, node)
        self._task = None if event.response.final else event.task.id
        written += kept + self.deck.written + self.guidance.written - before
        actions.append(Action("write", "bytes written for this attempt", None, value=written))
        return actions

    def _summaries(self) -> tuple[int, dict[str, int]]:
        """Make the summaries that this context lacks; return the bytes written and what was used."""
        if self.arm.component != "rich":
            return 0, {}
        cache, written = self.cache, 0
        before = cache.calls, cache.hits, cache.stale
        for number in self._context.nodes:
            node = self.journal.nodes[number]
            parent, lessons = self._parent(node), self._lessons(node)
            written += cache.ensure(node, parent, lessons, self.world)[1]
        after = cache.calls, cache.hits, cache.stale
        used = [now - then for now, then in zip(after, before, strict=True)]
        return written, dict(zip(("calls", "hits", "stale_hits"), used, strict=True))

    def _node(self, seen: Observation, *, first: bool) -> Node:
        """Return the attempt as a node."""
        number = len(self.journal)
        operator: Operator = self._context.operator if first else "debug"
        parents = self._context.nodes if first else (number - 1,)
        fixes = [self._stamped(seen, each) for each in self._suggested(seen)]
        violated = sorted({each.key[0] for each in fixes})
        share = len(violated) / len(self.domain.families) if violated else 1.0
        known = {place_of(each): each for each in self._pending}
        known |= {place_of(each.entry): each.entry for each in seen.carried}
        standing = self.domain.carried(list(known.values()), seen.task, seen.request)
        lessons = [self._stamped(seen, e) for e, at in standing if not seen.response.refuses(at)]
        plan = "; ".join(
            f"{self.domain.describe(e.key)}: {canonical_json(e.value)}" for e in known.values()
        )
        self._pending = (*self._pending, *fixes)
        return Node(
            id=number,
            episode=self._episode,
            operator=operator,
            parents=parents,
            keys=tuple(self.domain.keys(seen.task)),
            request=seen.request,
            plan=plan,
            output=canonical_json(seen.response.body),
            metric=1.0 if seen.response.accepted else max(0.0, 1.0 - share),
            info={
                "status": seen.response.status,
                "violated": violated,
                "stamps": dict(seen.response.stamps),
            },
            lessons=tuple(lessons),
        )

    def _suggested(self, seen: Observation) -> list[Entry]:
        fixes = [
            self.domain.lesson(seen.task, seen.request, suggestion, self.keying)
            for suggestion in seen.response.suggestions
        ]
        return [fix for fix in fixes if fix is not None]

    def _stamped(self, seen: Observation, entry: Entry) -> Entry:
        """Return an entry under the version of the world that this attempt was sent into."""
        stamp = seen.response.stamps.get(entry.table or "")
        return replace(entry, version=stamp) if stamp else entry

    def _learn(self, seen: Observation, node: Node) -> None:
        for fix in self._suggested(seen):
            if not fix.cacheable:
                self._uncacheable.add(place_of(fix))
        if self.arm.component != "skills" or not node.accepted:
            return
        for lesson in self._lessons(node):
            text = f"- {self.domain.describe(lesson.key)}: {canonical_json(lesson.value)}"
            if self.guidance.learn(Skill(" ".join(lesson.key), text, lesson.version or "")):
                self._skilled[lesson.key] = lesson


def _by_support(keys: Sequence[Key], listed: Sequence[tuple[float, int, Entry]]) -> list[Entry]:
    """Return each value once, key by key, the best supported of a key last."""
    support: dict[tuple[Key, str], tuple[float, int, Entry]] = {}
    for weight, node, lesson in sorted(listed, key=lambda each: each[1]):
        at = place_of(lesson)
        support[at] = (support[at][0] + weight if at in support else weight, node, lesson)
    ranked = sorted(support.values(), key=lambda each: (each[0], each[1]))
    return [lesson for key in keys for _, _, lesson in ranked if lesson.key == key]


def _served_action(served: _Served, summaries: dict[str, int]) -> Action:
    value: dict[str, Json] = {
        "operator": served.context.operator,
        "primaries": list(served.context.primaries),
        "nodes": len(served.context.nodes),
        "tokens": served.fitted.tokens,
        "cut": list(served.fitted.cut),
        **summaries,
    }
    return Action("serve", "put before the agent", None, value=value)
