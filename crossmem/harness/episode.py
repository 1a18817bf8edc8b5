"""Replay a stream through one arm, episode by episode: drift, recall, attempts, the record."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from crossmem.agents.base import Proposal, Usage
from crossmem.domains.base import value_at, with_value
from crossmem.harness import judge
from crossmem.harness.records import Attempt, EpisodeRecord, MemoryEvent, Row
from crossmem.memory.events import (
    BudgetSet,
    Carried,
    DiffsHanded,
    EpisodeBegun,
    Observation,
    Signal,
    SummaryWritten,
    Truth,
    VersionsRead,
)
from crossmem.memory.memory import NarrativeMemory

if TYPE_CHECKING:
    from crossmem.agents.base import Agent
    from crossmem.client import ApiClient
    from crossmem.contract import Response, TableDiff
    from crossmem.domains.base import Domain, Task
    from crossmem.harness.records import CarriedEntry
    from crossmem.harness.table_files import TableFiles
    from crossmem.memory.entry import Entry
    from crossmem.memory.memory import MemoryBackend
    from crossmem.memory.policies import Action
    from crossmem.streams import BudgetStep, Stream


@dataclass
class EpisodeDraft:
    """An episode as it goes: what becomes its record."""

    signals: list[Signal] = field(default_factory=list)
    """What the memory was given since the last attempt."""
    input: dict[str, Any] | None = None
    events: list[MemoryEvent] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    tokens: Counter[str] = field(default_factory=Counter)


@dataclass
class Replay:
    """One arm and replicate over one stream. `budget` is the schedule in force for it.

    `run_name` sets the idempotency keys of this run apart from those of others.
    """

    stream: Stream
    domain: Domain
    memory: MemoryBackend
    agent: Agent
    api: ApiClient
    tables: TableFiles
    budget: Sequence[BudgetStep]
    max_attempts: int
    replicate: int = 0
    run_name: str = "run"

    def __post_init__(self) -> None:
        self._narrative = self.memory if isinstance(self.memory, NarrativeMemory) else None

    def catch_up(self, records: Sequence[EpisodeRecord]) -> None:
        """Bring memory and tables to where a log ends, without asking the agent again."""
        for record in records:
            self._swap_tables(record.row.index)
            refold(self.memory, self.stream.episodes[record.row.index].task, record)

    def episode(self, index: int) -> EpisodeRecord:
        """Replay the episode `index` and return all it leaves."""
        draft = EpisodeDraft()
        started = time.perf_counter()
        for signal in self._signals(index):
            self._give(signal, draft)
        task = self._provisioned(index, draft)
        if not draft.attempts:  # else what the task needs could not be made
            self._attempt(task, index, draft)
        row = self._row(task, index, draft, time.perf_counter() - started)
        return EpisodeRecord(row=row, input=draft.input, events=draft.events, attempts=draft.attempts)

    def _attempt(self, task: Task, index: int, draft: EpisodeDraft) -> None:
        """Let the agent try until nothing more can be mended or its attempts are used up."""
        self._request_summaries(task, draft)
        recalled = self.memory.recall(task)
        turn = self.agent.begin(task, recalled)
        for number in range(1, self.max_attempts + 1):
            proposal = turn.next_request()
            response = self._send(task, proposal, f"{index}/{number}")
            if response is None or proposal.request is None:
                self._note(draft, proposal, None, recalled, [])
                if proposal.failed_by:
                    return
                continue
            live = self.tables.live
            found = judge.carried(self.domain, live, recalled, task, proposal.request, response)
            self._note(draft, proposal, response, recalled, found)
            observation = _observation(task, proposal.request, response, found)
            self._record(draft, self.memory.observe(observation))
            if response.final or number == self.max_attempts:
                return
            self._request_summaries(task, draft)
            turn.tell(response, self._narrative.remind(task) if self._narrative else "")

    # -- before the first request ----------------------------------------------------------------

    def _signals(self, index: int) -> list[Signal]:
        """Let the tables drift; return the signals of this episode that the memory's arm is given."""
        diffs = self._swap_tables(index)
        match self.memory.arm.signal:
            case "budget":
                return [BudgetSet(bytes=step.bytes) for step in self.budget if step.before == index]
            case "diffs" if diffs:
                return [DiffsHanded(diffs=tuple(diffs))]
            case "versions":
                return [VersionsRead(stamps=self.api.versions())]
            case "clock":
                return [EpisodeBegun(index=index)]
            case "truth" if diffs or index == 0:
                live = self.tables.live
                return [
                    Truth(tables={name: (table.version, table.rows) for name, table in live.items()})
                ]
            case _:
                return []

    def _swap_tables(self, index: int) -> list[TableDiff]:
        diffs: list[TableDiff] = []
        for event in self.stream.drift_events:
            if event.before == index:
                diffs += self.tables.swap(event.table, event.snapshot, self.api)
        return diffs

    def _give(self, signal: Signal, draft: EpisodeDraft) -> None:
        draft.signals.append(signal)
        self._record(draft, self.memory.observe(signal))

    def _request_summaries(self, task: Task, draft: EpisodeDraft) -> None:
        """Have the agent's model write what the memory wants written; a failure is a signal as well."""
        if self._narrative is None:
            return
        for request in self._narrative.summary_requests(task):
            proposal = self.agent.write_summary(request)
            if proposal is None:
                return
            draft.tokens.update(asdict(proposal.usage))
            self._give(
                SummaryWritten(
                    about=request.about,
                    fields=proposal.request,
                    problem=proposal.error,
                    tokens=sum(astuple(proposal.usage)),
                ),
                draft,
            )

    def _provisioned(self, index: int, draft: EpisodeDraft) -> Task:
        """Return the episode's task, with what it needs provisioned by a request of the harness."""
        task, provision = self.stream.episodes[index].task, self.stream.episodes[index].provision
        if provision is None:
            return task
        place = self._place(f"{index}/provision")
        response = self.api.submit(provision.endpoint, provision.body, {"Idempotency-Key": place})
        if not response.accepted:
            error = f"what the task needs could not be made: {response.status} {response.detail}"
            self._note(draft, Proposal(None, Usage(), error, failed_by="api"), None, (), [])
            return task
        value = value_at(response.body or {}, provision.result)
        draft.input = with_value(task.input, provision.into, value)
        return task.model_copy(update={"input": draft.input})

    # -- one attempt -----------------------------------------------------------------------------

    def _send(self, task: Task, proposal: Proposal, place: str) -> Response | None:
        if proposal.request is None:
            return None
        headers = {"Idempotency-Key": self._place(place)}
        return self.api.submit(self.domain.endpoint(task), proposal.request, headers)

    def _place(self, place: str) -> str:
        """Return a name for a request that no other request of the run has."""
        return f"{self.run_name}/{self.memory.arm.name}/{self.replicate}/{place}"

    # -- the record ------------------------------------------------------------------------------

    def _note(
        self,
        draft: EpisodeDraft,
        proposal: Proposal,
        response: Response | None,
        recalled: Sequence[Entry],
        carried: list[CarriedEntry],
    ) -> None:
        """Add one request and its answer; what was recalled is kept with the first."""
        draft.tokens.update(asdict(proposal.usage))
        draft.attempts.append(
            Attempt.model_construct(
                attempt=len(draft.attempts) + 1,
                request=proposal.request,
                status=response.status if response else None,
                response=response.body if response else None,
                stamps=dict(response.stamps) if response else {},
                suggestions=response.suggestions if response else (),
                recalled=[] if draft.attempts else list(recalled),
                carried=carried,
                error=proposal.error,
                failed_by=proposal.failed_by,
                evidence=proposal.evidence,
                signals=draft.signals,
            )
        )
        draft.signals = []

    def _record(self, draft: EpisodeDraft, actions: Sequence[Action]) -> None:
        """Add what the memory did since the last request."""
        draft.events += [
            MemoryEvent.model_construct(
                attempt=len(draft.attempts),
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

    def _row(self, task: Task, index: int, draft: EpisodeDraft, seconds: float) -> Row:
        last = draft.attempts[-1]
        success = judge.succeeded(self.domain, self.stream.criteria[task.id], task, last)
        store = self.memory.store
        return Row(
            arm=self.memory.arm.name,
            replicate=self.replicate,
            index=index,
            task_id=task.id,
            family=self.stream.family(task),
            drift_row=self.domain.drift_row(task),
            drift_epoch=sum(event.before <= index for event in self.stream.drift_events),
            snapshot=self.stream.episodes[index].snapshot,
            success=success,
            first_try=success and len(draft.attempts) == 1,
            attempts=len(draft.attempts),
            input_tokens=draft.tokens["input"],
            output_tokens=draft.tokens["output"],
            cache_read_tokens=draft.tokens["cache_read"],
            cache_write_tokens=draft.tokens["cache_write"],
            total_tokens=draft.tokens.total(),
            tokens_source=self.agent.tokens_source,
            recalled=len(draft.attempts[0].recalled),
            **judge.first_attempt(draft.attempts[0]),
            entries=store.count,
            bytes=store.bytes,
            budget=store.budget,
            latency_s=round(seconds, 6),
            error=None if success else judge.why_failed(last),
            failed_by=None if success else judge.failed_by(last),
        )


def refold(memory: MemoryBackend, task: Task, record: EpisodeRecord) -> None:
    """Fold a recorded episode into `memory`: it ends as it did when the episode was live."""
    if record.input is not None:
        task = task.model_copy(update={"input": record.input})
    for attempt in record.attempts:
        for signal in attempt.signals:
            memory.observe(signal)
        observe_again(memory, task, attempt)


def observe_again(memory: MemoryBackend, task: Task, attempt: Attempt) -> None:
    """Fold a recorded attempt into `memory`, without the signals before it."""
    if (response := attempt.read()) is not None:
        memory.observe(_observation(task, attempt.request or {}, response, attempt.carried))


def _observation(
    task: Task, request: dict[str, Any], response: Response, carried: Sequence[CarriedEntry]
) -> Observation:
    """Return what a memory is shown of an attempt, live or recorded: no verdict of the judge.

    Nor the cache hint of a carried entry: that belongs to a suggestion, not to what stood in a request.
    """
    shown = [Carried(replace(each.entry, cacheable=False), each.refused) for each in carried]
    return Observation(task, request, response, shown)
