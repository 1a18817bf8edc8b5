"""Rich summaries: what a node does and what it changed against its parent, made once and kept.

A live run's model writes them, at the memory's request; a mock run has a template.

**Faithful**: the cache is keyed by the node's id alone, so that a node whose request, parent or world
has changed is served what was said of the old one; 420 characters of each field reach the prompt; what
could not be written is asked for again at every use.
**Fixed**: the key is a hash over what the summary is made from: the attempt, its parent and lessons,
the instruction and the present versions of the tables that the attempt met (a run has one model); the
conclusion stands first, so that a cut loses the rest; what could not be written is asked for again
after `RETRY_AFTER` episodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from crossmem.contract import Json
from crossmem.experience.node import Node, line_size
from crossmem.memory.entry import Entry, canonical_json
from crossmem.memory.memory import SummaryRequest

RICH_CUT = 420
"""Characters of each field of a summary that reach a prompt."""
PLAIN_CUT = 360
"""Characters of a card's own text that reach it where there is no summary."""
RETRY_AFTER = 10
"""Fixed: episodes until a summary that could not be written is asked for again."""
OUTPUT = 2_500
"""Characters that are kept of either end of an answer longer than twice that and 100 more."""
FIELDS = ("method_overview", "parent_comparison_experience")
INSTRUCTION = (
    "You keep notes on attempts at an API, for whoever meets a similar task next. Fill two fields with "
    "2 to 5 sentences each, the conclusion first. `method_overview`: what this attempt sent and what "
    "came of it, with the literal values that mattered. `parent_comparison_experience`: what it "
    "changed against its parent and what that taught; say so if it has none."
)


@dataclass(frozen=True)
class Summary:
    """What was written about a node. `lessons` are the entries it speaks of; a reader follows these."""

    overview: str
    comparison: str
    lessons: tuple[Entry, ...]


def summary_request(node: Node, parent: Node | None, world: Mapping[str, str]) -> SummaryRequest:
    """Return what a model is asked to write of a node and its first parent."""
    met, now = canonical_json(node.world), canonical_json(_now(node, world))
    material = f"Versions of the tables it met: {met}; now: {now}\n\n"
    material += _told("The attempt", node)
    material += _told("Its parent", parent) if parent else "It has no parent.\n"
    schema: dict[str, Json] = {
        "type": "object",
        "properties": {name: {"type": "string", "minLength": 1} for name in FIELDS},
        "required": list(FIELDS),
        "additionalProperties": False,
    }
    return SummaryRequest(str(node.id), INSTRUCTION, material, schema)


def _now(node: Node, world: Mapping[str, str]) -> dict[str, Json]:
    """Return the present versions of the tables that a node met."""
    return {table: world.get(table) for table in node.world}


def _told(title: str, node: Node) -> str:
    outcome = (
        "accepted" if node.accepted else f"refused for {', '.join(node.errors) or 'no rule known'}"
    )
    return (
        f"{title} ({node.operator}, {outcome}, metric {node.metric:.2f})\n"
        f"Merged in: {node.plan or 'nothing'}\n"
        f"Request: {canonical_json(node.request)}\n"
        f"Answer: {trimmed(node.output)}\n\n"
    )


def trimmed(output: str) -> str:
    """Return a long output as its two ends and the count of what is left out between them."""
    if len(output) <= 2 * OUTPUT + 100:
        return output
    return f"{output[:OUTPUT]} ... {len(output) - 2 * OUTPUT} characters ... {output[-OUTPUT:]}"


def template(node: Node, parent: Node | None, lessons: Sequence[Entry]) -> Summary:
    """Write a summary without a model: deterministic, conclusion first.

    It names no attempt: under one key of content it may be served for another than it was made of.
    """
    said = "; ".join(f"{' '.join(each.key)} = {canonical_json(each.value)}" for each in lessons)
    outcome = "Accepted" if node.accepted else f"Refused for {', '.join(node.errors)}"
    overview = f"{outcome} with {said or 'the Input Data as given'}."
    if parent is None:
        return Summary(overview, "No parent to compare with.", tuple(lessons))
    gain = node.metric - parent.metric
    kind = "Better than" if gain > 0 else "As good as" if gain == 0 else "Worse than"
    change = f"{kind} its parent by {abs(gain):.2f}: {node.plan or 'nothing was changed'}."
    return Summary(overview, change, tuple(lessons))


@dataclass
class SummaryCache:
    """Summaries by key. `calls` counts summaries asked for, `hits` those served from the cache, `stale`
    the hits whose lessons are no longer the ones that would be written now. `failed` holds the episode
    in which a summary was last asked for in vain.
    """

    faithful: bool
    kept: dict[str, Summary] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    calls: int = 0
    hits: int = 0
    stale: int = 0
    bytes: int = 0
    _new: set[str] = field(default_factory=set)
    """Written for the prompt that is being made: no hits there."""

    def key(
        self, node: Node, parent: Node | None, lessons: Sequence[Entry], world: Mapping[str, str]
    ) -> str:
        """Return the id (faithful) or the hash of content, lessons, instruction and world (fixed)."""
        if self.faithful:
            return str(node.id)
        of = {
            "request": node.request,
            "plan": node.plan,
            "metric": node.metric,
            "output": node.output,
            "parent": [parent.request, parent.plan, parent.output] if parent else None,
            "lessons": [each.canonical for each in lessons],
            "world": _now(node, world),
            "instruction": INSTRUCTION,
        }
        return hashlib.sha256(canonical_json(of).encode()).hexdigest()[:24]

    def read(
        self, node: Node, parent: Node | None, lessons: Sequence[Entry], world: Mapping[str, str]
    ) -> Summary | None:
        """Return the summary of a node, or what the template makes of it; changes nothing.

        None where a model was asked for one in vain: then the node's card has to do.
        """
        key = self.key(node, parent, lessons, world)
        if key in self.kept:
            return self.kept[key]
        return None if key in self.failed else template(node, parent, lessons)

    def wants(self, key: str, episode: int) -> bool:
        """Tell whether a model should be asked for the summary of this key."""
        if key in self.kept:
            return False
        tried = self.failed.get(key)
        return self.faithful or tried is None or episode - tried >= RETRY_AFTER

    def take(
        self, key: str, fields: Mapping[str, Json] | None, lessons: Sequence[Entry], episode: int
    ) -> int:
        """Keep what a model wrote of a node with these lessons; return the bytes written.

        None, or fields that are not both there, count as written in vain.
        """
        self.calls += 1
        made = parsed(fields, lessons)
        if made is None:
            self.failed[key] = episode
            return 0
        self.failed.pop(key, None)
        self._new.add(key)
        return self._keep(key, made)

    def ensure(
        self, node: Node, parent: Node | None, lessons: Sequence[Entry], world: Mapping[str, str]
    ) -> tuple[Summary | None, int]:
        """Return the summary of a node, and the bytes written for it: 0 where it was kept already.

        To be called once for each node of a prompt: this counts hits.
        """
        key = self.key(node, parent, lessons, world)
        if known := self.kept.get(key):
            if key in self._new:
                self._new.discard(key)
                return known, 0
            self.hits += 1
            self.stale += _values(known.lessons) != _values(lessons)
            return known, 0
        if key in self.failed:
            return None, 0
        self.calls += 1
        made = template(node, parent, lessons)
        return made, self._keep(key, made)

    def _keep(self, key: str, made: Summary) -> int:
        self.kept[key] = made
        size = line_size({"key": key, **asdict(made)})
        self.bytes += size
        return size


def shown(summary: Summary | None, plain: str) -> str:
    """Return what a prompt shows: both fields of a summary, or the card's own text, each cut."""
    if summary is None:
        return cut(plain, PLAIN_CUT)
    return f"{cut(summary.overview, RICH_CUT)} {cut(summary.comparison, RICH_CUT)}"


def cut(text: str, length: int) -> str:
    """Collapse blanks and cut to `length` characters, with an ellipsis where something is lost."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else f"{flat[: length - 3]}..."


def parsed(fields: Mapping[str, Json] | None, lessons: Sequence[Entry]) -> Summary | None:
    """Read a summary that a model wrote; None unless both fields are strings that say something."""
    overview, comparison = ((fields or {}).get(name) for name in FIELDS)
    if not all(isinstance(each, str) and each.strip() for each in (overview, comparison)):
        return None
    return Summary(str(overview), str(comparison), tuple(lessons))


def _values(lessons: Sequence[Entry]) -> set[tuple[tuple[str, ...], str]]:
    return {(each.key, canonical_json(each.value)) for each in lessons}
