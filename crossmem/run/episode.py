"""Replay one stream through one arm: drift, recall, attempts. Judging them is `judge.py`'s."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Literal

from crossmem.agents.base import Proposal, Usage
from crossmem.contract import TableDiff, read_response
from crossmem.domains.base import value_at, with_value
from crossmem.memory.entry import Entry
from crossmem.memory.memory import (
    BudgetSet,
    Carried,
    DiffsHanded,
    Event,
    MemoryBackend,
    Observation,
    SummaryWritten,
    Truth,
    VersionsRead,
)
from crossmem.run import judge
from crossmem.run.episode_log import EpisodeLog
from crossmem.run.records import Attempt, EpisodeRecord, Row

if TYPE_CHECKING:
    from crossmem.agents.base import Agent
    from crossmem.client import ApiClient
    from crossmem.contract import Response
    from crossmem.domains.base import Domain, Task
    from crossmem.run.table_files import World
    from crossmem.streams import BudgetStep, Stream

Verdict = Literal["good", "stale", "poisoned", "outdated"]


@dataclass
class Replay:
    """One arm and replicate over one stream. `budget` is the schedule in force for it."""

    stream: Stream
    domain: Domain
    memory: MemoryBackend
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
            task = self.stream.episodes[record.index].task
            if record.input is not None:
                task = task.model_copy(update={"input": record.input})
            refold(self.memory, task, record.attempts)

    def episode(self, index: int) -> EpisodeRecord:
        """Replay the episode `index` and return all it leaves."""
        log = EpisodeLog(self.memory.arm.name, self.replicate, index)
        started = time.perf_counter()
        self._before(index, log)
        task = self._task(index, log)
        if log.attempts:  # what the task needs could not be made
            return log.record(self._row(task, log, time.perf_counter() - started))
        self._request_summaries(task, log)
        recalled = self.memory.recall(task)
        turn = self.agent.begin(task, recalled)
        for number in range(1, self.max_attempts + 1):
            proposal = turn.next_request()
            response = self._send(task, proposal, f"{index}/{number}")
            if response is None or proposal.request is None:
                log.attempt(proposal, None, recalled, [])
                if proposal.failed_by:
                    break
                continue
            live = self.world.live
            found = judge.carried(self.domain, live, recalled, task, proposal.request, response)
            log.attempt(proposal, response, recalled, found)
            log.actions(self.memory.fold(_observation(task, log.attempts[-1], response)))
            if response.final or number == self.max_attempts:
                break
            self._request_summaries(task, log)
            turn.tell(response, self.memory.remind(task))
        return log.record(self._row(task, log, time.perf_counter() - started))

    # -- before the first request ----------------------------------------------------------------

    def _before(self, index: int, log: EpisodeLog) -> None:
        """Let the world drift and tell the memory what its arm is told."""
        diffs = self._swap_tables(index)
        match self.memory.arm.signal:
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

    def _tell(self, told: dict[str, Any], log: EpisodeLog) -> None:
        log.told.append(told)
        log.actions(self.memory.fold(signal_event(told)))

    def _request_summaries(self, task: Task, log: EpisodeLog) -> None:
        """Have the agent's model write what the memory wants written; what fails is told as well."""
        for commission in self.memory.summary_requests(task):
            proposal = self.agent.write(commission)
            if proposal is None:
                return
            log.spent(proposal.usage)
            written = {
                "about": commission.about,
                "fields": proposal.request,
                "problem": proposal.error,
                "tokens": sum(astuple(proposal.usage)),
            }
            self._tell({"written": written}, log)

    def _task(self, index: int, log: EpisodeLog) -> Task:
        """Return the episode's task, with what it needs provisioned by a request of the harness."""
        task, provision = self.stream.episodes[index].task, self.stream.episodes[index].provision
        if provision is None:
            return task
        place = self._place(f"{index}/provision")
        response = self.api.submit(provision.endpoint, provision.body, {"Idempotency-Key": place})
        if not response.accepted:
            error = f"what the task needs could not be made: {response.status} {response.detail}"
            log.attempt(Proposal(None, Usage(), error, failed_by="api"), None, (), [])
            return task
        value = value_at(response.body or {}, provision.result)
        log.input = with_value(task.input, provision.into, value)
        return task.model_copy(update={"input": log.input})

    # -- one attempt -----------------------------------------------------------------------------

    def _send(self, task: Task, proposal: Proposal, place: str) -> Response | None:
        if proposal.request is None:
            return None
        headers = {"Idempotency-Key": self._place(place)}
        return self.api.submit(self.domain.endpoint(task), proposal.request, headers)

    def _place(self, place: str) -> str:
        """Return a name for a request that no other request of the run has."""
        return f"{self.run_name}/{self.memory.arm.name}/{self.replicate}/{place}"

    def _row(self, task: Task, log: EpisodeLog, seconds: float) -> Row:
        last = log.attempts[-1]
        success = judge.succeeded(self.domain, self.stream.criteria[task.id], task, last)
        store = self.memory.store
        return Row(
            arm=log.arm,
            replicate=self.replicate,
            index=log.index,
            task_id=task.id,
            family=self.stream.family(task),
            drift_row=self.domain.drift_row(task),
            drift_epoch=sum(event.before <= log.index for event in self.stream.drift_events),
            snapshot=self.stream.episodes[log.index].snapshot,
            success=success,
            first_try=success and len(log.attempts) == 1,
            attempts=len(log.attempts),
            input_tokens=log.tokens["input"],
            output_tokens=log.tokens["output"],
            cache_read_tokens=log.tokens["cache_read"],
            cache_write_tokens=log.tokens["cache_write"],
            total_tokens=log.tokens.total(),
            tokens_source=self.agent.tokens_source,
            recalled=len(log.attempts[0].recalled),
            **judge.first_attempt(log.attempts[0]),
            entries=store.count,
            bytes=store.bytes,
            budget=store.budget,
            latency_s=round(seconds, 6),
            error=None if success else judge.why_failed(last),
            failed_by=None if success else judge.failed_by(last),
        )


def refold(memory: MemoryBackend, task: Task, attempts: Sequence[Attempt]) -> None:
    """Fold a recorded episode into `memory`: the state ends as it did when the episode was live."""
    for attempt in attempts:
        retell(memory, attempt)
        reobserve(memory, task, attempt)


def reobserve(memory: MemoryBackend, task: Task, attempt: Attempt) -> None:
    """Fold a recorded attempt itself, but not what `memory` was told before it."""
    if attempt.status is not None:
        memory.fold(_observation(task, attempt, read_response(attempt.status, attempt.response)))


def retell(memory: MemoryBackend, attempt: Attempt) -> None:
    """Fold what `memory` was told before a recorded attempt, but not the attempt itself."""
    for told in attempt.told:
        memory.fold(signal_event(told))


def _observation(task: Task, attempt: Attempt, response: Response) -> Observation:
    """Return what a memory is shown of an attempt, live or journalled."""
    carried = [
        Carried(Entry(tuple(each.key), each.table, each.row, each.value, each.version), each.refused)
        for each in attempt.carried
    ]
    return Observation(task, attempt.request or {}, response, carried)


def signal_event(told: dict[str, Any]) -> Event:
    """Return the memory event that an item of an attempt's `told` stands for."""
    match told:
        case {"diffs": list(diffs)}:
            return DiffsHanded([TableDiff.model_validate(diff) for diff in diffs])
        case {"budget": limit}:
            return BudgetSet(limit)
        case {"versions": dict(stamps)}:
            return VersionsRead(stamps)
        case {"truth": dict(tables)}:
            return Truth({name: (version, rows) for name, (version, rows) in tables.items()})
        case {"written": dict(written)}:
            return SummaryWritten(**written)
        case _:
            raise ValueError(f"a journal holds something no memory is told: {sorted(told)}")
