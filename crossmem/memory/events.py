"""What a memory observes: attempts, and the signals that some arms are given beside them.

A memory sees the task as the agent sees it, the requests sent and the responses received; never the
stream, a snapshot's name or a success criterion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from crossmem.contract import Json, TableDiff

if TYPE_CHECKING:
    from crossmem.contract import Response
    from crossmem.domains.base import Task
    from crossmem.memory.entry import Entry


@dataclass(frozen=True, slots=True)
class Carried:
    """An entry whose value stood in a request, and whether the API refused its place there."""

    entry: Entry
    refused: bool


@dataclass(frozen=True, slots=True)
class Observation:
    """One attempt: the task, the request sent, the response, and which entries the request carried."""

    task: Task
    request: dict[str, Json]
    response: Response
    carried: Sequence[Carried] = ()


class _Signal(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DiffsHanded(_Signal):
    """The structured changes of a reload, not yet exposed by any response (A2D)."""

    kind: Literal["diffs"] = "diffs"
    diffs: tuple[TableDiff, ...]


class BudgetSet(_Signal):
    """The byte budget from now on; None = unlimited (A3)."""

    kind: Literal["budget"] = "budget"
    bytes: int | None


class VersionsRead(_Signal):
    """The version of every table, read from the API outside of any attempt (A2V)."""

    kind: Literal["versions"] = "versions"
    stamps: Mapping[str, str]


class EpisodeBegun(_Signal):
    """The number of the episode that begins, from 0 on: a clock, for a policy that lets entries age."""

    kind: Literal["clock"] = "clock"
    index: int


class Truth(_Signal):
    """What the live tables hold: table -> (version, rows). For the oracle alone."""

    kind: Literal["truth"] = "truth"
    tables: Mapping[str, tuple[str, Mapping[str, Json]]]


class SummaryWritten(_Signal):
    """What became of a `SummaryRequest` about `about`: the fields written, or None and the `problem`.

    `tokens` is what writing took, by the count of the model's provider.
    """

    kind: Literal["summary"] = "summary"
    about: str
    fields: dict[str, Json] | None
    problem: str | None = None
    tokens: int = 0


Signal = Annotated[
    DiffsHanded | BudgetSet | VersionsRead | EpisodeBegun | Truth | SummaryWritten,
    Field(discriminator="kind"),
]
Event = Observation | DiffsHanded | BudgetSet | VersionsRead | EpisodeBegun | Truth | SummaryWritten
