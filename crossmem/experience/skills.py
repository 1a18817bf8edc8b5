"""Skills: guidance by key, read from files or learned, put into a prompt under a heading.

**Faithful**: a heading that is there already is never written again, so that an updated skill never
replaces an old block. **Fixed**: a block carries its version and a hash of its text and is replaced in
place when they change.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crossmem.errors import InputError, unknown
from crossmem.memory.entry import Entry, Key

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FRONT = re.compile(r"\A---\n(?P<lines>.*?)^---\n", re.DOTALL | re.MULTILINE)
_NAMES = ("key", "version", "table", "row", "value")
_BETWEEN = " / "
"""Between the parts of an entry's key where it names a skill."""


@dataclass(frozen=True)
class Skill:
    """Guidance for the tasks that have `key`; `version` is the world it was written in.

    `lesson` is what the text says as an entry, where it is known: an agent without a model follows it.
    """

    key: str
    text: str
    version: str = ""
    lesson: Entry | None = None

    @property
    def heading(self) -> str:
        """The line that the block begins with."""
        return f"## Skill: {self.key}"

    @property
    def mark(self) -> str:
        """Version and hash of the text, as the fixed block carries them."""
        return f"{self.version or 'none'} {hashlib.sha256(self.text.encode()).hexdigest()[:8]}"

    @property
    def digest(self) -> str:
        """Hash of all that the skill says, its lesson included."""
        said = (
            f"{self.key}\n{self.version}\n{self.lesson.canonical if self.lesson else ''}\n{self.text}"
        )
        return hashlib.sha256(said.encode()).hexdigest()[:8]


def key_of(key: Key) -> str:
    """Return an entry's key as the key of a skill.

    >>> key_of(("brand", "rice flour"))
    'brand / rice flour'
    """
    return _BETWEEN.join(key)


def read_skill(path: Path) -> Skill:
    """Read a Markdown file whose text comes after `---`, `key: ...`, `---`.

    Between the marks there may also stand, a line each, the `version` it was written under, and what it
    says as a lesson: `value` (JSON), `table` and `row`. Raises InputError for a file without its key or
    without text, and for a line there that is none of these or comes twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"skill {path}: cannot be read: {error}") from None
    front = _FRONT.match(text)
    said = _front(path, front["lines"] if front else "")
    if front is None or not said.get("key"):
        raise InputError(f"skill {path}: no key; the file begins with ---, key: <the key>, ---")
    body = text[front.end() :].strip()
    if not body:
        raise InputError(f"skill {path}: nothing but its key {said['key']!r}")
    return Skill(said["key"], body, said.get("version", ""), _lesson(path, said))


def _front(path: Path, lines: str) -> dict[str, str]:
    said = {}
    for line in filter(None, map(str.strip, lines.splitlines())):
        name, _, value = line.partition(":")
        if name not in _NAMES:
            raise InputError(f"skill {path}: {unknown('line', name, _NAMES)}")
        if name in said:
            raise InputError(f"skill {path}: two lines {name!r}")
        said[name] = value.strip()
    return said


def _lesson(path: Path, said: Mapping[str, str]) -> Entry | None:
    if "value" not in said:
        return None
    try:
        value = json.loads(said["value"], parse_constant=_no_number)
    except ValueError:
        raise InputError(f"skill {path}: value {said['value']!r} is no JSON") from None
    key = tuple(said["key"].split(_BETWEEN))
    version = said.get("version") or None
    return Entry(key, said.get("table"), said.get("row"), value, version, cacheable=True)


def _no_number(name: str) -> None:
    raise ValueError(name)


def read_skills(folder: Path) -> dict[str, Skill]:
    """Read every skill of a folder, by key.

    Raises InputError as `read_skill`, for a key held twice, and for a folder without any skill.
    """
    found: dict[str, Skill] = {}
    for path in sorted(folder.glob("**/*.md")):
        skill = read_skill(path)
        if skill.key in found:
            raise InputError(f"skill {path}: the key {skill.key!r} is held by another file")
        found[skill.key] = skill
    if not found:
        raise InputError(f"skills {folder}: no skill there; a skill is a Markdown file with its key")
    return found


@dataclass
class Guidance:
    """The guidance that grows with experience: one prompt into which skills are written as blocks.

    `written` counts the bytes that have been written to it so far.
    """

    faithful: bool
    prompt: str = ""
    in_force: dict[str, Skill] = field(default_factory=dict)
    written: int = 0

    def learn(self, skill: Skill) -> bool:
        """Offer a skill; return whether the prompt took it.

        A heading that is there already is never written again (faithful), or its block is replaced
        where version or text differ (fixed).
        """
        mark = "" if self.faithful else f"<!-- {skill.mark} -->\n"
        block = f"{skill.heading}\n{mark}{skill.text.strip()}"
        if skill.heading not in self.prompt.splitlines():
            self.prompt = f"{self.prompt.rstrip()}\n\n{block}"
        elif self.faithful or block in self.prompt:
            return False
        else:
            heading = re.escape(skill.heading)
            old = re.compile(rf"^{heading}$.*?(?=\n\n## Skill: |\Z)", re.MULTILINE | re.DOTALL)
            self.prompt = old.sub(lambda _: block, self.prompt, count=1)
        self.in_force[skill.key] = skill
        self.written += len(block.encode())
        return True
