"""Claude through the Anthropic SDK: the Messages API with one forced tool.

The tool's schema is the API's own request schema, so a request is never parsed out of prose.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anthropic
from anthropic.types import Message as Answer

from crossmem.agents.base import Usage
from crossmem.agents.failures import send
from crossmem.agents.messages import (
    BackendFactory,
    Message,
    Prompt,
    Reply,
    read_request,
    reply,
    stopped_early,
    token_count,
    valid_text,
)
from crossmem.errors import InputError

if TYPE_CHECKING:
    from crossmem.settings import RunSettings

_ADDRESS = "https://api.anthropic.com"
_USAGE = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""The members of `Usage`, in its order."""


def check(settings: RunSettings) -> None:
    """Raise InputError where there is no key."""
    if os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN"):
        return
    model, other = settings.model, ""
    if not model.startswith("claude") and model not in {"haiku", "sonnet", "opus"}:
        other = f". A model of an OpenAI-compatible endpoint is named openai/{model}"
    raise InputError(
        f"mock=False asks for the live model {model!r}, and there is no key for it. Three ways on: set "
        "ANTHROPIC_API_KEY; run with mock=True for the scripted agent; or model=local for a small "
        f"model on this machine (`make local` installs it){other}"
    )


@contextmanager
def backends(_: RunSettings, model: str) -> Iterator[BackendFactory]:
    """Yield what makes a replicate's backend: one for all, for there is no seed."""
    with anthropic.Anthropic(
        max_retries=0, base_url=os.environ.get("ANTHROPIC_BASE_URL") or _ADDRESS
    ) as client:
        claude = Claude(client, model)
        yield lambda _: claude


@dataclass
class Claude:
    """A model of Anthropic's; key and address come from the standard environment variables."""

    client: anthropic.Anthropic
    model: str
    sdk: str = f"anthropic {anthropic.__version__}"
    counts_schema: bool = True

    def ask(self, prompt: Prompt, timeout: float) -> Reply:
        """Send the conversation once; see `Backend`."""
        tool = prompt.tool
        answer = send(
            anthropic,
            anthropic.AnthropicError,
            self.client.messages.create,
            Answer,
            model=self.model,
            max_tokens=tool.max_tokens,
            system=_system(prompt),
            tools=[{"name": tool.name, "description": tool.description, "input_schema": prompt.schema}],
            tool_choice={"type": "tool", "name": tool.name, "disable_parallel_tool_use": True},
            messages=[
                {"role": each.role, "content": _content(number, each, tool.name)}
                for number, each in enumerate(prompt.messages)
            ],
            timeout=timeout,
        )
        return _reply(answer, prompt)


def _system(prompt: Prompt) -> list[dict[str, Any]]:
    """The stable part first, marked for caching: tools and everything up to the mark are reused."""
    stable = {"type": "text", "text": prompt.stable, "cache_control": {"type": "ephemeral"}}
    return [stable, *([{"type": "text", "text": prompt.memory}] if prompt.memory else [])]


def _content(number: int, message: Message, tool: str) -> str | list[dict[str, Any]]:
    """Return what the provider reads of a message; a tool result answers the request before it."""
    if message.kind == "request":
        return [{"type": "tool_use", "id": f"call_{number}", "name": tool, "input": message.request}]
    if message.kind == "refusal":
        result = {"type": "tool_result", "tool_use_id": f"call_{number - 1}", "is_error": True}
        return [{**result, "content": message.text}]
    return message.text


def _reply(answer: Answer, prompt: Prompt) -> Reply:
    content: list[Any] = answer.content if isinstance(answer.content, list) else []
    blocks = [block for block in content if hasattr(block, "type")]
    calls = (block for block in blocks if block.type == "tool_use" and block.name == prompt.tool.name)
    call = next(calls, None)
    request, problem = read_request(call.input, prompt.schema) if call else (None, None)
    if answer.stop_reason != "tool_use" or call is None:
        problem = stopped_early(answer.stop_reason)
    words = valid_text("".join(str(block.text or "") for block in blocks if block.type == "text"))
    return reply(answer, answer.stop_reason, words, (request, problem), _usage)


def _usage(reported: dict[str, Any]) -> Usage:
    return Usage(*(token_count(reported.get(name)) for name in _USAGE))
