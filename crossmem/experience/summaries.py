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
from collections.abc import Mapping
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
_SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {name: {"type": "string", "minLength": 1} for name in FIELDS},
    "required": list(FIELDS),
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Summary:
    """What was written about a node. `lessons` are the entries it speaks of; a reader follows these."""

    overview: str
    comparison: str
    lessons: tuple[Entry, ...]

    @property
    def shown(self) -> str:
        """What a prompt shows: both fields, each cut."""
        return f"{cut(self.overview, RICH_CUT)} {cut(self.comparison, RICH_CUT)}"


@dataclass(frozen=True)
class Subject:
    """What a summary is made from: a node, its first parent, the lessons of it that may be served.

    `world` holds the present versions of all tables.
    """

    node: Node
    parent: Node | None
    lessons: tuple[Entry, ...]
    world: Mapping[str, str]

    @property
    def now(self) -> dict[str, Json]:
        """The present versions of the tables that the node met."""
        return {table: self.world.get(table) for table in self.node.world}

    @property
    def digest(self) -> str:
        """A hash over all that a summary is made from, but for what tells one attempt from its twin."""
        node, parent = self.node, self.parent
        of = {
            "request": node.request,
            "plan": node.plan,
            "metric": node.metric,
            "output": node.output,
            "parent": [parent.request, parent.plan, parent.output] if parent else None,
            "lessons": [each.canonical for each in self.lessons],
            "world": self.now,
            "instruction": INSTRUCTION,
        }
        return hashlib.sha256(canonical_json(of).encode()).hexdigest()[:24]

    def request(self) -> SummaryRequest:
        """Return what a model is asked to write."""
        met, now = canonical_json(self.node.world), canonical_json(self.now)
        material = f"Versions of the tables it met: {met}; now: {now}\n\n"
        material += _described("The attempt", self.node)
        material += _described("Its parent", self.parent) if self.parent else "It has no parent.\n"
        return SummaryRequest(str(self.node.id), INSTRUCTION, material, _SCHEMA)

    def template(self) -> Summary:
        """Write the summary without a model: deterministic, conclusion first.

        It names no attempt: under one key of content it may be served for another than it was made of.
        """
        node = self.node
        said = "; ".join(
            f"{' '.join(each.key)} = {canonical_json(each.value)}" for each in self.lessons
        )
        outcome = "Accepted" if node.accepted else f"Refused for {', '.join(node.errors)}"
        change = "No parent to compare with."
        if self.parent:
            gain = node.metric - self.parent.metric
            kind = "Better than" if gain > 0 else "As good as" if gain == 0 else "Worse than"
            change = f"{kind} its parent by {abs(gain):.2f}: {node.plan or 'nothing was changed'}."
        return Summary(f"{outcome} with {said or 'the Input Data as given'}.", change, self.lessons)


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

    def key(self, of: Subject) -> str:
        """Return the id (faithful) or the hash of content, lessons, instruction and world (fixed)."""
        return str(of.node.id) if self.faithful else of.digest

    def read(self, of: Subject) -> Summary | None:
        """Return the summary of a node, or what the template makes of it; changes nothing.

        None where a model was asked for one in vain: then the node's card has to do.
        """
        key = self.key(of)
        if key in self.kept:
            return self.kept[key]
        return None if key in self.failed else of.template()

    def wants(self, of: Subject, episode: int) -> bool:
        """Tell whether a model should be asked for the summary."""
        key = self.key(of)
        if key in self.kept:
            return False
        tried = self.failed.get(key)
        return self.faithful or tried is None or episode - tried >= RETRY_AFTER

    def take(self, of: Subject, fields: Mapping[str, Json] | None, episode: int) -> int:
        """Keep what a model wrote; return the bytes written.

        None, or fields that are not both strings that say something, count as written in vain.
        """
        self.calls += 1
        key = self.key(of)
        said = [(fields or {}).get(name) for name in FIELDS]
        overview, comparison = (each if isinstance(each, str) else "" for each in said)
        if not (overview.strip() and comparison.strip()):
            self.failed[key] = episode
            return 0
        self.failed.pop(key, None)
        self._new.add(key)
        return self._keep(key, Summary(overview, comparison, of.lessons))

    def ensure(self, of: Subject) -> None:
        """Make the summary where there is none. Counts hits: to be called once a prompt."""
        key = self.key(of)
        known = self.kept.get(key)
        if known and key in self._new:
            self._new.discard(key)
        elif known:
            self.hits += 1
            self.stale += _values(known) != _values(of)
        elif key not in self.failed:
            self.calls += 1
            self._keep(key, of.template())

    def _keep(self, key: str, made: Summary) -> int:
        self.kept[key] = made
        size = line_size({"key": key, **asdict(made)})
        self.bytes += size
        return size


def cut(text: str, length: int) -> str:
    """Collapse blanks and cut to `length` characters, with an ellipsis where something is lost."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else f"{flat[: length - 3]}..."


def trimmed(output: str) -> str:
    """Return a long output as its two ends and the count of what is left out between them."""
    if len(output) <= 2 * OUTPUT + 100:
        return output
    return f"{output[:OUTPUT]} ... {len(output) - 2 * OUTPUT} characters ... {output[-OUTPUT:]}"


def _described(title: str, node: Node) -> str:
    refusal = f"refused for {', '.join(node.errors) or 'no rule known'}"
    outcome = "accepted" if node.accepted else refusal
    return (
        f"{title} ({node.operator}, {outcome}, metric {node.metric:.2f})\n"
        f"Merged in: {node.plan or 'nothing'}\n"
        f"Request: {canonical_json(node.request)}\n"
        f"Answer: {trimmed(node.output)}\n\n"
    )


def _values(of: Summary | Subject) -> set[tuple[tuple[str, ...], str]]:
    return {(each.key, canonical_json(each.value)) for each in of.lessons}
