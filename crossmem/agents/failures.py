"""A provider's failure: its kind, which alone decides what follows, and a message without keys.

One generator wrote the Anthropic and the OpenAI SDK, so they fail alike; a failure is recognised here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from crossmem.errors import CrossmemError

if TYPE_CHECKING:
    import httpx
    from pydantic import BaseModel

    Answer = TypeVar("Answer", bound=BaseModel)

FailureKind = Literal["transient", "unreachable", "refused", "fatal"]
"""`transient`: worth waiting for (rate limit, overload, time-out, lost connection). `unreachable`: the
same, and no connection came about at all. `refused`: the provider's failure in this episode alone.
`fatal`: no request will do better (key, credit, model), so the run stops."""

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY")
_SHORTEST_KEY = 8
"""A shorter value (`none`, `EMPTY`, given where no key is needed) is a word and no secret."""
_LONGEST_REASON = 300

_FATAL_STATUS = frozenset({401, 402, 403, 404})
_TRANSIENT_STATUS = frozenset({408, 409, 429})
_OF_THE_ACCOUNT = re.compile(
    r"credit balance|out of credits?|insufficient[_ -]?(quota|funds|balance|credits?)|payment required"
    r"|exceeded your (current )?(quota|budget)|quota (has been |is )?(exceeded|exhausted|used up)"
    r"|billing|prepaid"
    r"|(spend(ing)?|usage|monthly|budget|credit|account|organi[sz]ation|workspace|plan)\b[^.]{0,40}"
    r"\b(limit|cap|quota|budget|allowance)s?\b",
    re.IGNORECASE,
)
"""How providers say that the account may ask for nothing more, under a status that does not."""
_OF_A_RATE = re.compile(
    r"per[ -](second|minute|hour)|rate[ _-]?limit|\b[rt]pm\b|concurren", re.IGNORECASE
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
_NO_CONNECTION = {"ConnectError", "UnsupportedProtocol", "LocalProtocolError"}


class ProviderError(CrossmemError):
    """The provider gave no answer. `retry_after` is in seconds, None where it names no time.

    Never raised while an SDK's error is being handled: that one would be chained to it, and holds the
    request with its headers, so a verbose traceback would show the key.
    """

    def __init__(
        self, message: str, kind: FailureKind = "refused", retry_after: float | None = None
    ) -> None:
        super().__init__(redact(message))
        self.kind = kind
        self.retry_after = retry_after


def send(
    sdk: ModuleType,
    errors: type[Exception],
    create: Callable[..., object],
    expected: type[Answer],
    **request: Any,
) -> Answer:
    """Return `create(**request)`; raises ProviderError for what is no answer of the type `expected`.

    `errors` is the base class of all that the SDK raises.
    """
    try:
        answer = create(**request)
    except (errors, ValueError, RecursionError) as error:
        failure = _failure(sdk, error)
    else:
        if not isinstance(answer, expected):
            failure = _unusable(answer)
        elif error_inside := (answer.model_extra or {}).get("error"):
            failure = _failure_inside(error_inside)
        else:
            return answer
    raise failure  # here, where no SDK's error is being handled


def _failure(sdk: ModuleType, error: Exception) -> ProviderError:
    if isinstance(error, sdk.APIStatusError):
        return _refusal(error.response)
    if isinstance(error, sdk.APITimeoutError):
        return timeout_error()
    if isinstance(error, sdk.APIConnectionError):
        cause = error.__cause__
        reason = one_line(str(cause or "") or str(error))
        if type(cause).__name__ in _NO_CONNECTION:
            return ProviderError(f"the provider cannot be reached: {reason}", "unreachable")
        return ProviderError(f"the provider broke the connection off: {reason}", "transient")
    return _unusable(error)


def _refusal(response: httpx.Response) -> ProviderError:
    """Return the error for a response of a status other than success.

    Only status, body and `retry-after` are read of it; for 404 the address asked is said.
    """
    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = response.text
    asked = f" (asked {response.url})" if response.status_code == 404 else ""
    retry_after = _seconds(response.headers.get("retry-after", ""))
    return _status_error(response.status_code, f"{said_by(body)}{asked}", retry_after)


def _failure_inside(error: Any) -> ProviderError:
    """Return the error that an answer of status 200 holds in place of a reply."""
    named = error if isinstance(error, Mapping) else {}
    numbers = (named.get(name) for name in ("status", "code"))
    types = (_STATUS_OF.get(str(named.get(name))) for name in ("type", "code"))
    status = next((n for n in numbers if isinstance(n, int)), 0) or next(filter(None, types), 500)
    return _status_error(status, f"{said_by(error)} (inside a 200)", None)


def _status_error(status: int, message: str, retry_after: float | None) -> ProviderError:
    later = "" if retry_after is None else f" (to be asked again in {retry_after:.1f} s)"
    text = f"the provider answered {status}: {one_line(message)}{later}"
    return ProviderError(text, _kind(status, message), retry_after)


def _kind(status: int, message: str) -> FailureKind:
    spent = _OF_THE_ACCOUNT.search(message) and not _OF_A_RATE.search(message)
    if spent or status in _FATAL_STATUS:
        return "fatal"
    return "transient" if status in _TRANSIENT_STATUS or status >= 500 else "refused"


def said_by(body: Any) -> str:
    """Return what the body of a refusal says, whatever its shape.

    >>> said_by({"error": {"message": "too long", "type": "invalid"}}), said_by([{"msg": "odd"}])
    ('too long; [invalid]', 'odd')
    """
    found = list(dict.fromkeys(_words(body)))
    return "; ".join(found) or (json.dumps(body, ensure_ascii=False) if body else "no reason given")


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


def timeout_error() -> ProviderError:
    """Return the error for an answer that did not come in time."""
    return ProviderError("the provider did not answer in time", "transient")


def _unusable(what: object) -> ProviderError:
    """Return the error for an answer that is none of the provider's API."""
    return ProviderError(f"the provider sent no usable answer: {one_line(str(what))}")


def one_line(text: str) -> str:
    """Return the first line of `text` that says something, cut to a readable length."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    return first if len(first) <= _LONGEST_REASON else f"{first[:_LONGEST_REASON]} ..."


def redact(text: str) -> str:
    """Return `text` with each provider's key replaced by the name of its environment variable."""
    for variable in KEY_VARIABLES:
        value = os.environ.get(variable, "").strip()
        if len(value) >= _SHORTEST_KEY:
            text = text.replace(value, f"[{variable}]")
    return text


def _seconds(value: str) -> float | None:
    """Read a Retry-After header: seconds, or an HTTP date; None for anything else."""
    with suppress(ValueError):
        return max(0.0, float(value))
    with suppress(ValueError, TypeError):
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    return None
