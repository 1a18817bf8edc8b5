"""What a run leaves per episode: its row, the memory's actions, its attempts. No files here."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from crossmem.contract import Json, Response, Suggestion
from crossmem.memory.entry import Entry
from crossmem.memory.events import Signal

Verdict = Literal["good", "stale", "poisoned", "outdated"]
FailedBy = Literal["agent", "provider", "api", "declined"]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Row(_Record):
    """One episode of one arm and replicate. Tokens of all its attempts; sizes after its last one.

    `first_try`, `stale_attempt`, `outdated_use`, `poisoned` and `cold_retry` judge the first attempt.
    `drift_row` is the row or category of the drifting table that the task depends on, if any.
    `recalled` counts the entries put before the agent. Where an episode failed, `error` says why and
    `failed_by` whose failure it is: the agent's, the model provider's, the API's, or a card's.
    """

    arm: str
    replicate: int
    index: int
    task_id: str
    family: str
    drift_row: str | None
    drift_epoch: int
    snapshot: str
    success: bool
    first_try: bool
    attempts: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    total_tokens: int
    tokens_source: Literal["reported", "estimated"]
    recalled: int
    stale_attempt: bool
    outdated_use: bool
    poisoned: bool
    cold_retry: bool
    entries: int
    bytes: int
    budget: int | None
    latency_s: float
    error: str | None = None
    failed_by: FailedBy | None = None


class MemoryEvent(_Record):
    """One action of a memory. `attempt` is 0 for what happened before the first request."""

    attempt: int
    kind: str
    table: str | None
    key: list[str] | None
    value: Any
    from_version: str | None
    to_version: str | None
    why: str


class CarriedEntry(_Record):
    """An entry that stood in a request, and what the harness found it to be worth there."""

    entry: Entry
    refused: bool
    verdict: Verdict


class Attempt(_Record):
    """One request: what was recalled (listed with the first) and sent, and what came back as read.

    `signals` is what the memory was given since the attempt before, in order: together with the
    attempts it is all that a memory is made of. `evidence` is what the model's provider said of its
    answer; None with the scripted agent.
    """

    attempt: int
    request: dict[str, Any] | None
    status: int | None
    response: dict[str, Any] | None
    stamps: dict[str, str]
    suggestions: tuple[Suggestion, ...]
    recalled: list[Entry]
    carried: list[CarriedEntry]
    error: str | None = None
    failed_by: Literal["provider", "api"] | None = None
    evidence: dict[str, str | None] | None = None
    signals: list[Signal] = Field(default_factory=list)

    def read(self) -> Response | None:
        """Return the response as it was read when it came, None where none did."""
        if self.status is None:
            return None
        return Response(self.status, self.response, self.suggestions, self.stamps)


class EpisodeRecord(_Record):
    """All that one episode leaves; the log holds one per line, so it is there whole or not at all.

    `input` is the task's Input Data where the harness provisioned a part of it.
    """

    row: Row
    input: dict[str, Json] | None = None
    events: list[MemoryEvent]
    attempts: list[Attempt]
