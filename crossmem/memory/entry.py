"""What a memory holds: one fix, keyed by the task's own words. How it is kept is the store's matter."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from crossmem.contract import Json

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A lesson learned from one suggestion.

    `key` says which tasks it matches and never holds a JSON Pointer, since array indices differ between
    tasks. `row` is the row key of a dict-shaped table or the category of a list-shaped one. `version`
    is the stamp of `table` it was learned under, None where the response carried none. `cacheable` is
    the server's hint.
    """

    key: Key
    table: str | None
    row: str | None
    value: Json
    version: str | None = None
    cacheable: bool = False

    @property
    def canonical(self) -> str:
        """The entry as canonical JSON; its UTF-8 bytes are what a budget counts.

        >>> Entry(("brand", "oats"), "celiac_brands", "oats", "X 1", "1.0.0").canonical
        '{"key":["brand","oats"],"row":"oats","table":"celiac_brands","value":"X 1","version":"1.0.0"}'
        """
        return canonical_json(
            {
                "key": list(self.key),
                "table": self.table,
                "row": self.row,
                "value": self.value,
                "version": self.version,
            }
        )

    @property
    def size(self) -> int:
        """Bytes of the canonical JSON."""
        return len(self.canonical.encode())


class Rendered(tuple[Entry, ...]):
    """Entries that come with the text which puts them before an agent."""

    text: str

    def __new__(cls, entries: Iterable[Entry], text: str) -> Self:
        """Keep `text` beside the entries."""
        made = super().__new__(cls, entries)
        made.text = text
        return made


def canonical_json(value: Json) -> str:
    """Return `value` as JSON with sorted keys, no spaces and no escapes beyond what JSON needs."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def same(left: Json, right: Json) -> bool:
    """Tell whether two JSON values are equal; 1 and true are not, 1 and 1.0 are."""
    match left, right:
        case dict(), dict():
            return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
        case list(), list():
            return len(left) == len(right) and all(map(same, left, right))
        case _:
            return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)
