"""Stream files: the ordered episodes, the drift events and the budget that a study replays.

How a domain plans its streams stands in `domains/`; how they are written and audited, in `author.py`.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crossmem import paths
from crossmem.domains.base import Provision, Task
from crossmem.errors import InputError, unknown
from crossmem.streams.plan import pattern_of

if TYPE_CHECKING:
    from pathlib import Path


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class DriftEvent(_Part):
    """Swap `table` for the snapshot called `snapshot` before episode `before`."""

    before: int = Field(ge=0)
    table: str
    snapshot: str


class BudgetStep(_Part):
    """From episode `before` on, a memory under budget holds at most `bytes`; None = unlimited."""

    before: int = Field(ge=0)
    bytes: int | None = Field(ge=0)


class Episode(_Part):
    """A task at its place in the stream, and the snapshot of the drifting table then in force.

    `provision` is sent before the episode where its task needs something to exist.
    """

    index: int
    task: Task
    snapshot: str
    provision: Provision | None = None


class Stream(_Part):
    """A whole stream. `criteria` maps a task's id to its family and what keeps its intent."""

    schema_version: Literal[1] = Field(1, alias="schema")
    name: str
    domain: str
    results_prefix: str
    drift_events: list[DriftEvent]
    budget: list[BudgetStep]
    episodes: list[Episode]
    criteria: dict[str, dict[str, Any]]

    @property
    def pattern(self) -> str:
        """The stream's name within its phase."""
        return pattern_of(self.name, self.results_prefix)

    def family(self, task: Task) -> str:
        """Return the family of a task."""
        return str(self.criteria[task.id]["family"])

    def dumped(self) -> str:
        """Return the stream as the text of its file."""
        content = self.model_dump(by_alias=True)
        for episode in content["episodes"]:
            if episode["provision"] is None:
                del episode["provision"]
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def path_of(name: str) -> Path:
    """Return where the stream called `name` lies."""
    return paths.streams() / f"{name}.json"


def names() -> list[str]:
    """Return the names of the streams at hand."""
    return sorted(path.stem for path in paths.streams().glob("*.json"))


def load(name: str) -> Stream:
    """Read a stream by its name or file.

    Raises InputError for what is neither, and for a file that is not a stream.
    """
    path = path_of(name) if name in names() else paths.given(name)
    if not path.is_file():
        raise unknown("stream", name, names())
    try:
        return Stream.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"stream {path}: cannot be read: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        again = ". `crossmem streams` writes it anew" if name in names() else ""
        raise InputError(f"{path} is no stream of schema 1: {where}: {first['msg']}{again}") from None


def digest(stream: Stream) -> str:
    """Return the SHA-256 of the stream's text."""
    return hashlib.sha256(stream.dumped().encode()).hexdigest()
