"""Who does the work of a run: makes the agents, scripted or live, and holds what they share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

from crossmem.agents import models
from crossmem.agents.base import Agent
from crossmem.agents.live import LiveAgent
from crossmem.agents.messages import Backend
from crossmem.agents.preflight import preflight
from crossmem.agents.prompts import Prompter, estimate_tokens
from crossmem.agents.retry import RetryPolicy
from crossmem.agents.scripted import ScriptedAgent
from crossmem.domains.base import Task
from crossmem.errors import CrossmemError

if TYPE_CHECKING:
    from crossmem.settings import RunSettings


@dataclass(frozen=True)
class AgentFactory:
    """Makes the agents of one run; `backend_of` is None in mock mode."""

    settings: RunSettings
    backend_of: Callable[[int], Backend] | None

    def agent(
        self, prompter: Prompter, replicate: int, stop: Event, notify: Callable[[str], None]
    ) -> Agent:
        """Return the agent of one arm and replicate; waits are told to `notify` and end with `stop`."""
        if self.backend_of is None:
            return ScriptedAgent(self.settings.model, prompter)
        retry_policy = RetryPolicy(self.settings.episode_timeout_s, notify, stop)
        return LiveAgent(
            self.backend_of(replicate), prompter, retry_policy, models.label(self.settings)
        )

    def at_once(self, jobs: int) -> int:
        """Return how many of the `jobs`, arms and replicates, to replay at once.

        A local model answers one request at a time: a second arm would spend its episodes' time in the
        queue.
        """
        if self.backend_of is None:
            return jobs
        most = 1 if self.settings.model == models.LOCAL else self.settings.max_concurrency
        return min(jobs, most)

    def probe(
        self, prompter: Prompter, task: Task, notify: Callable[[str], None]
    ) -> list[dict[str, Any]]:
        """Return the evidence of a preflight, empty in mock mode.

        Raises CrossmemError where the provider gives no answer, or under `strict_preflight` a doubtful
        one.
        """
        if self.backend_of is None:
            return []
        retry_policy = RetryPolicy(self.settings.episode_timeout_s, notify)
        evidence = preflight(self.backend_of(0), prompter, task, retry_policy)
        if evidence["warnings"] and self.settings.strict_preflight:
            raise CrossmemError(f"strict_preflight: {'; '.join(evidence['warnings'])}")
        return [evidence]


@contextmanager
def agent_factory(settings: RunSettings) -> Iterator[AgentFactory]:
    """Yield the staff of a run; a model served on this machine ends with the block."""
    if settings.mock:
        yield AgentFactory(settings, None)
        return
    with models.backend_for(settings) as backend_of:
        yield AgentFactory(settings, backend_of)


def expectation(settings: RunSettings, prompter: Prompter, tasks: list[Task]) -> str:
    """Say how many calls and tokens a live run will take: one call an episode at least."""
    episodes = len(settings.arms_to_run()) * settings.replicates * len(tasks)
    fixed = estimate_tokens(prompter.stable()) + estimate_tokens(prompter.schema(tasks[0]))
    each = fixed + sum(estimate_tokens(prompter.task(task)) for task in tasks) / len(tasks)
    most = episodes * settings.max_attempts
    writing = sum(arm.asks_for_summaries for arm in settings.chosen_arms())
    besides = f"; a call more for every summary that {writing} arms have written" if writing else ""
    return (
        f"Expected: {episodes:,} episodes, {episodes:,} to {most:,} calls, "
        f"at least {episodes * each:,.0f} tokens (estimated, first requests alone){besides}"
    )
