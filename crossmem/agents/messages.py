"""A conversation with a language model in a neutral form, and the reply to it.

A provider's file turns it into that provider's messages and back; what goes wrong is in `failures`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from crossmem.agents.base import Usage
from crossmem.agents.failures import one_line
from crossmem.domains.base import Body

MAX_OUTPUT_TOKENS = 2048


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    `task` and `correction` are the user's words, `request` the model's request, `words` what it said in
    place of one, `refusal` the answer to its last request.
    """

    kind: Literal["task", "request", "words", "refusal", "correction"]
    text: str = ""
    request: Body = field(default_factory=dict)

    @property
    def role(self) -> Literal["assistant", "user"]:
        """Who says it."""
        return "assistant" if self.kind in {"request", "words"} else "user"


@dataclass(frozen=True)
class Tool:
    """What the model's answer is called, what it is for, and how long it may be, in tokens."""

    name: str
    description: str
    max_tokens: int = MAX_OUTPUT_TOKENS


SUBMIT = Tool("submit_request", "Send one request to the API.")
WRITE = Tool("keep_summary", "Keep what you have written.", 512)


@dataclass(frozen=True)
class Prompt:
    """All that a model is sent: stable part, memory block, the answer's schema, the conversation."""

    stable: str
    memory: str
    schema: dict[str, Any]
    messages: tuple[Message, ...]
    tool: Tool = SUBMIT


@dataclass(frozen=True)
class Reply:
    """A request, or the `problem` with what came in its place; `words` is the text that came.

    `evidence` is what the provider says of the answer: model served, stop reason, request id, and
    whether usage was `reported` or `missing`. `reported` is that usage as it stood in the answer.
    """

    request: Body | None
    problem: str | None
    words: str
    usage: Usage
    evidence: dict[str, str | None]
    reported: dict[str, Any] | None


class Backend(Protocol):
    """One model behind a provider's SDK; several threads may ask it at once.

    `model` is the id that the provider is asked for, `sdk` the SDK and its version, `counts_schema`
    whether the provider's input tokens are sure to include the request schema.
    """

    model: str
    sdk: str
    counts_schema: bool

    def ask(self, prompt: Prompt, timeout: float) -> Reply:
        """Send the conversation once, waiting at most `timeout` seconds for each part of the answer.

        Raises ProviderError.
        """


BackendFactory = Callable[[int], Backend]
"""Returns the backend of a replicate."""


def read_request(sent: Any, schema: dict[str, Any]) -> tuple[Body | None, str | None]:
    """Return the request that a model sent and the problem with it, if there is one.

    What is no JSON object (NaN and half a surrogate pair are not JSON) is no request at all.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    if not isinstance(sent, dict):
        return None, f"the request is {type(sent).__name__}, not an object"
    try:
        json.dumps(sent, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return None, f"the request is no JSON: {one_line(str(error))}"
    miss = best_match(Draft202012Validator(schema).iter_errors(sent))
    if miss is None:
        return sent, None
    return sent, f"the request misses the schema at {miss.json_path}: {one_line(miss.message)}"


def stopped_early(stop_reason: str | None) -> str:
    """Return the problem with an answer that ended before, or without, a request."""
    return f"the model stopped with {stop_reason} and sent no whole request"


def reply(
    answer: Any,
    stop_reason: Any,
    words: str,
    read: tuple[Body | None, str | None],
    usage_of: Callable[[dict[str, Any]], Usage],
) -> Reply:
    """Return the reply that an SDK's `answer` holds.

    `read` is what `read_request` returns; `usage_of` reads the usage as reported, which may lack any
    member. Usage that is no object, or without a single token, counts as missing.
    """
    dump = getattr(answer.usage, "model_dump", None)  # of what is no object, the SDKs make no model
    reported = dump(exclude_none=True, warnings=False) if dump else None
    usage = usage_of(reported or {})
    evidence = {
        "model": answer.model,
        "stop_reason": stop_reason,
        "request_id": answer._request_id,  # noqa: SLF001 (public by the SDKs' documentation)
        "usage": "missing" if usage == Usage() else "reported",
    }
    evidence = {name: valid_text(value) or None for name, value in evidence.items()}
    return Reply(*read, words, usage, evidence, reported)


def token_count(count: Any) -> int:
    """Return a token count as a provider reports it; 0 for what is no count."""
    return max(0, int(count)) if isinstance(count, int | float) and math.isfinite(count) else 0


def valid_text(text: Any) -> str:
    """Return what a provider says as text that can be written to a file and sent again."""
    return str(text or "").encode(errors="replace").decode()
