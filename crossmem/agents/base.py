"""The protocol of an agent: a turn per episode that proposes requests and reads what came back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from crossmem.contract import Response
from crossmem.domains.base import Body, Task
from crossmem.memory.entry import Entry
from crossmem.memory.memory import SummaryRequest

TokensSource = Literal["reported", "estimated"]


@dataclass(frozen=True)
class Usage:
    """Tokens of one request to the model. `input` excludes what was read from or written to a cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True)
class Proposal:
    """The next request, or None with the reason why the model gave none that could be sent.

    Without a request the attempt has failed; with `failed_by` set, so has the episode. `evidence` is
    what the provider says of the answer (model served, stop reason, request id).
    """

    request: Body | None
    usage: Usage
    error: str | None = None
    failed_by: Literal["provider", "api"] | None = None
    evidence: dict[str, str | None] | None = None


class Turn(Protocol):
    """One episode's conversation."""

    def next_request(self) -> Proposal:
        """Return the request to send now."""

    def tell(self, response: Response, reminder: str = "") -> None:
        """Read the API's answer to the last request, and what memory has to say on it."""


class Agent(Protocol):
    """What works on the tasks of one arm. `name` is what a results file calls it."""

    name: str
    tokens_source: TokensSource

    def begin(self, task: Task, recalled: Sequence[Entry]) -> Turn:
        """Start an episode with the entries that memory recalled."""

    def write_summary(self, request: SummaryRequest) -> Proposal | None:
        """Return what the model wrote for a memory, as the `request`; None where there is no model."""
