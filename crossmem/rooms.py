"""Things by name, some of which another room holds: imported when asked for, and not before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

T = TypeVar("T")


class Shelf(Mapping[str, T]):
    """A read-only mapping. `elsewhere` holds `module:attribute` for what is not at hand.

    Listing the names imports nothing; asking for a thing of another room imports that room.
    """

    def __init__(self, here: Mapping[str, T], elsewhere: Mapping[str, str]) -> None:
        self._here = dict(here)
        self._elsewhere = dict(elsewhere)

    def __getitem__(self, name: str) -> T:
        if name in self._here:
            return self._here[name]
        module, _, attribute = self._elsewhere[name].partition(":")
        found: T = getattr(import_module(module), attribute)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._here or name in self._elsewhere

    def __iter__(self) -> Iterator[str]:
        yield from self._here
        yield from self._elsewhere

    def __len__(self) -> int:
        return len(self._here) + len(self._elsewhere)
