"""The scripted agent of mock mode: deterministic, no model behind it.

It sends the Input Data as given, amended by matching memory, and on a refusal merges the suggested
values. Its prompts are the live agent's, its tokens are estimated from them. Two profiles mimic what
live models were seen to do with the memory block: `haiku` follows it in either hint style; `sonnet`
sides with the base instruction under `append`, so that memory is read but changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from crossmem.agents.base import Proposal, TokensSource, Usage
from crossmem.agents.prompts import Prompter, estimate_tokens
from crossmem.contract import Response
from crossmem.domains.base import Body, Task, merged
from crossmem.errors import InputError
from crossmem.memory.entry import Entry, canonical_json
from crossmem.memory.memory import SummaryRequest
from crossmem.settings import HintStyle

PROFILES: dict[str, frozenset[HintStyle]] = {
    "haiku": frozenset({"append", "amendment"}),
    "sonnet": frozenset({"amendment"}),
}
"""Under which hint styles a profile follows the memory block."""


def profile(model: str) -> str:
    """Return the profile that mimics `model`; raises InputError where there is none.

    >>> profile("claude-sonnet-4-6")
    'sonnet'
    """
    for name in PROFILES:
        if model == name or model.startswith(f"claude-{name}"):
            return name
    choices = ", ".join(PROFILES)
    raise InputError(
        f"model {model!r} has no scripted profile; with mock=True choose one of: {choices}"
    )


def same_as_haiku(model: str, hint_style: str) -> str:
    """Return a sentence where another profile than haiku does what haiku does, else nothing.

    >>> same_as_haiku("sonnet", "append")
    ''
    """
    name = profile(model)
    if name == "haiku" or hint_style not in PROFILES[name]:
        return ""
    return (
        f"The scripted profiles differ under the hint style append alone: under {hint_style} {name} "
        "does what haiku does, so this says nothing of either model."
    )


@dataclass
class ScriptedAgent:
    """An agent without a model."""

    model: str
    prompter: Prompter
    tokens_source: TokensSource = "estimated"
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = f"mock-{profile(self.model)}"

    def begin(self, task: Task, recalled: Sequence[Entry]) -> ScriptedTurn:
        """Start an episode."""
        follows = self.prompter.hint_style in PROFILES[profile(self.model)]
        domain = self.prompter.domain
        body = domain.apply(recalled if follows else (), task).body
        prompt = [
            self.prompter.stable(),
            self.prompter.schema(task),
            self.prompter.memory_block(recalled),
            self.prompter.task(task),
        ]
        return ScriptedTurn(self.prompter, body, sum(map(estimate_tokens, prompt)))

    def write_summary(self, request: SummaryRequest) -> None:
        """Write nothing."""


@dataclass
class ScriptedTurn:
    """One episode of the scripted agent; `read` is the estimated length of the conversation so far."""

    prompter: Prompter
    body: Body
    read: int

    def next_request(self) -> Proposal:
        """Propose the current body."""
        written = estimate_tokens(canonical_json(self.body))
        usage = Usage(input=self.read, output=written)
        self.read += written
        return Proposal(self.body, usage)

    def tell(self, response: Response, reminder: str = "") -> None:
        """Merge what was suggested; a reminder is read, but what the API says now goes before it."""
        self.body = merged(self.body, response.suggestions)
        self.read += estimate_tokens(self.prompter.refusal(response, reminder))
