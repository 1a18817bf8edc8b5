"""What the study needs to know of a domain: the protocol, and what every domain shares.

A domain turns suggestions into entries, says which entries match a task, and puts them into the
request. Adding one is a file beside this one and a row in `domains/__init__.py`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jsonpointer import JsonPointerException, resolve_pointer, set_pointer
from pydantic import BaseModel, ConfigDict

from crossmem.contract import Json, Suggestion
from crossmem.memory.entry import Entry, Key, same

Keying = Literal["request", "task"]
"""Under which term a drifting lesson is keyed: the raw task's, or what the failing request held."""

Body = dict[str, Any]


class Task(BaseModel):
    """A task as the agent sees it: a text and the Input Data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    description: str
    input: Body


PROVISIONED = "(made when the episode starts)"
"""What stands in a task's Input Data for a value that only exists once the episode starts."""


class Provision(BaseModel):
    """A request that the harness sends before an episode, since its task needs what comes of it.

    The value at the JSON Pointer `result` of the answer is put at `into` of the task's Input Data.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str
    body: Body
    result: str
    into: str


@dataclass(frozen=True)
class Draft:
    """The Input Data with matching entries applied, and the entries that stand in it."""

    body: Body
    carried: tuple[Entry, ...]


class Domain(ABC):
    """One API as a client knows it."""

    name: ClassVar[str]
    families: ClassVar[tuple[str, ...]]
    keyings: ClassVar[tuple[Keying, ...]] = ("task", "request")
    drifting_table: ClassVar[str]
    slot_family: ClassVar[str]
    """The family whose first episode after a drift is the stale-attempt slot."""
    harness_induced: ClassVar[Mapping[str, str]] = {}
    """Families whose lessons the harness itself invalidates at a drift, and by what."""
    role: ClassVar[str]
    """What the agent is told it is."""

    @abstractmethod
    def endpoint(self, task: Task) -> str:
        """Return the path of the API to send the request of `task` to."""

    @abstractmethod
    def places(self, task: Task) -> dict[Key, list[str]]:
        """Return every key that can match `task`, with the JSON Pointers it would be applied at."""

    @abstractmethod
    def lesson(self, task: Task, request: Body, suggestion: Suggestion, keying: Keying) -> Entry | None:
        """Return the entry that `suggestion` teaches, without its stamp; None if it teaches none."""

    @abstractmethod
    def holds(self, entry: Entry, rows: Mapping[str, Json]) -> bool:
        """Tell whether the table's `rows` still hold the entry's value."""

    @abstractmethod
    def current(self, entry: Entry, rows: Mapping[str, Json]) -> Entry | None:
        """Return the entry with the value that the table's `rows` hold for it now, None without one."""

    @abstractmethod
    def intent_kept(self, criterion: Mapping[str, Json], request: Body) -> bool:
        """Tell whether an accepted request still does what the task asked for."""

    @abstractmethod
    def drift_row(self, task: Task) -> str | None:
        """Return the row or category of the drifting table that `task` depends on, None if none."""

    @abstractmethod
    def describe(self, key: Key) -> str:
        """Say in words what an entry of this key amends, for the memory block of a prompt."""

    def keys(self, task: Task) -> list[Key]:
        """Return the keys under which a lesson for `task` can be held."""
        return list(self.places(task))

    def apply(self, entries: Sequence[Entry], task: Task) -> Draft:
        """Put `entries` into the raw task's Input Data, once and at every place that matches.

        Nothing is chained: places come from the raw task alone. Of several entries for one place the
        last listed stands.
        """
        places = self.places(task)
        body = copy.deepcopy(task.input)
        at: dict[str, Entry] = {}
        for entry in entries:
            for pointer in places.get(entry.key, ()):
                set_pointer(body, pointer, entry.value)
                at[pointer] = entry
        standing = set(map(id, at.values()))
        return Draft(body, tuple(entry for entry in entries if id(entry) in standing))

    def stands(self, entry: Entry, pointer: str, request: Body) -> bool:
        """Tell whether `request` holds the entry's value at one of its places."""
        return same(value_at(request, pointer), entry.value)

    def companions(self, rows: Mapping[str, Mapping[str, Json]]) -> dict[str, dict[str, Json]]:  # noqa: ARG002
        """Return the rows of the tables that have to change with the drifting one.

        `rows` are the base rows of every table, those of the drifting one being the live ones.
        """
        return {}

    def family_in_text(self, text: str) -> str | None:  # noqa: ARG002
        """Return the family that a search of a request's text finds: an API's request has none."""
        return None

    def error_in_text(self, text: str) -> str | None:  # noqa: ARG002
        """Return the error that a search of an answer's text finds: an API's answer has none."""
        return None

    def carried(
        self, entries: Sequence[Entry], task: Task, request: Body
    ) -> list[tuple[Entry, list[str]]]:
        """Return which recalled entries stand in `request`, each with the pointers it stands at."""
        places = self.places(task)
        found = []
        for entry in entries:
            at = [p for p in places.get(entry.key, ()) if self.stands(entry, p, request)]
            if at:
                found.append((entry, at))
        return found


def value_at(body: Json, pointer: str) -> Json:
    """Return the value at a JSON Pointer (RFC 6901) of `body`, None where there is none."""
    try:
        return resolve_pointer(body, pointer)
    except JsonPointerException:
        return None


def with_value(body: Body, pointer: str, value: Json) -> Body:
    """Return a copy of `body` with `value` at a JSON Pointer."""
    changed = copy.deepcopy(body)
    set_pointer(changed, pointer, value)
    return changed


def merged(body: Body, suggestions: Sequence[Suggestion]) -> Body:
    """Return a copy of `body` with the suggested values put in; unusable pointers change nothing."""
    amended = copy.deepcopy(body)
    for suggestion in suggestions:
        try:
            set_pointer(amended, suggestion.field, suggestion.suggested_value)
        except (JsonPointerException, TypeError):
            continue
    return amended
