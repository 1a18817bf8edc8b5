"""What an episode leaves, gathered as it goes and turned into records at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from crossmem.run.records import Attempt, CarriedRecord, EpisodeRecord, Event, Row

if TYPE_CHECKING:
    from crossmem.agents.base import Proposal, Usage
    from crossmem.contract import Response
    from crossmem.memory.entry import Entry
    from crossmem.memory.policies import Action


@dataclass
class EpisodeLog:
    """One episode of one arm and replicate."""

    arm: str
    replicate: int
    index: int
    input: dict[str, Any] | None = None
    told: list[dict[str, Any]] = field(default_factory=list)
    """What the memory has been told since the last attempt."""
    attempts: list[Attempt] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    tokens: Counter[str] = field(default_factory=Counter)

    def attempt(
        self,
        proposal: Proposal,
        response: Response | None,
        recalled: Sequence[Entry],
        carried: list[CarriedRecord],
    ) -> None:
        """Add one request and its answer; what was recalled is kept with the first."""
        self.spent(proposal.usage)
        self.attempts.append(
            Attempt(
                arm=self.arm,
                replicate=self.replicate,
                episode=self.index,
                attempt=len(self.attempts) + 1,
                request=proposal.request,
                status=response.status if response else None,
                response=response.body if response else None,
                recalled=[] if self.attempts else list(map(_as_record, recalled)),
                carried=carried,
                error=proposal.error,
                failed_by=proposal.failed_by,
                evidence=proposal.evidence,
                told=self.told,
            )
        )
        self.told = []

    def spent(self, usage: Usage) -> None:
        """Count the tokens of one request to the model."""
        self.tokens.update(asdict(usage))

    def actions(self, actions: Sequence[Action]) -> None:
        """Add what the memory did since the last request."""
        self.events += [
            Event(
                arm=self.arm,
                replicate=self.replicate,
                episode=self.index,
                attempt=len(self.attempts),
                kind=action.kind,
                table=action.table,
                key=list(action.key) if action.key else None,
                value=action.value,
                from_version=action.from_version,
                to_version=action.to_version,
                why=action.why,
            )
            for action in actions
        ]

    def record(self, row: Row) -> EpisodeRecord:
        """Return the whole episode."""
        return EpisodeRecord(
            index=self.index,
            input=self.input,
            attempts=self.attempts,
            events=self.events,
            row=row,
        )


def _as_record(entry: Entry) -> dict[str, Any]:
    """Return an entry as a file holds it, so that a run read back equals the run that was saved."""
    return {**asdict(entry), "key": list(entry.key)}
