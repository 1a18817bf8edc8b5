"""What a language model is to the study: a prompt in, a request or the reason for none out.

The conversation is kept in a neutral form; a backend turns it into its provider's messages. Providers'
errors become `ProviderError`, which carries what is safe to show and nothing else: a status, a kind and
the provider's message with any key in it blotted out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from crossmem.agents.base import Usage
from crossmem.domains.base import Body
from crossmem.errors import CrossmemError

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY")

MAX_OUTPUT_TOKENS = 2048


@dataclass(frozen=True)
class Said:
    """One entry of a conversation.

    `task` and `correction` are the user's words, `request` the model's request, `words` what it said in
    place of one, `refusal` the answer to its last request.
    """

    kind: Literal["task", "request", "words", "refusal", "correction"]
    text: str = ""
    request: Body = field(default_factory=dict)


@dataclass(frozen=True)
class Prompt:
    """All that a model is sent: stable part, memory block, request schema, and what was said."""

    stable: str
    memory: str
    schema: dict[str, Any]
    said: tuple[Said, ...]


@dataclass(frozen=True)
class Evidence:
    """What the provider says of an answer."""

    model: str | None
    stop_reason: str | None
    request_id: str | None
    usage: dict[str, Any] | None
    """The usage fields as reported, None where there were none."""


@dataclass(frozen=True)
class Reply:
    """An answer: a request, or the `problem` with what came in its place."""

    request: Body | None
    words: str
    problem: str | None
    usage: Usage
    evidence: Evidence


class ProviderError(CrossmemError):
    """The provider gave no answer.

    `transient`: worth waiting for (rate limit, overload, time-out, lost connection). `fatal`: no
    request will do better (key, credit, model). Neither: this request was refused.
    """

    def __init__(
        self,
        message: str,
        *,
        transient: bool = False,
        fatal: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(blotted(message))
        self.transient = transient
        self.fatal = fatal
        self.retry_after = retry_after


class Backend(Protocol):
    """A provider's SDK behind the neutral conversation."""

    model: str
    sdk: str

    def ask(self, prompt: Prompt, timeout: float) -> Reply:
        """Send the conversation once, for at most `timeout` seconds; raises ProviderError."""


FATAL_STATUS = frozenset({401, 402, 403, 404})
TRANSIENT_STATUS = frozenset({408, 409, 429})


def status_error(status: int, message: str, headers: Any) -> ProviderError:
    """Return the error for an HTTP status; `headers` is asked for `retry-after` alone."""
    first = next((line.strip() for line in message.splitlines() if line.strip()), "")
    return ProviderError(
        f"the provider answered {status}: {first}",
        transient=status in TRANSIENT_STATUS or status >= 500,
        fatal=status in FATAL_STATUS or "credit balance" in message.lower(),
        retry_after=_seconds(headers.get("retry-after")),
    )


def blotted(text: str) -> str:
    """Return `text` without the value of any provider's key."""
    for variable in KEY_VARIABLES:
        if value := os.environ.get(variable):
            text = text.replace(value, f"[{variable}]")
    return text


def off_schema(request: Any, schema: dict[str, Any]) -> str | None:
    """Return why `request` misses the request schema, None if it does not."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    if not isinstance(request, dict):
        return f"the request is {type(request).__name__}, not an object"
    error = best_match(Draft202012Validator(schema).iter_errors(request))
    return f"the request misses the schema at {error.json_path}: {error.message}" if error else None


def _seconds(value: str | None) -> float | None:
    """Read a Retry-After header: seconds, or an HTTP date."""
    from email.utils import parsedate_to_datetime

    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        from datetime import UTC, datetime

        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None
