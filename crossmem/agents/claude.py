"""Claude through the Anthropic SDK: the Messages API with one forced tool, `submit_request`.

The tool's schema is the API's own request schema, so a request is never parsed out of prose. The SDK's
own retries are off: waiting is `patience.py`'s, bounded and in sight.
"""

from __future__ import annotations

from typing import Any, cast

import anthropic

from crossmem.agents.backend import (
    MAX_OUTPUT_TOKENS,
    Evidence,
    Prompt,
    ProviderError,
    Reply,
    Said,
    off_schema,
    status_error,
)
from crossmem.agents.base import Usage

TOOL = "submit_request"


class Claude:
    """A model of Anthropic's; key and address come from the standard environment variables."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.sdk = f"anthropic {anthropic.__version__}"
        self._client = anthropic.Anthropic(max_retries=0)

    def ask(self, prompt: Prompt, timeout: float) -> Reply:
        """Send the conversation once, for at most `timeout` seconds; raises ProviderError."""
        try:
            message = self._client.messages.create(
                model=self.model,
                max_tokens=MAX_OUTPUT_TOKENS,
                system=cast("Any", _system(prompt)),
                tools=[
                    {
                        "name": TOOL,
                        "description": "Send one request to the API.",
                        "input_schema": prompt.schema,
                    }
                ],
                tool_choice={"type": "tool", "name": TOOL, "disable_parallel_tool_use": True},
                messages=cast(
                    "Any", [_message(number, said) for number, said in enumerate(prompt.said)]
                ),
                timeout=timeout,
            )
        except anthropic.APIStatusError as error:
            raise status_error(
                error.status_code, error.api_message or error.message, error.response.headers
            ) from None
        except anthropic.APIConnectionError as error:
            kind = "did not answer in time" if _timed_out(error) else "cannot be reached"
            raise ProviderError(f"the provider {kind}: {error.message}", transient=True) from None
        except anthropic.AnthropicError as error:
            raise ProviderError(f"no usable answer: {type(error).__name__}: {error}") from None
        return _reply(message, prompt.schema)


def _timed_out(error: anthropic.APIConnectionError) -> bool:
    return isinstance(error, anthropic.APITimeoutError)


def _system(prompt: Prompt) -> list[dict[str, Any]]:
    """The stable part first, marked for caching: tools and everything up to the mark are reused."""
    stable = {"type": "text", "text": prompt.stable, "cache_control": {"type": "ephemeral"}}
    return [stable, *([{"type": "text", "text": prompt.memory}] if prompt.memory else [])]


def _message(number: int, said: Said) -> dict[str, Any]:
    """Turn one entry into a message; a tool result answers the request just before it."""
    match said.kind:
        case "request":
            called: dict[str, Any] = {
                "type": "tool_use",
                "id": f"call_{number}",
                "name": TOOL,
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


def _reply(message: anthropic.types.Message, schema: dict[str, Any]) -> Reply:
    blocks = message.content or []
    called = next((block for block in blocks if block.type == "tool_use" and block.name == TOOL), None)
    words = "".join(block.text for block in blocks if block.type == "text")
    usage: Any = message.usage
    request = called.input if called else None
    problem = None
    if message.stop_reason != "tool_use" or called is None:
        problem = f"the model stopped with {message.stop_reason} and sent no whole request"
    elif miss := off_schema(request, schema):
        problem = miss
    return Reply(
        request=cast("dict[str, Any] | None", request if isinstance(request, dict) else None),
        words=words,
        problem=problem,
        usage=Usage(
            input=getattr(usage, "input_tokens", None) or 0,
            output=getattr(usage, "output_tokens", None) or 0,
            cache_read=getattr(usage, "cache_read_input_tokens", None) or 0,
            cache_write=getattr(usage, "cache_creation_input_tokens", None) or 0,
        ),
        evidence=Evidence(
            model=message.model,
            stop_reason=message.stop_reason,
            request_id=message._request_id,  # noqa: SLF001 (public by the SDK's documentation)
            usage=usage.model_dump(exclude_none=True) if usage is not None else None,
        ),
    )
