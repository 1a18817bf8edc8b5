"""A memory made of experience: attempts, cards, summaries or skills behind the fold of any other arm.

What it serves and in which words is `serving.py`'s; here events become nodes and the stores grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from crossmem.contract import Json
from crossmem.experience.node import Node, Operator
from crossmem.experience.select import Context, place_of
from crossmem.experience.serving import Served, Serving
from crossmem.experience.skills import Skill, key_of
from crossmem.experience.stores import Stores
from crossmem.experience.summaries import summary_request
from crossmem.memory.entry import Entry, Key, Rendered, canonical_json
from crossmem.memory.events import Event, Observation, SummaryWritten
from crossmem.memory.memory import Memory, SummaryRequest
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


class ExperienceMemory:
    """One experience arm's memory over one domain. The same events give the same state.

    `seed` is what the draw of parents is seeded with.
    """

    def __init__(self, arm: ExperienceArm, domain: Domain, keying: Keying, seed: str = "") -> None:
        self.arm = arm
        self.domain = domain
        self.keying = keying
        self.stores = Stores(arm.faithful, domain)
        self._ledger = Memory(arm, domain, keying)
        """Every lesson that was ever suggested, governed by the same code as A2's and A2D's."""
        self._unproven: list[Entry] = []
        """Lessons of skills that the run began with, until a stamp proves or refutes them."""
        self._uncacheable: set[tuple[Key, str]] = set()
        self._episode = -1
        self._task: str | None = None
        """The task that is being worked on, None between two."""
        self._pending: tuple[Entry, ...] = ()
        self._tokens = 0
        """Put before the agent in this episode."""
        self._counted = (0, 0, 0)
        self._serving = Serving(arm, domain, self.stores, self._current, seed)
        self._begin_with(arm.skills)

    @property
    def store(self) -> Held:
        """The sizes as they are now."""
        return Held(len(self.stores.journal), self.stores.bytes)

    # -- what is asked of it ---------------------------------------------------------------------

    def recall(self, task: Task) -> Rendered:
        """Return the lessons selected for `task`, and the text that a live agent reads."""
        served = self._first(task, self._episode + 1)
        return Rendered(served.entries, served.fitted.text)

    def remind(self, task: Task) -> str:  # noqa: ARG002
        """Return the text that goes with a refusal."""
        return self._again().fitted.text

    def summary_requests(self, task: Task) -> Sequence[SummaryRequest]:
        """Return the summaries that the next prompt lacks."""
        if self.arm.component != "rich":
            return ()
        new = self._task != task.id
        served = self._first(task, self._episode + 1) if new else self._again()
        nodes = [self.stores.journal.nodes[number] for number in served.context.nodes]
        cache, now = self.stores.cache, self._episode
        wanted = [node for node in nodes if cache.wants(self._cache_key(node), now)]
        return [summary_request(node, self._serving.parent(node), self.stores.world) for node in wanted]

    def _first(self, task: Task, episode: int) -> Served:
        return self._serving.first(self.domain.keys(task), episode)

    def _again(self) -> Served:
        return self._serving.again(len(self.stores.journal) - 1, self.arm.tokens - self._tokens)

    def _cache_key(self, node: Node) -> str:
        serving, stores = self._serving, self.stores
        return stores.cache.key(node, serving.parent(node), serving.lessons(node), stores.world)

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
        if held is None:
            return lesson if lesson in self._unproven else None
        return replace(lesson, version=self._ledger.store.version(held))

    # -- fold --------------------------------------------------------------------------------------

    def observe(self, event: Event) -> list[Action]:
        """Take in one event and return what was done about it."""
        match event:
            case SummaryWritten():
                return [self._take(event)]
            case Observation():
                return self._observe(event)
            case _:
                return self._ledger.observe(event)

    def _take(self, written: SummaryWritten) -> Action:
        """Keep a summary, or that there is none."""
        node = self.stores.journal.nodes[int(written.about)]
        lessons, key = self._serving.lessons(node), self._cache_key(node)
        size = self.stores.cache.take(key, written.fields, lessons, self._episode)
        why = written.problem or ("a summary was written" if size else "a field is missing or empty")
        return Action("write", f"attempt {node.id}: {why}", None, value=size)

    def _observe(self, seen: Observation) -> list[Action]:
        first = self._task != seen.task.id
        before = self.stores.written
        if first:
            self._episode += 1
            self._pending, self._tokens = (), 0
            served = self._first(seen.task, self._episode)
        else:
            served = self._again()
        self._tokens += served.fitted.tokens
        kept, used = self._summaries(served.context)
        actions = [_served_action(served, used)] if first or served.fitted.text else []
        self._prove(seen)
        actions += self._ledger.observe(seen)
        self.stores.world.update(seen.response.stamps)
        fixes = self._suggested(seen)
        node = self._node(seen, served.context, fixes, first=first)
        line = self.stores.journal.append(node)
        kept += self.stores.journal.size if self.arm.faithful else line
        self.stores.deck.add(self.stores.journal, node, served.context.nodes)
        self._learn(fixes, node)
        self._task = None if seen.response.final else seen.task.id
        kept += self.stores.written - before
        return [*actions, Action("write", "bytes written for this attempt", None, value=kept)]

    def _summaries(self, context: Context) -> tuple[int, dict[str, int]]:
        """Make the summaries that this context lacks; return the bytes written and what was used."""
        if self.arm.component != "rich":
            return 0, {}
        cache, serving, written = self.stores.cache, self._serving, 0
        for number in context.nodes:
            node = self.stores.journal.nodes[number]
            lessons = serving.lessons(node)
            written += cache.ensure(node, serving.parent(node), lessons, self.stores.world)[1]
        now = cache.calls, cache.hits, cache.stale
        used = [after - before for after, before in zip(now, self._counted, strict=True)]
        self._counted = now
        return written, dict(zip(("calls", "hits", "stale_hits"), used, strict=True))

    def _node(
        self, seen: Observation, context: Context, suggested: Sequence[Entry], *, first: bool
    ) -> Node:
        """Return the attempt as a node."""
        number = len(self.stores.journal)
        operator: Operator = context.operator if first else "debug"
        shown = dict.fromkeys((*context.primaries, *context.nodes))
        fixes = [self._stamped(seen, each) for each in suggested]
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
            parents=tuple(shown) if first else (number - 1,),
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

    # -- skills ------------------------------------------------------------------------------------

    def _begin_with(self, skills: Sequence[Skill]) -> None:
        """Take skills that were written before the run; they are governed as what is learned."""
        for skill in skills:
            self.stores.guidance.learn(skill)
            if skill.lesson:
                self._unproven.append(skill.lesson)

    def _prove(self, seen: Observation) -> None:
        """Hand the ledger what a stamp proves to be of the present world; let go what it refutes."""
        stamps = seen.response.stamps
        for lesson in [each for each in self._unproven if each.table in stamps]:
            self._unproven.remove(lesson)
            if lesson.version == stamps[lesson.table or ""]:
                self._ledger.store.put(lesson)

    def _learn(self, suggested: Sequence[Entry], node: Node) -> None:
        for fix in suggested:
            if not fix.cacheable:
                self._uncacheable.add(place_of(fix))
        if self.arm.component != "skills" or not node.accepted:
            return
        for lesson in self._serving.lessons(node):
            text = f"- {self.domain.describe(lesson.key)}: {canonical_json(lesson.value)}"
            self.stores.guidance.learn(Skill(key_of(lesson.key), text, lesson.version or "", lesson))


def _served_action(served: Served, summaries: dict[str, int]) -> Action:
    value: dict[str, Json] = {
        "operator": served.context.operator,
        "primaries": list(served.context.primaries),
        "nodes": len(served.context.nodes),
        "tokens": served.fitted.tokens,
        "cut": list(served.fitted.cut),
        **summaries,
    }
    return Action("serve", "put before the agent", None, value=value)
