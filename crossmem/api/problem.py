"""Everything the API says when it does not accept a request, as RFC 9457 problem documents.

This is the one place that knows how a refusal looks on the wire (schema v0.1, reconstructed from
what is public about Self-Reflective APIs, arXiv 2606.05037). No rule is decided here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

SuggestedAction = Literal[
    "ADD_INGREDIENT",
    "REPLACE_INCOMPATIBLE_INGREDIENT",
    "MODIFY_PARAMS",
    "CLARIFY_MEASUREMENT",
    "USE_SPECIFIC_BRAND",
]
ACTIONS: tuple[str, ...] = get_args(SuggestedAction)
"""The actions a suggestion may name, all of those reported for the upstream API.

The rules embedded here send three of them; ADD_INGREDIENT and CLARIFY_MEASUREMENT are never sent.
"""

Value = str | int | float | list[str] | None
"""A literal value in a request: what stands there now, or what to put there."""


class _Answered(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Parameters(_Answered):
    """The literal fix: put `suggested_value` where `field` points."""

    field: Annotated[str, Field(description="JSON Pointer (RFC 6901) into the request sent.")]
    current_value: Annotated[Value, Field(description="What the request holds there, or null.")]
    suggested_value: Annotated[Value, Field(description="The literal value to put there.")]


class CacheHint(_Answered):
    """Whether the fix holds beyond this request."""

    cacheable: bool
    scope: Annotated[
        Literal["table", "request"],
        Field(description="`table`: as long as that table's version; `request`: this one alone."),
    ]


class Suggestion(_Answered):
    """One fix for one violation."""

    action: Annotated[SuggestedAction, Field(description="What kind of fix this is.")]
    parameters: Parameters
    table: Annotated[str | None, Field(description="The table the value is from, if any.")]
    cache_hint: CacheHint


class RecoveryFeedback(_Answered):
    """All the fixes that make the request acceptable, in a stable order."""

    type: Literal["recovery_guidance"] = "recovery_guidance"
    message: str
    suggestions: Annotated[list[Suggestion], Field(min_length=1)]


class FieldError(_Answered):
    """One place where a body is off the schema."""

    field: Annotated[str, Field(description="JSON Pointer into the request sent.")]
    message: str


class _Document(_Answered):
    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str


class Problem(_Document):
    """A request that failed for a reason other than policy: there is no fix to suggest."""

    errors: list[FieldError] | None = None


Versions = Annotated[
    dict[str, str], Field(description="Version of each table consulted for this request.")
]


class Refusal(_Document):
    """A well-formed request that breaks rules of policy, with the fixes."""

    title: Literal["Validation failed"] = "Validation failed"
    status: Literal[422] = 422
    recovery_feedback: RecoveryFeedback
    table_versions: Versions


class FinalRefusal(_Document):
    """A well-formed request that breaks a rule of policy which no change of it would satisfy."""

    title: Literal["Refused by policy"] = "Refused by policy"
    status: Literal[422] = 422
    table_versions: Versions


class PaymentProblem(_Document):
    """A request that policy accepts and the payment provider does not: no lesson in it."""

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
    field: str
    current: Value
    suggested: Value
    table: str | None = None
    action: SuggestedAction = "MODIFY_PARAMS"
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


@dataclass
class PolicyVerdict:
    """What rules found in a request, each adding to it: violations in a stable order, tables consulted.

    `final` holds a sentence for each rule broken that no change of the request would satisfy.
    """

    violations: list[Violation] = field(default_factory=list)
    consulted: list[str] = field(default_factory=list)
    final: list[str] = field(default_factory=list)

    @property
    def accepted(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations and not self.final

    def add(self, violation: Violation) -> None:
        """Note a broken rule."""
        self.violations.append(violation)

    def consult(self, table: str) -> None:
        """Note that a rule looked at `table`, passed or not."""
        if table not in self.consulted:
            self.consulted.append(table)


class ProblemResponse(JSONResponse):
    """A JSON response that says it is a problem, and can carry any text a client sent."""

    media_type = "application/problem+json"

    def render(self, content: Any) -> bytes:
        """Encode `content`; a lone surrogate echoed from a request becomes a question mark."""
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


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


def refused(verdict: PolicyVerdict, table_versions: dict[str, str]) -> ProblemResponse:
    """Return the 422 for a request that breaks policy: one suggestion per violation, all at once.

    Neither `detail` nor `message` holds a suggested value: an agent must read the suggestions. Where
    a rule is broken for good, nothing is suggested: mending the rest would not help.
    """
    sentences = _sentences(verdict.violations)
    content: Refusal | FinalRefusal
    if verdict.final:
        detail = " ".join([*verdict.final, *sentences])
        content = FinalRefusal(detail=detail, table_versions=table_versions)
    else:
        feedback = RecoveryFeedback(
            message=" ".join([*sentences, "Merge every suggested value and send it again."]),
            suggestions=[violation.suggestion() for violation in verdict.violations],
        )
        content = Refusal(
            detail=sentences[0], recovery_feedback=feedback, table_versions=table_versions
        )
    return ProblemResponse(content.model_dump(), 422)


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
