"""What a language model is to the study: a prompt in, a request or the reason for none out.

The conversation is kept in a neutral form; a backend turns it into its provider's messages. Providers'
errors become `ProviderError`, which carries what is safe to show and nothing else: a status, a kind and
the provider's message with any key in it redact out.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from crossmem.agents.base import Usage
from crossmem.domains.base import Body
from crossmem.errors import CrossmemError

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY")

MAX_OUTPUT_TOKENS = 2048

_LONGEST_REASON = 300
_SHORTEST_KEY = 8
"""A shorter value (`none`, `EMPTY`, given where no key is needed) is a word and no secret."""


@dataclass(frozen=True)
class Message:
    """One entry of a conversation.

    `task` and `correction` are the user's words, `request` the model's request, `words` what it said in
    place of one, `refusal` the answer to its last request.
    """

    kind: Literal["task", "request", "words", "refusal", "correction"]
    text: str = ""
    request: Body = field(default_factory=dict)


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
    """All that a model is sent: stable part, memory block, the answer's schema, and what was said."""

    stable: str
    memory: str
    schema: dict[str, Any]
    said: tuple[Message, ...]
    tool: Tool = SUBMIT


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

    `transient`: worth waiting for (rate limit, overload, time-out, lost connection); `unreachable`
    besides, where no connection came about. `fatal`: no request will do better (key, credit, model).
    None of them: this request was refused.

    Never raised while an SDK's error is being handled: that one would be chained to it, and holds the
    request with its headers, so a verbose traceback would show the key.
    """

    def __init__(
        self,
        message: str,
        *,
        transient: bool = False,
        unreachable: bool = False,
        fatal: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(redact(message))
        self.transient = transient
        self.unreachable = unreachable
        self.fatal = fatal
        self.retry_after = retry_after


class Backend(Protocol):
    """A provider's SDK behind the neutral conversation."""

    @property
    def model(self) -> str:
        """The id that the provider is asked for."""

    @property
    def sdk(self) -> str:
        """The SDK and its version."""

    @property
    def counts_schema(self) -> bool:
        """Whether the request schema is sure to be a part of the input that the provider counts."""

    def ask(self, prompt: Prompt, timeout: float) -> Reply:
        """Send the conversation once, for at most `timeout` seconds; raises ProviderError."""


FATAL_STATUS = frozenset({401, 402, 403, 404})
TRANSIENT_STATUS = frozenset({408, 409, 429})
_OF_THE_ACCOUNT = re.compile(
    r"credit balance|out of credits?|insufficient[_ -]?(quota|funds|balance|credits?)|payment required"
    r"|exceeded your (current )?(quota|budget)|quota (has been |is )?(exceeded|exhausted|used up)"
    r"|billing|prepaid"
    r"|(spend(ing)?|usage|monthly|budget|credit|account|organi[sz]ation|workspace|plan)\b[^.]{0,40}"
    r"\b(limit|cap|quota|budget|allowance)\b",
    re.IGNORECASE,
)
"""How providers say that the account may ask for nothing more, under a status that does not."""
_OF_A_RATE = re.compile(
    r"per[ -](second|minute|hour)|rate[ -_]?limit|\b[rt]pm\b|concurren", re.IGNORECASE
)
"""How they say that it may ask again soon."""
_STATUS_OF = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 402,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The status that stands for a provider's type or code of error."""


def status_error(status: int, message: str, headers: Any) -> ProviderError:
    """Return the error for an HTTP status; `headers` is asked for `retry-after` alone."""
    spent = bool(_OF_THE_ACCOUNT.search(message)) and not _OF_A_RATE.search(message)
    retry_after = _seconds(headers.get("retry-after"))
    later = "" if retry_after is None else f" (to be asked again in {retry_after:.1f} s)"
    return ProviderError(
        f"the provider answered {status}: {one_line(message)}{later}",
        transient=not spent and (status in TRANSIENT_STATUS or status >= 500),
        fatal=spent or status in FATAL_STATUS,
        retry_after=retry_after,
    )


def refused(response: Any) -> ProviderError:
    """Return the error for an SDK's response of a status that is none of success.

    Only status, body and `retry-after` are read of it; for 404 the address asked is said.
    """
    try:
        body = response.json()
    except ValueError:
        body = response.text
    address = str(response.url) if response.status_code == 404 else ""
    return status_error(response.status_code, said_by(body, address), response.headers)


def error_inside(content: Mapping[str, Any]) -> ProviderError | None:
    """Return the error that an answer of status 200 holds in place of a reply, None for none."""
    error = content.get("error")
    if not error:
        return None
    named = error if isinstance(error, Mapping) else {}
    status = next((n for n in (named.get("status"), named.get("code")) if isinstance(n, int)), None)
    kinds = (str(named.get(name)) for name in ("type", "code"))
    known = next((_STATUS_OF[kind] for kind in kinds if kind in _STATUS_OF), 500)
    return status_error(status or known, f"{said_by(error)} (inside a 200)", {})


def said_by(body: Any, address: str = "") -> str:
    """Return what the body of a refusal says, whatever its shape, with the address asked if given."""
    found = list(dict.fromkeys(_words(body)))
    text = "; ".join(found) or (json.dumps(body, ensure_ascii=False) if body else "no reason given")
    return f"{text} (asked {address})" if address else text


def _words(body: Any) -> Iterator[str]:
    """Yield the messages in a body: those under the usual names, else every string of a list."""
    match body:
        case str() if body.strip():
            yield body.strip()
        case list():
            for item in body:
                yield from _words(item)
        case dict():
            for name in ("error", "message", "detail", "msg", "error_description", "reason", "errors"):
                yield from _words(body.get(name))
            for name in ("code", "type"):
                if isinstance(body.get(name), str) and "message" in body:
                    yield f"[{body[name]}]"


def connection_error(error: BaseException, *, late: bool) -> ProviderError:
    """Return the error for a request that got no whole answer; the SDK's `error` names its cause."""
    if late:
        return late_error()
    cause = error.__cause__
    unreachable = type(cause).__name__ in {"ConnectError", "UnsupportedProtocol", "LocalProtocolError"}
    kind = "cannot be reached" if unreachable else "broke the connection off"
    reason = str(cause or "") or str(error)
    return ProviderError(
        f"the provider {kind}: {one_line(reason)}", transient=True, unreachable=unreachable
    )


def late_error() -> ProviderError:
    """Return the error for an answer that did not come in time."""
    return ProviderError("the provider did not answer in time", transient=True)


def unusable(what: object) -> ProviderError:
    """Return the error for an answer that is none of the provider's API."""
    return ProviderError(f"the provider sent no usable answer: {one_line(str(what))}")


def one_line(text: str) -> str:
    """Return the first line of `text` that says something, cut to a readable length."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return first if len(first) <= _LONGEST_REASON else f"{first[:_LONGEST_REASON]} ..."


def redact(text: str) -> str:
    """Return `text` without the value of any provider's key."""
    for variable in KEY_VARIABLES:
        value = os.environ.get(variable, "").strip()
        if len(value) >= _SHORTEST_KEY:
            text = text.replace(value, f"[{variable}]")
    return text


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


def tokens(count: Any) -> int:
    """Return a token count as a provider reports it; 0 for what is no count."""
    return max(0, int(count)) if isinstance(count, int | float) and math.isfinite(count) else 0


def text(words: Any) -> str:
    """Return a model's words as text that can be written and sent again."""
    return str(words or "").encode(errors="replace").decode()


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
