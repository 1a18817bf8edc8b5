"""The live agent: one conversation logic over any backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from crossmem.agents.base import Proposal, TokensSource, Usage
from crossmem.agents.failures import ProviderError
from crossmem.agents.messages import WRITE, Backend, Message, Prompt, Reply
from crossmem.agents.prompts import Prompter
from crossmem.agents.retry import RetryPolicy
from crossmem.contract import Response
from crossmem.domains.base import Task
from crossmem.memory.entry import Entry
from crossmem.memory.memory import SummaryRequest

CORRECTION = "That was no request. Send one request that fits the schema, and nothing else."


def opening(prompter: Prompter, task: Task, recalled: Sequence[Entry]) -> Prompt:
    """Return what a model is first sent for a task."""
    return Prompt(
        stable=prompter.stable(),
        memory=prompter.memory_block(recalled),
        schema=prompter.disclosed(task).request_schema,
        messages=(Message("task", prompter.task(task)),),
    )


@dataclass
class LiveAgent:
    """An agent with a language model behind it."""

    backend: Backend
    prompter: Prompter
    retry_policy: RetryPolicy
    name: str
    tokens_source: TokensSource = "reported"

    def begin(self, task: Task, recalled: Sequence[Entry]) -> LiveTurn:
        """Start an episode and its clock."""
        return LiveTurn(self, opening(self.prompter, task, recalled), self.retry_policy.until())

    def write_summary(self, request: SummaryRequest) -> Proposal:
        """Have the model write a text for a memory, in a conversation of its own."""
        messages = (Message("task", request.material),)
        prompt = Prompt(request.instruction, "", request.schema, messages, WRITE)
        return self.ask(prompt, self.retry_policy.until())[0]

    def ask(self, prompt: Prompt, until: float) -> tuple[Proposal, Reply | None]:
        """Return what the model proposes and the reply it is read from, None where none came.

        Raises ProviderError where no other request will do better either.
        """
        try:
            reply = self.retry_policy.ask(lambda timeout: self.backend.ask(prompt, timeout), until)
        except ProviderError as error:
            if error.kind == "fatal":
                raise
            return Proposal(None, Usage(), str(error), failed_by="provider"), None
        request = None if reply.problem else reply.request
        return Proposal(request, reply.usage, reply.problem, evidence=reply.evidence), reply


@dataclass
class LiveTurn:
    """One episode's conversation; `until` is its deadline on the monotonic clock."""

    agent: LiveAgent
    prompt: Prompt
    until: float

    def next_request(self) -> Proposal:
        """Ask the model; a reply without a usable request is answered with a correction."""
        proposal, reply = self.agent.ask(self.prompt, self.until)
        if reply is None:
            return proposal
        if reply.request is None:
            self._add(Message("words", reply.words or "(no answer)"), Message("correction", CORRECTION))
        elif reply.problem is None:
            self._add(Message("request", request=reply.request))
        else:
            refusal = Message("refusal", f"{reply.problem}. {CORRECTION}")
            self._add(Message("request", request=reply.request), refusal)
        return proposal

    def tell(self, response: Response, reminder: str = "") -> None:
        """Add the API's answer to the last request."""
        self._add(Message("refusal", self.agent.prompter.refusal(response, reminder)))

    def _add(self, *messages: Message) -> None:
        self.prompt = replace(self.prompt, messages=(*self.prompt.messages, *messages))
