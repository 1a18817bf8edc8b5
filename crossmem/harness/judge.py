"""The judgement of an attempt, from live tables and success criteria. An arm never does this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from crossmem.domains.base import PROVISIONED
from crossmem.harness.records import Attempt, CarriedEntry, FailedBy, Verdict

if TYPE_CHECKING:
    from crossmem.contract import Response
    from crossmem.domains.base import Body, Domain, Task
    from crossmem.harness.table_files import LiveTable
    from crossmem.memory.entry import Entry


def carried(
    domain: Domain,
    live: Mapping[str, LiveTable],
    recalled: Sequence[Entry],
    task: Task,
    request: Body,
    response: Response,
) -> list[CarriedEntry]:
    """Judge every recalled entry that stood in `request` against the `live` tables."""
    return [
        CarriedEntry.model_construct(
            entry=entry,
            refused=response.refuses(pointers),
            verdict=_verdict(domain, live.get(entry.table or ""), entry, pointers, response),
        )
        for entry, pointers in domain.carried(recalled, task, request)
    ]


def _verdict(
    domain: Domain, live: LiveTable | None, entry: Entry, pointers: Sequence[str], response: Response
) -> Verdict:
    consulted = live is not None and live.name in response.stamps
    if live and consulted and not domain.holds(entry, live.rows):
        return "stale"
    if response.refuses(pointers):
        return "poisoned"
    if live and entry.version != live.version:
        return "outdated"
    return "good"


def first_attempt(attempt: Attempt) -> dict[str, bool]:
    """Return what a row says of an episode's first attempt; one that carried nothing may be cold."""
    verdicts = {each.verdict for each in attempt.carried}
    return {
        "stale_attempt": "stale" in verdicts,
        "outdated_use": "outdated" in verdicts,
        "poisoned": "poisoned" in verdicts,
        "cold_retry": attempt.status in {400, 422} and verdicts.isdisjoint({"stale", "poisoned"}),
    }


def succeeded(domain: Domain, criterion: Mapping[str, Any], task: Task, last: Attempt) -> bool:
    """Tell whether the last request was accepted and keeps the intent of the task.

    A provisioned value is to be kept as it was made.
    """
    kept = criterion.get("keep")
    if isinstance(kept, dict):
        made = {name: task.input[name] for name, value in kept.items() if value == PROVISIONED}
        criterion = {**criterion, "keep": {**kept, **made}}
    return _accepted(last) and domain.intent_kept(criterion, last.request or {})


OUTSIDE = frozenset({"provider", "api"})
"""Whose failures leave an episode without a measurement: nothing that an agent or a memory did."""


def failed_by(last: Attempt) -> FailedBy:
    """Return whose failure an unsuccessful episode is; docs/reading.md has the table."""
    if last.failed_by:
        return last.failed_by
    if last.status == 402:
        return "declined"
    return "api" if is_trouble(last.status) else "agent"


def is_trouble(status: int | None) -> bool:
    """Tell whether a status is the API's own trouble: no answer to what a request holds.

    A redirect, a key or route that it does not take, too many requests, and whatever is from 500 on.
    """
    return status is not None and (
        300 <= status < 400 or status in {401, 403, 405, 407, 408, 429} or status >= 500
    )


def why_failed(last: Attempt) -> str:
    """Return the reason of an unsuccessful episode, in one line."""
    if last.error:
        return last.error
    if _accepted(last):
        return "accepted, but the request no longer does what the task asked for"
    detail = (last.response or {}).get("detail", "")
    return f"refused with {last.status}: {detail}"


def _accepted(attempt: Attempt) -> bool:
    return attempt.status is not None and 200 <= attempt.status < 300
