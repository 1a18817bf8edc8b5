"""Rich summaries: what a node does and what it changed against its parent, made once and kept.

**Faithful**: the cache is keyed by the node's id alone, so that a node whose request, parent or world
has changed is served what was said of the old one; 420 characters of each field reach the prompt.
**Fixed**: the key is a hash over all that the summary was made from, its author and the world it is
read in; the conclusion stands first, so that a cut loses the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from crossmem.experience.nodes import Damage, Node, checked_line, read_lines
from crossmem.memory.entry import Entry, canonical_json

RICH_CUT = 420
"""Characters of each field of a summary that reach a prompt."""
PLAIN_CUT = 360
"""Characters of a card's own text that reach it where there is no summary."""


@dataclass(frozen=True)
class Summary:
    """What was written about a node. `lessons` are the entries it speaks of; a reader follows these."""

    overview: str
    comparison: str
    lessons: tuple[Entry, ...]


Author = Callable[[Node, Node | None, Sequence[Entry]], Summary]


def template(node: Node, parent: Node | None, lessons: Sequence[Entry]) -> Summary:
    """Write a summary without a model: deterministic, conclusion first."""
    said = "; ".join(f"{' '.join(each.key)} = {canonical_json(each.value)}" for each in lessons)
    outcome = "Accepted" if node.accepted else f"Refused for {', '.join(node.errors)}"
    overview = f"{outcome} with {said or 'the Input Data as given'}."
    if parent is None:
        return Summary(overview, "No parent to compare with.", tuple(lessons))
    gain = node.metric - parent.metric
    kind = "Better than" if gain > 0 else "As good as" if gain == 0 else "Worse than"
    change = f"{kind} attempt {parent.id} by {abs(gain):.2f}: {node.plan or 'nothing was changed'}."
    return Summary(overview, change, tuple(lessons))


@dataclass
class SummaryCache:
    """Summaries by key. `calls` counts summaries made, `hits` those served from the cache, `stale` the
    hits whose lessons are no longer the ones that would be written now.
    """

    faithful: bool
    author: Author = template
    author_name: str = "template 1"
    kept: dict[str, Summary] = field(default_factory=dict)
    calls: int = 0
    hits: int = 0
    stale: int = 0
    bytes: int = 0

    def key(
        self, node: Node, parent: Node | None, lessons: Sequence[Entry], world: Mapping[str, str]
    ) -> str:
        """Return the id (faithful) or the hash of content, lessons, author and world (fixed)."""
        if self.faithful:
            return str(node.id)
        of = {
            "request": node.request,
            "plan": node.plan,
            "metric": node.metric,
            "parent": parent.request if parent else None,
            "lessons": [each.canonical for each in lessons],
            "world": dict(world),
            "author": self.author_name,
        }
        return hashlib.sha256(canonical_json(of).encode()).hexdigest()[:24]

    def read(
        self, node: Node, parent: Node | None, lessons: Sequence[Entry], world: Mapping[str, str]
    ) -> Summary:
        """Return the summary of a node, made on the fly if none is kept; changes nothing."""
        known = self.kept.get(self.key(node, parent, lessons, world))
        return known or self.author(node, parent, lessons)

    def ensure(
        self, node: Node, parent: Node | None, lessons: Sequence[Entry], world: Mapping[str, str]
    ) -> tuple[Summary, int]:
        """Return the summary of a node, and the bytes written for it: 0 where it was kept already."""
        key = self.key(node, parent, lessons, world)
        if known := self.kept.get(key):
            self.hits += 1
            self.stale += _values(known.lessons) != _values(lessons)
            return known, 0
        self.calls += 1
        made = self.kept[key] = self.author(node, parent, lessons)
        size = len(checked_line({"key": key, **asdict(made)}))
        self.bytes += size
        return made, size

    def save(self, path: Path) -> None:
        """Write all summaries."""
        lines = (checked_line({"key": key, **asdict(each)}) for key, each in self.kept.items())
        path.write_bytes(b"".join(lines))

    def load(self, path: Path) -> list[Damage]:
        """Read summaries back; the damaged records are named and left out."""
        records, bad = read_lines(path)
        for _, each in records:
            lessons = tuple(Entry(**{**one, "key": tuple(one["key"])}) for one in each["lessons"])
            self.kept[each["key"]] = Summary(each["overview"], each["comparison"], lessons)
        return bad


def shown(summary: Summary | None, plain: str) -> str:
    """Return what a prompt shows: both fields of a summary, or the card's own text, each cut."""
    if summary is None:
        return cut(plain, PLAIN_CUT)
    return f"{cut(summary.overview, RICH_CUT)} {cut(summary.comparison, RICH_CUT)}"


def cut(text: str, length: int) -> str:
    """Collapse blanks and cut to `length` characters, with an ellipsis where something is lost."""
    flat = " ".join(text.split())
    return flat if len(flat) <= length else f"{flat[: length - 3]}..."


def parsed(text: str) -> Summary | None:
    """Read a summary that a model wrote as JSON; None unless both fields are non-empty strings."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    fields = [found.get("method_overview"), found.get("parent_comparison_experience")]
    if not all(isinstance(each, str) and each.strip() for each in fields):
        return None
    return Summary(str(fields[0]), str(fields[1]), ())


def _values(lessons: Sequence[Entry]) -> set[tuple[tuple[str, ...], str]]:
    return {(each.key, canonical_json(each.value)) for each in lessons}
