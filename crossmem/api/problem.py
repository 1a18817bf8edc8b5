"""Everything the API says when it does not accept a request, as RFC 9457 problem documents.

This is the one place that knows how a refusal looks on the wire (schema v0.1, reconstructed from
what is public about Self-Reflective APIs, arXiv 2606.05037). No rule is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

Action = Literal[
    "ADD_INGREDIENT",
    "REPLACE_INCOMPATIBLE_INGREDIENT",
    "MODIFY_PARAMS",
    "CLARIFY_MEASUREMENT",
    "USE_SPECIFIC_BRAND",
]
VOCABULARY: tuple[str, ...] = get_args(Action)
"""The actions a suggestion may name, all of those reported for the upstream API.

The rules embedded here send three of them; ADD_INGREDIENT and CLARIFY_MEASUREMENT are never sent.
"""

Value = str | int | float | list[str] | None
"""A literal value in a request: what stands there now, or what to put there."""


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Parameters(_Said):
    """The literal fix: put `suggested_value` where `field` points."""

    field: Annotated[str, Field(description="JSON Pointer (RFC 6901) into the request sent.")]
    current_value: Annotated[Value, Field(description="What the request holds there, or null.")]
    suggested_value: Annotated[Value, Field(description="The literal value to put there.")]


class CacheHint(_Said):
    """Whether the fix holds beyond this request."""

    cacheable: bool
    scope: Annotated[
        Literal["table", "request"],
        Field(description="`table`: as long as that table's version; `request`: this one alone."),
    ]


class Suggestion(_Said):
    """One fix for one violation."""

    action: Annotated[Action, Field(description="What kind of fix this is.")]
    parameters: Parameters
    table: Annotated[str | None, Field(description="The table the value is from, if any.")]
    cache_hint: CacheHint


class RecoveryFeedback(_Said):
    """All the fixes that make the request acceptable, in a stable order."""

    type: Literal["recovery_guidance"] = "recovery_guidance"
    message: str
    suggestions: Annotated[list[Suggestion], Field(min_length=1)]


class FieldError(_Said):
    """One place where a body is off the schema."""

    field: Annotated[str, Field(description="JSON Pointer into the request sent.")]
    message: str


class Problem(_Said):
    """A request that failed for a reason other than policy: there is no fix to suggest."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = None


Versions = Annotated[
    dict[str, str], Field(description="Version of each table consulted for this request.")
]


class Refusal(_Said):
    """A well-formed request that breaks rules of policy, with the fixes."""

    type: Literal["about:blank"] = "about:blank"
    title: Literal["Validation failed"] = "Validation failed"
    status: Literal[422] = 422
    detail: str
    recovery_feedback: RecoveryFeedback
    table_versions: Versions


class FinalRefusal(_Said):
    """A well-formed request that breaks a rule of policy which no change of it would satisfy."""

    type: Literal["about:blank"] = "about:blank"
    title: Literal["Refused by policy"] = "Refused by policy"
    status: Literal[422] = 422
    detail: str
    table_versions: Versions


class PaymentProblem(_Said):
    """A request that policy accepts and the payment provider does not: no lesson in it."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    code: Annotated[str | None, Field(description="The provider's error code.")] = None
    decline_code: Annotated[str | None, Field(description="Why the card was declined.")] = None
    table_versions: Versions


@dataclass(frozen=True)
class Violation:
    """One rule broken at one place, and the value that would mend it.

    `rule` completes the sentence "<`subject`> ..." and is a fixed text: no value from a table or a
    request may stand in it. A subject without a name is its kind alone. `table` is the table the
    value is from; without one, it fits no other request. Nor does it where it is not `lasting`.
    """

    subject: tuple[str, str]
    rule: str
    action: Action
    field: str
    current: Value
    suggested: Value
    table: str | None = None
    lasting: bool = True

    def sentence(self, secrets: Sequence[str]) -> str:
        """Say what is wrong, naming the thing unless its name gives one of `secrets` away."""
        kind, name = self.subject
        named = f"{kind} '{name}' {self.rule}"
        given_away = any(secret in named.casefold() for secret in secrets)
        return f"{kind} {self.rule}" if given_away or not name else named

    def suggestion(self) -> Suggestion:
        """Return the fix as the API words it."""
        cacheable = self.table is not None and self.lasting
        return Suggestion(
            action=self.action,
            parameters=Parameters(
                field=self.field, current_value=self.current, suggested_value=self.suggested
            ),
            table=self.table,
            cache_hint=CacheHint(cacheable=cacheable, scope="table" if cacheable else "request"),
        )


@dataclass(frozen=True)
class Verdict:
    """What rules found in a request: violations in a stable order, and the tables consulted.

    `final` holds a sentence for each rule broken that no change of the request would satisfy.
    """

    violations: tuple[Violation, ...] = ()
    consulted: tuple[str, ...] = ()
    final: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations and not self.final

    @classmethod
    def of(cls, *verdicts: Verdict) -> Verdict:
        """Return what several rules found, as one verdict; a table is consulted once."""
        return cls(
            violations=tuple(found for verdict in verdicts for found in verdict.violations),
            consulted=tuple(dict.fromkeys(name for verdict in verdicts for name in verdict.consulted)),
            final=tuple(sentence for verdict in verdicts for sentence in verdict.final),
        )


class ProblemResponse(JSONResponse):
    """A JSON response that says it is a problem, and can carry any text a client sent."""

    media_type = "application/problem+json"

    def render(self, content: Any) -> bytes:
        """Encode `content`; a lone surrogate echoed from a request becomes a question mark."""
        return super().render(_encodable(content))


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    errors: list[FieldError] | None = None,
    headers: Mapping[str, str] | None = None,
) -> ProblemResponse:
    """Return the response for a failure that has no recovery feedback."""
    content = Problem(title=title, status=status, detail=detail, errors=errors)
    return ProblemResponse(content.model_dump(exclude_none=True), status, headers)


def refusal(violations: Sequence[Violation], table_versions: Mapping[str, str]) -> ProblemResponse:
    """Return the 422 for a request that breaks policy: one suggestion per violation, all at once.

    Neither `detail` nor `message` holds a suggested value: an agent must read the suggestions.
    """
    sentences = _sentences(violations)
    content = Refusal(
        detail=sentences[0],
        recovery_feedback=RecoveryFeedback(
            message=" ".join([*sentences, "Merge every suggested value and send it again."]),
            suggestions=[violation.suggestion() for violation in violations],
        ),
        table_versions=dict(table_versions),
    )
    return ProblemResponse(content.model_dump(), 422)


def refused(verdict: Verdict, table_versions: Mapping[str, str]) -> ProblemResponse:
    """Return the 422 for a verdict that does not accept.

    Where a rule is broken for good, nothing is suggested: mending the rest would not help.
    """
    if not verdict.final:
        return refusal(verdict.violations, table_versions)
    detail = " ".join([*verdict.final, *_sentences(verdict.violations)])
    content = FinalRefusal(detail=detail, table_versions=dict(table_versions))
    return ProblemResponse(content.model_dump(), 422)


def payment_problem(content: PaymentProblem) -> ProblemResponse:
    """Return the response for a payment that did not come about."""
    return ProblemResponse(content.model_dump(exclude_none=True), content.status)


def _sentences(violations: Sequence[Violation]) -> list[str]:
    secrets = [secret for violation in violations for secret in _texts(violation.suggested)]
    return list(dict.fromkeys(violation.sentence(secrets) for violation in violations))


def pointer(*parts: object) -> str:
    """Return the JSON Pointer (RFC 6901) of a place in a request.

    >>> pointer("ingredients", 0, "a/b")
    '/ingredients/0/a~1b'
    """
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


def _texts(value: Value) -> list[str]:
    """Return the texts, case folded, in which a suggested value could be told by prose."""
    if isinstance(value, list):
        return [text.casefold() for text in value]
    # 6.0 is found in a text as "6".
    return [repr(value).removesuffix(".0") if isinstance(value, float) else str(value).casefold()]


def _encodable(content: Any) -> Any:
    if isinstance(content, str):
        return content.encode("utf-8", "replace").decode("utf-8")
    if isinstance(content, dict):
        return {_encodable(key): _encodable(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_encodable(value) for value in content]
    return content
