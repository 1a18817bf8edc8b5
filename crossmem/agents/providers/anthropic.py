"""Claude through the Anthropic SDK: the Messages API with one forced tool.

The tool's schema is the API's own request schema, so a request is never parsed out of prose. The SDK's
own retries are off: waiting is `patience.py`'s, bounded and in sight.
"""

from __future__ import annotations

import os
from typing import Any, cast

import anthropic

from crossmem.agents.base import Usage
from crossmem.agents.messages import (
    Evidence,
    Message,
    Prompt,
    ProviderError,
    Reply,
    connection_error,
    error_inside,
    read_request,
    refused,
    text,
    tokens,
    unusable,
)


class Claude:
    """A model of Anthropic's; key and address come from the standard environment variables.

    May be used by several threads at once.
    """

    counts_schema = True

    def __init__(self, model: str) -> None:
        self.model = model
        self.sdk = f"anthropic {anthropic.__version__}"
        address = os.environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
        self._client = anthropic.Anthropic(max_retries=0, base_url=address)

    def close(self) -> None:
        """Close the connections to the provider."""
        self._client.close()

    def ask(self, prompt: Prompt, timeout: float) -> Reply:
        """Send the conversation once, waiting at most `timeout` seconds for each part of the answer.

        Raises ProviderError.
        """
        try:
            message = self._client.messages.create(
                model=self.model,
                max_tokens=prompt.tool.max_tokens,
                system=cast("Any", _system(prompt)),
                tools=[
                    {
                        "name": prompt.tool.name,
                        "description": prompt.tool.description,
                        "input_schema": prompt.schema,
                    }
                ],
                tool_choice={
                    "type": "tool",
                    "name": prompt.tool.name,
                    "disable_parallel_tool_use": True,
                },
                messages=cast(
                    "Any",
                    [
                        _message(number, said, prompt.tool.name)
                        for number, said in enumerate(prompt.said)
                    ],
                ),
                timeout=timeout,
            )
        except (anthropic.AnthropicError, ValueError, RecursionError) as error:
            failure = _failure(error)
        else:
            known = isinstance(message, anthropic.types.Message)
            inside = error_inside(message.model_extra or {}) if known else None
            if known and inside is None:
                return _reply(message, prompt)
            failure = inside or unusable(message)
        raise failure


def _failure(error: Exception) -> ProviderError:
    if isinstance(error, anthropic.APIStatusError):
        return refused(error.response)
    if isinstance(error, anthropic.APIConnectionError):
        return connection_error(error, late=isinstance(error, anthropic.APITimeoutError))
    return unusable(error)


def _system(prompt: Prompt) -> list[dict[str, Any]]:
    """The stable part first, marked for caching: tools and everything up to the mark are reused."""
    stable = {"type": "text", "text": prompt.stable, "cache_control": {"type": "ephemeral"}}
    return [stable, *([{"type": "text", "text": prompt.memory}] if prompt.memory else [])]


def _message(number: int, said: Message, tool: str) -> dict[str, Any]:
    """Turn one entry into a message; a tool result answers the request just before it."""
    match said.kind:
        case "request":
            called: dict[str, Any] = {
                "type": "tool_use",
                "id": f"call_{number}",
                "name": tool,
                "input": said.request,
            }
            return {"role": "assistant", "content": [called]}
        case "refusal":
            block: dict[str, Any] = {
                "type": "tool_result",
                "tool_use_id": f"call_{number - 1}",
                "is_error": True,
                "content": said.text,
            }
            return {"role": "user", "content": [block]}
        case "words":
            return {"role": "assistant", "content": said.text or "(no answer)"}
        case _:
            return {"role": "user", "content": said.text}


def _reply(message: anthropic.types.Message, prompt: Prompt) -> Reply:
    blocks: list[Any] = message.content if isinstance(message.content, list) else []
    calls = (block for block in blocks if block.type == "tool_use" and block.name == prompt.tool.name)
    called = next(calls, None)
    request, problem = read_request(called.input, prompt.schema) if called else (None, None)
    if message.stop_reason != "tool_use" or called is None:
        problem = f"the model stopped with {message.stop_reason} and sent no whole request"
    usage: Any = message.usage
    return Reply(
        request=request,
        words=text("".join(block.text or "" for block in blocks if block.type == "text")),
        problem=problem,
        usage=Usage(
            input=tokens(getattr(usage, "input_tokens", None)),
            output=tokens(getattr(usage, "output_tokens", None)),
            cache_read=tokens(getattr(usage, "cache_read_input_tokens", None)),
            cache_write=tokens(getattr(usage, "cache_creation_input_tokens", None)),
        ),
        evidence=Evidence(
            model=message.model,
            stop_reason=message.stop_reason,
            request_id=message._request_id,  # noqa: SLF001 (public by the SDK's documentation)
            usage=usage.model_dump(exclude_none=True, warnings=False) if usage is not None else None,
        ),
    )
