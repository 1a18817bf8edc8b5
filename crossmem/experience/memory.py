"""A memory made of experience: attempts, cards, summaries or skills behind the fold of any other arm.

What it serves and in which words is `serving.py`'s; here events become nodes and the stores grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from crossmem.contract import Json
from crossmem.experience.node import Node
from crossmem.experience.select import place_of
from crossmem.experience.serving import Served, Serving, worded
from crossmem.experience.skills import Skill, key_of
from crossmem.experience.stores import Stores
from crossmem.memory.entry import Entry, Key, Rendered, canonical_json
from crossmem.memory.events import Event, Observation, SummaryWritten
from crossmem.memory.memory import Memory, SummaryRequest
from crossmem.memory.policies import Action

if TYPE_CHECKING:
    from crossmem.domains.base import Domain, Keying, Task
    from crossmem.experience.arms import ExperienceArm
    from crossmem.experience.summaries import Subject


class ExperienceMemory:
    """One experience arm's memory over one domain. The same events give the same state.

    `seed` is what the draw of parents is seeded with.
    """

    def __init__(self, arm: ExperienceArm, domain: Domain, keying: Keying, seed: str = "") -> None:
        self.arm = arm
        self.domain = domain
        self.keying = keying
        self.store = Stores(arm.faithful, domain)
        self._ledger = Memory(arm, domain, keying)
        """Every lesson that was ever suggested, governed by the same code as A2's and A2D's."""
        self._unproven = [skill.lesson for skill in arm.skills if skill.lesson]
        """Lessons of skills that the run began with, until a stamp proves or refutes them."""
        self._uncacheable: set[tuple[Key, str]] = set()
        self._episode = -1
        self._task: str | None = None
        """The task that is being worked on, None between two."""
        self._pending: tuple[Entry, ...] = ()
        self._tokens = 0
        """Put before the agent in this episode."""
        self._counted = (0, 0, 0)
        self._serving = Serving(arm, domain, self.store, self._current, seed)
        for skill in arm.skills:
            self.store.guidance.learn(skill)

    # -- what is asked of it ---------------------------------------------------------------------

    def recall(self, task: Task) -> Rendered:
        """Return the lessons selected for `task`, and the text that a live agent reads."""
        served = self._first(task)
        return Rendered(served.entries, served.fitted.text)

    def remind(self, task: Task) -> str:  # noqa: ARG002
        """Return the text that goes with a refusal."""
        return self._again().fitted.text

    def summary_requests(self, task: Task) -> Sequence[SummaryRequest]:
        """Return the summaries that the next prompt lacks."""
        if self.arm.component != "rich":
            return ()
        of = self._subjects(self._first(task) if self._task != task.id else self._again())
        return [each.request() for each in of if self.store.cache.wants(each, self._episode)]

    def _first(self, task: Task) -> Served:
        return self._serving.first(self.domain.keys(task), self._episode + 1)

    def _again(self) -> Served:
        return self._serving.again(self.store.count - 1, self.arm.tokens - self._tokens)

    def _subjects(self, served: Served) -> list[Subject]:
        return [self._serving.subject(self.store.journal.nodes[each]) for each in served.context.nodes]

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
        of = self._serving.subject(self.store.journal.nodes[int(written.about)])
        size = self.store.cache.take(of, written.fields, self._episode)
        why = written.problem or ("a summary was written" if size else "a field is missing or empty")
        return Action("write", f"attempt {of.node.id}: {why}", None, value=size)

    def _observe(self, seen: Observation) -> list[Action]:
        store, first, before = self.store, self._task != seen.task.id, self.store.written
        served = self._first(seen.task) if first else self._again()
        if first:
            self._episode += 1
            self._pending, self._tokens = (), 0
        self._tokens += served.fitted.tokens
        used = self._summaries(served)
        actions = [_served_action(served, used)] if first or served.fitted.text else []
        self._prove(seen)
        actions += self._ledger.observe(seen)
        store.world.update(seen.response.stamps)
        fixes = self._suggested(seen)
        node = self._node(seen, served, fixes, first=first)
        line = store.journal.append(node)
        store.deck.add(store.journal, node, served.context.nodes)
        self._learn(node)
        self._task = None if seen.response.final else seen.task.id
        kept = store.written - before + (store.journal.size if self.arm.faithful else line)
        return [*actions, Action("write", "bytes written for this attempt", None, value=kept)]

    def _summaries(self, served: Served) -> dict[str, Json]:
        """Make the summaries that a prompt lacks; return how many were asked for and served since."""
        if self.arm.component != "rich":
            return {}
        cache = self.store.cache
        for each in self._subjects(served):
            cache.ensure(each)
        before, self._counted = self._counted, (cache.calls, cache.hits, cache.stale)
        names = ("calls", "hits", "stale_hits")
        return {name: now - was for name, now, was in zip(names, self._counted, before, strict=True)}

    def _suggested(self, seen: Observation) -> list[Entry]:
        """Return what the response suggests, and note what of it holds for this request alone."""
        given = (
            self.domain.lesson(seen.task, seen.request, suggestion, self.keying)
            for suggestion in seen.response.suggestions
        )
        fixes = [_stamped(seen, fix) for fix in given if fix is not None]
        self._uncacheable |= {place_of(fix) for fix in fixes if not fix.cacheable}
        return fixes

    def _node(self, seen: Observation, served: Served, fixes: Sequence[Entry], *, first: bool) -> Node:
        """Return the attempt as a node."""
        number, context, response = self.store.count, served.context, seen.response
        violated = sorted({each.key[0] for each in fixes})
        share = len(violated) / len(self.domain.families) if violated else 1.0
        known = {place_of(each): each for each in self._pending}
        known |= {place_of(each.entry): each.entry for each in seen.carried}
        standing = self.domain.carried(list(known.values()), seen.task, seen.request)
        self._pending = (*self._pending, *fixes)
        return Node(
            id=number,
            episode=self._episode,
            operator=context.operator if first else "debug",
            parents=tuple(dict.fromkeys((*context.primaries, *context.nodes)))
            if first
            else (number - 1,),
            keys=tuple(self.domain.keys(seen.task)),
            request=seen.request,
            plan="; ".join(worded(self.domain, each) for each in known.values()),
            output=canonical_json(response.body),
            metric=1.0 if response.accepted else max(0.0, 1.0 - share),
            info={"status": response.status, "violated": violated, "stamps": dict(response.stamps)},
            lessons=tuple(_stamped(seen, each) for each, at in standing if not response.refuses(at)),
        )

    def _prove(self, seen: Observation) -> None:
        """Hand the ledger what a stamp proves to be of the present world; let go what it refutes."""
        stamps = seen.response.stamps
        for lesson in [each for each in self._unproven if each.table in stamps]:
            self._unproven.remove(lesson)
            if lesson.version == stamps[lesson.table or ""]:
                self._ledger.store.put(lesson)

    def _learn(self, node: Node) -> None:
        """Write a skill of each lesson of an accepted node."""
        if self.arm.component != "skills" or not node.accepted:
            return
        for lesson in self._serving.subject(node).lessons:
            skill = Skill(
                key_of(lesson.key), f"- {worded(self.domain, lesson)}", lesson.version or "", lesson
            )
            self.store.guidance.learn(skill)


def _stamped(seen: Observation, entry: Entry) -> Entry:
    """Return an entry under the version of the world that an attempt was sent into."""
    stamp = seen.response.stamps.get(entry.table or "")
    return replace(entry, version=stamp) if stamp else entry


def _served_action(served: Served, summaries: dict[str, Json]) -> Action:
    value: dict[str, Json] = {
        "operator": served.context.operator,
        "primaries": list(served.context.primaries),
        "nodes": len(served.context.nodes),
        "tokens": served.fitted.tokens,
        "cut": list(served.fitted.cut),
        **summaries,
    }
    return Action("serve", "put before the agent", None, value=value)
