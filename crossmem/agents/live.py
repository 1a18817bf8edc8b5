"""The live agent: one conversation logic over any backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crossmem.agents.base import Proposal, TokensSource, Usage
from crossmem.agents.messages import WRITE, Backend, Message, Prompt, ProviderError, Reply
from crossmem.agents.prompts import Prompter
from crossmem.agents.retry import Deadline, RetryPolicy
from crossmem.contract import Response
from crossmem.domains.base import Task
from crossmem.memory.entry import Entry
from crossmem.memory.memory import SummaryRequest

CORRECTION = "That was no request. Send one request that fits the schema, and nothing else."


@dataclass
class LiveAgent:
    """An agent with a language model behind it."""

    backend: Backend
    prompter: Prompter
    retry_policy: RetryPolicy
    name: str
    tokens_source: TokensSource = "reported"

    def begin(self, task: Task, recalled: Sequence[Entry]) -> LiveTurn:
        """Start an episode."""
        return LiveTurn(
            self.backend, self.retry_policy.begin(), prompt(self.prompter, task, recalled), self
        )

    def write_summary(self, request: SummaryRequest) -> Proposal:
        """Have the model write a text for a memory, in a conversation of its own."""
        alone = Prompt(
            stable=request.instruction,
            memory="",
            schema=request.schema,
            said=(Message("task", request.material),),
            tool=WRITE,
        )
        reply = asked(self.backend, self.retry_policy.begin(), alone)
        if isinstance(reply, Proposal):
            return reply
        written = None if reply.problem else reply.request
        return Proposal(written, reply.usage, reply.problem, evidence=evidence_of(reply))


@dataclass
class LiveTurn:
    """One episode's conversation."""

    backend: Backend
    deadline: Deadline
    prompt: Prompt
    agent: LiveAgent

    def next_request(self) -> Proposal:
        """Ask the model; a model that gives no request costs an attempt and is asked again."""
        reply = asked(self.backend, self.deadline, self.prompt)
        if isinstance(reply, Proposal):
            return reply
        evidence = evidence_of(reply)
        if reply.request is not None:
            self._say(Message("request", request=reply.request))
        else:
            self._say(Message("words", reply.words))
        if reply.problem is None:
            return Proposal(reply.request, reply.usage, evidence=evidence)
        if reply.request is None:
            self._say(Message("correction", CORRECTION))
        else:
            self._say(Message("refusal", f"{reply.problem}. {CORRECTION}"))
        return Proposal(None, reply.usage, reply.problem, evidence=evidence)

    def tell(self, response: Response, reminder: str = "") -> None:
        """Hand the API's answer to the last request back."""
        self._say(Message("refusal", self.agent.prompter.refusal(response, reminder)))

    def _say(self, said: Message) -> None:
        self.prompt = replace(self.prompt, said=(*self.prompt.said, said))


def asked(backend: Backend, deadline: Deadline, prompt: Prompt) -> Reply | Proposal:
    """Return the model's reply, or what stands for it where the provider gave none.

    Raises ProviderError where no other request will do better either.
    """
    try:
        return deadline.ask(lambda timeout: backend.ask(prompt, timeout))
    except ProviderError as error:
        if error.fatal:
            raise
        return Proposal(None, Usage(), str(error), failed_by="provider")


def evidence_of(reply: Reply) -> dict[str, str | None]:
    """Return what an attempt keeps of the provider's words on its answer."""
    evidence = reply.evidence
    return {
        "model": evidence.model,
        "stop_reason": evidence.stop_reason,
        "request_id": evidence.request_id,
        "usage": "missing" if evidence.usage is None else "reported",
    }


def prompt(prompter: Prompter, task: Task, recalled: Sequence[Entry]) -> Prompt:
    """Return what a model is first sent for a task."""
    return Prompt(
        stable=prompter.stable(),
        memory=prompter.memory_block(recalled),
        schema=prompter.disclosed(task).request_schema,
        said=(Message("task", prompter.task(task)),),
    )
