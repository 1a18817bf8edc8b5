"""Replay one stream through one arm: drift, recall, attempts, and the judgement of each attempt.

The judgement reads the live table, which an arm never does. Nothing here knows files of results.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from crossmem.contract import TableDiff, read_response
from crossmem.memory.entry import Entry
from crossmem.memory.memory import (
    BudgetSet,
    Carried,
    DiffsHanded,
    Event,
    Memory,
    Observation,
    Truth,
    VersionsRead,
)
from crossmem.records import Attempt, CarriedRecord, EpisodeRecord, Row
from crossmem.records import Event as EventRecord

if TYPE_CHECKING:
    from crossmem.agents.base import Agent, Proposal
    from crossmem.client import ApiClient
    from crossmem.contract import Response
    from crossmem.domains.base import Domain, Task
    from crossmem.drift import World
    from crossmem.memory.policies import Action
    from crossmem.streams import BudgetStep, Stream

Verdict = Literal["good", "stale", "poisoned", "outdated"]


@dataclass
class Replay:
    """One arm and replicate over one stream. `budget` is the schedule in force for it."""

    stream: Stream
    domain: Domain
    memory: Memory
    agent: Agent
    api: ApiClient
    world: World
    budget: Sequence[BudgetStep]
    max_attempts: int
    replicate: int = 0
    run_name: str = "run"

    def catch_up(self, records: Sequence[EpisodeRecord]) -> None:
        """Bring memory and world to where a journal ends, without asking the agent again."""
        for record in records:
            self._swap_tables(record.index)
            refold(self.memory, self.stream, record)

    def episode(self, index: int) -> EpisodeRecord:
        """Replay the episode `index` and return all it leaves."""
        log = _Log(self.memory.arm.name, self.replicate, index)
        started = time.perf_counter()
        self._before(index, log)
        task = self.stream.episodes[index].task
        recalled = self.memory.recall(task)
        turn = self.agent.begin(task, recalled)
        for number in range(1, self.max_attempts + 1):
            proposal = turn.next_request()
            response = self._send(task, proposal, f"{index}/{number}")
            log.attempt(proposal, response, recalled, self._carried(task, recalled, proposal, response))
            if proposal.failed_by:
                break
            if response is None:
                continue
            log.actions(self.memory.fold(_observation(task, log.attempts[-1], response)))
            if response.final:
                break
            turn.tell(response)
        return log.record(self._row(task, log, time.perf_counter() - started))

    # -- before the first request ----------------------------------------------------------------

    def _before(self, index: int, log: _Log) -> None:
        """Let the world drift and tell the memory what its arm is told."""
        diffs = self._swap_tables(index)
        match self.memory.arm.told:
            case "budget":
                for step in self.budget:
                    if step.before == index:
                        self._tell({"budget": step.bytes}, log)
            case "diffs" if diffs:
                self._tell({"diffs": [diff.model_dump() for diff in diffs]}, log)
            case "versions":
                self._tell({"versions": dict(self.api.versions())}, log)
            case "truth" if diffs or index == 0:
                live = {name: [table.version, table.rows] for name, table in self.world.live.items()}
                self._tell({"truth": live}, log)

    def _swap_tables(self, index: int) -> list[TableDiff]:
        diffs: list[TableDiff] = []
        for event in self.stream.drift_events:
            if event.before == index:
                diffs += self.world.swap(event.table, event.snapshot, self.api)
        return diffs

    def _tell(self, told: dict[str, Any], log: _Log) -> None:
        log.before.append(told)
        log.actions(self.memory.fold(told_event(told)))

    # -- one attempt -----------------------------------------------------------------------------

    def _send(self, task: Task, proposal: Proposal, place: str) -> Response | None:
        if proposal.request is None:
            return None
        name = f"{self.run_name}/{self.memory.arm.name}/{self.replicate}/{place}"
        return self.api.submit(self.domain.endpoint(task), proposal.request, {"Idempotency-Key": name})

    def _carried(
        self,
        task: Task,
        recalled: Sequence[Entry],
        proposal: Proposal,
        response: Response | None,
    ) -> list[CarriedRecord]:
        """Judge every recalled entry that stood in the request against the live table."""
        if proposal.request is None or response is None:
            return []
        return [
            CarriedRecord(
                key=list(entry.key),
                table=entry.table,
                row=entry.row,
                value=entry.value,
                version=entry.version,
                refused=response.refuses(pointers),
                verdict=self._judge(entry, pointers, response),
            )
            for entry, pointers in self.domain.carried(recalled, task, proposal.request)
        ]

    def _judge(self, entry: Entry, pointers: Sequence[str], response: Response) -> Verdict:
        live = self.world.live.get(entry.table or "")
        consulted = live is not None and live.name in response.stamps
        if live and consulted and not self.domain.holds(entry, live.rows):
            return "stale"
        if response.refuses(pointers):
            return "poisoned"
        if live and entry.version != live.version:
            return "outdated"
        return "good"

    def _row(self, task: Task, log: _Log, seconds: float) -> Row:
        first, last = log.attempts[0], log.attempts[-1]
        accepted = _accepted(last)
        criterion = self.stream.criteria[task.id]
        success = accepted and self.domain.intent_kept(criterion, last.request or {})
        verdicts = {each.verdict for each in first.carried}
        refused = first.status is not None and not _accepted(first)
        store = self.memory.store
        return Row(
            arm=log.arm,
            replicate=self.replicate,
            index=log.index,
            task_id=task.id,
            family=self.stream.family(task),
            half=self.domain.half(task),
            drift_epoch=sum(event.before <= log.index for event in self.stream.drift_events),
            snapshot=self.stream.episodes[log.index].snapshot,
            success=success,
            first_try=success and len(log.attempts) == 1,
            attempts=len(log.attempts),
            **{f"{kind}_tokens": log.tokens[kind] for kind in ("input", "output")},
            **{f"{kind}_tokens": log.tokens[kind] for kind in ("cache_read", "cache_write")},
            total_tokens=log.tokens.total(),
            tokens_source=self.agent.tokens_source,
            recalled=len(first.recalled),
            stale_attempt="stale" in verdicts,
            outdated_use="outdated" in verdicts,
            poisoned="poisoned" in verdicts,
            cold_retry=refused and verdicts.isdisjoint({"stale", "poisoned"}),
            entries=store.count,
            bytes=store.bytes,
            budget=store.budget,
            latency_s=round(seconds, 6),
            error=None if success else _why_failed(last),
            failed_by=None if success else _failed_by(last),
        )


@dataclass
class _Log:
    """What an episode leaves, gathered as it goes."""

    arm: str
    replicate: int
    index: int
    before: list[dict[str, Any]] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    events: list[EventRecord] = field(default_factory=list)
    tokens: Counter[str] = field(default_factory=Counter)

    def attempt(
        self,
        proposal: Proposal,
        response: Response | None,
        recalled: Sequence[Entry],
        carried: list[CarriedRecord],
    ) -> None:
        self.tokens.update(asdict(proposal.usage))
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
            )
        )

    def actions(self, actions: Sequence[Action]) -> None:
        self.events += [
            EventRecord(
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
        return EpisodeRecord(
            index=self.index, before=self.before, attempts=self.attempts, events=self.events, row=row
        )


def refold(memory: Memory, stream: Stream, record: EpisodeRecord) -> None:
    """Fold a journalled episode into `memory`: the state ends as it did when the episode was live."""
    for told in record.before:
        memory.fold(told_event(told))
    task = stream.episodes[record.index].task
    for attempt in record.attempts:
        if attempt.status is not None:
            memory.fold(_observation(task, attempt, read_response(attempt.status, attempt.response)))


def _observation(task: Task, attempt: Attempt, response: Response) -> Observation:
    """Return what a memory is shown of an attempt, live or journalled."""
    carried = [
        Carried(Entry(tuple(each.key), each.table, each.row, each.value, each.version), each.refused)
        for each in attempt.carried
    ]
    return Observation(task, attempt.request or {}, response, carried)


def told_event(told: dict[str, Any]) -> Event:
    """Return the memory event that a journal's `before` item stands for."""
    match told:
        case {"diffs": list(diffs)}:
            return DiffsHanded([TableDiff.model_validate(diff) for diff in diffs])
        case {"budget": limit}:
            return BudgetSet(limit)
        case {"versions": dict(stamps)}:
            return VersionsRead(stamps)
        case {"truth": dict(tables)}:
            return Truth({name: (version, rows) for name, (version, rows) in tables.items()})
        case _:
            raise ValueError(f"a journal holds something no memory is told: {sorted(told)}")


def _as_record(entry: Entry) -> dict[str, Any]:
    """Return an entry as a file holds it, so that a run read back equals the run that was saved."""
    return {**asdict(entry), "key": list(entry.key)}


def _accepted(attempt: Attempt) -> bool:
    return attempt.status is not None and 200 <= attempt.status < 300


def _failed_by(last: Attempt) -> Literal["agent", "provider", "api"]:
    if last.failed_by:
        return last.failed_by
    return "api" if last.status is not None and last.status >= 500 else "agent"


def _why_failed(last: Attempt) -> str:
    if last.error:
        return last.error
    if _accepted(last):
        return "accepted, but the request no longer does what the task asked for"
    detail = (last.response or {}).get("detail", "")
    return f"refused with {last.status}: {detail}"
