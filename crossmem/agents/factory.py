"""The agents of a run: which provider a model's name leads to, what they share, what to expect.

A provider is a file in `providers/` and a row in `PROVIDERS`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from crossmem.agents.cost import BudgetSpentError, cannot_keep
from crossmem.agents.live import LiveAgent
from crossmem.agents.preflight import NO_USAGE, preflight
from crossmem.agents.prompts import Prompter, estimate_tokens
from crossmem.agents.retry import RetryPolicy
from crossmem.agents.scripted import ScriptedAgent, profile
from crossmem.errors import CrossmemError, InputError

if TYPE_CHECKING:
    from crossmem.agents.base import Agent
    from crossmem.agents.messages import BackendFactory
    from crossmem.domains.base import Task
    from crossmem.settings import RunSettings

ALIASES = {"haiku": "claude-haiku-4-5", "sonnet": "claude-sonnet-4-6"}
_LONGEST_LABEL = 80
"""Characters of a model's name in a file's name, which has 255 bytes in all."""


@dataclass(frozen=True)
class Provider:
    """How the models whose names begin with `prefix`, or are it, are reached.

    `file` is a module of `providers/`, loaded with its SDK when it is needed. Of its two functions
    `check(settings)` raises InputError where a model cannot be reached, and `backends(settings, id)`
    opens what the replicates share and yields a BackendFactory. `most_at_once` bounds the arms and
    replicates that ask at once; `address_variable` names another endpoint than the provider's own.
    """

    prefix: str
    file: str
    most_at_once: int | None = None
    address_variable: str = ""

    @property
    def module(self) -> Any:
        """The module, loaded."""
        return import_module(f"crossmem.agents.providers.{self.file}")


PROVIDERS = (
    # A local model answers one request at a time: a second arm would spend its time in the queue.
    Provider("local", "llamacpp", most_at_once=1),
    Provider("openai/", "openai", address_variable="OPENAI_BASE_URL"),
    Provider("", "anthropic", address_variable="ANTHROPIC_BASE_URL"),
)


def _provider(model: str) -> Provider:
    """Return whose a model is: the row of its very name, else of what its name has up to a `/`."""
    owner = model[: model.find("/") + 1]
    return next(each for each in PROVIDERS if each.prefix in {model, owner, ""})


def full_name(model: str) -> str:
    """Return the id that a provider knows a model by.

    >>> full_name("haiku"), full_name("openai/org/some-model"), full_name("local")
    ('claude-haiku-4-5', 'org/some-model', 'local')
    """
    prefix = _provider(model).prefix
    return model.removeprefix(prefix) if prefix.endswith("/") else ALIASES.get(model, model)


def endpoint(settings: RunSettings) -> str | None:
    """Return the host that a live model is asked at where the environment names one."""
    if settings.mock:
        return None
    return urlsplit(os.environ.get(_provider(settings.model).address_variable, "")).hostname


def label(settings: RunSettings) -> str:
    """Return what a results file's name says of the model."""
    name = f"mock-{settings.model}" if settings.mock else settings.model
    plain = re.sub(r"[^A-Za-z0-9.-]+", "-", name).strip("-")
    if len(plain) <= _LONGEST_LABEL:
        return plain
    return f"{plain[:_LONGEST_LABEL]}-{sha256(name.encode()).hexdigest()[:8]}"


def check_model(settings: RunSettings) -> None:
    """Raise InputError where the model of a run cannot be reached, saying what can."""
    if settings.gguf and (settings.mock or settings.model != "local"):
        raise InputError(f"gguf names the file of model=local; this run is of model {settings.model!r}")
    if settings.mock:
        profile(settings.model)
    else:
        _provider(settings.model).module.check(settings)


@dataclass(frozen=True)
class AgentFactory:
    """Makes the agents of one run; `backend_of` a replicate is None in mock mode."""

    settings: RunSettings
    backend_of: BackendFactory | None

    def agent(
        self, prompter: Prompter, replicate: int, stop: Event, notify: Callable[[str], None]
    ) -> Agent:
        """Return the agent of one arm and replicate; `notify` gets its waits, `stop` ends them."""
        if self.backend_of is None:
            return ScriptedAgent(self.settings.model, prompter)
        retry_policy = RetryPolicy(self.settings.episode_timeout_s, notify, stop)
        return LiveAgent(self.backend_of(replicate), prompter, retry_policy, label(self.settings))

    def at_once(self, jobs: int) -> int:
        """Return how many of the `jobs`, arms and replicates, to replay at once."""
        if self.backend_of is None:
            return jobs
        most = _provider(self.settings.model).most_at_once or self.settings.max_concurrency
        return min(jobs, most)

    def probe(
        self, prompter: Prompter, task: Task, notify: Callable[[str], None]
    ) -> list[dict[str, Any]]:
        """Return the evidence of a preflight, empty in mock mode.

        Raises CrossmemError where the provider gives no answer, one without usage under a limit, or
        under `strict_preflight` a doubtful one.
        """
        if self.backend_of is None:
            return []
        retry_policy = RetryPolicy(self.settings.episode_timeout_s, notify)
        evidence = preflight(self.backend_of(0), prompter, task, retry_policy)
        if NO_USAGE in evidence["warnings"] and (
            self.settings.max_tokens_total or self.settings.max_cost_usd
        ):
            raise BudgetSpentError(f"preflight: {cannot_keep(1)}")
        if evidence["warnings"] and self.settings.strict_preflight:
            raise CrossmemError(f"strict_preflight: {'; '.join(evidence['warnings'])}")
        return [evidence]


@contextmanager
def agent_factory(settings: RunSettings) -> Iterator[AgentFactory]:
    """Yield the factory of a run; connections and a model served here end with the block."""
    if settings.mock:
        yield AgentFactory(settings, None)
        return
    with ExitStack() as stack:
        provider = _provider(settings.model)
        try:
            backend_of = stack.enter_context(
                provider.module.backends(settings, full_name(settings.model))
            )
        except (ImportError, ValueError) as error:  # above all: a proxy that the SDK cannot use
            raise InputError(f"the provider's client cannot be made: {error}{_proxies()}") from None
        yield AgentFactory(settings, backend_of)


def _proxies() -> str:
    """Return, for a message, the proxies that the environment names; empty for none."""
    names = [f"{each}_proxy" for each in ("all", "http", "https")]
    found = [name for each in names for name in (each, each.upper()) if os.environ.get(name)]
    if not found:
        return ""
    return f". Set in the environment: {', '.join(found)}; unset it, or pip install 'httpx[socks]'"


def expectation(settings: RunSettings, prompter: Prompter, tasks: list[Task]) -> str:
    """Say how many calls and tokens a live run will take: one call an episode at least."""
    arms = settings.arms_to_run()
    episodes = len(arms) * settings.replicates * len(tasks)
    fixed = estimate_tokens(prompter.stable()) + estimate_tokens(prompter.schema(tasks[0]))
    each = fixed + sum(estimate_tokens(prompter.task(task)) for task in tasks) / len(tasks)
    most = episodes * settings.max_attempts
    writing = sum(arm.asks_for_summaries for arm in arms)
    besides = f"; a call more for every summary that {writing} arms have written" if writing else ""
    return (
        f"Expected: {episodes:,} episodes, {episodes:,} to {most:,} calls, "
        f"at least {episodes * each:,.0f} tokens (estimated, first requests alone){besides}"
    )
