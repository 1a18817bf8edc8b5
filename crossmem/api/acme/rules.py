"""The policies of Acme billing as pure functions over a request and the tables, and their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    model_validator,
)

from crossmem.api.acme.requests import (
    BillingInterval,
    Charge,
    ChargeRequest,
    PlanId,
    RefundRequest,
    Seats,
    StripeReason,
    Tier,
)
from crossmem.api.fields import Text
from crossmem.api.payments.cards import CARDS, Funding
from crossmem.api.problem import PolicyVerdict, Violation
from crossmem.api.tables import ServedTables, TableSpec

FUNDING = "funding_policy"
ENTERPRISE = "enterprise_policy"
PROMO = "promo_eligibility"
CSM = "active_csm_codes"
REFUND = "refund_policy"

REASONS: tuple[str, ...] = get_args(StripeReason)


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class FundingRow(_Row):
    """`funding_policy`, by tier: the funding types it accepts, and the card to suggest."""

    accepts: list[Funding]
    use: str

    @model_validator(mode="after")
    def _suggests_what_it_accepts(self) -> Self:
        if self.use not in CARDS or CARDS[self.use].funding not in self.accepts:
            raise ValueError(f"suggests {self.use!r}, which it does not accept")
        return self


class PromoRow(_Row):
    """`promo_eligibility`, by code: the plans it is for, and what came after it."""

    plans: list[PlanId]
    stackable: bool
    replaced_by: Text | None


class EnterpriseTerms(_Row):
    """`enterprise_policy`: the interval and the least number of seats of the enterprise tier."""

    billing_interval: Annotated[BillingInterval, Field(alias="enterprise.billing_interval")]
    seats: Annotated[Seats, Field(alias="enterprise.seats")]


class RefundTerms(BaseModel):
    """`refund_policy`: window and limit; its other rows, `reason.<ours>`, give Stripe's reason."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)
    __pydantic_extra__: dict[Annotated[str, Field(pattern=r"^reason\..")], StripeReason]

    window_days: Annotated[int, Field(ge=0)]
    max_amount: Charge


def _as_terms(model: type[BaseModel]) -> TypeAdapter[Any]:
    """Return the type of rows that belong together: a dict that `model` can read."""

    def check(rows: dict[str, JsonValue]) -> dict[str, JsonValue]:
        model.model_validate(rows)
        return rows

    return TypeAdapter(Annotated[dict[str, JsonValue], AfterValidator(check)])


EveryTier = Annotated[dict[Tier, FundingRow], Field(min_length=len(get_args(Tier)))]

SPECS = (
    TableSpec(FUNDING, "dict", TypeAdapter(EveryTier)),
    TableSpec(ENTERPRISE, "dict", _as_terms(EnterpriseTerms)),
    TableSpec(PROMO, "dict", TypeAdapter(dict[Text, PromoRow])),
    TableSpec(CSM, "dict", TypeAdapter(dict[PlanId, Text])),
    TableSpec(REFUND, "dict", _as_terms(RefundTerms)),
)


def judge_charge(request: ChargeRequest, tables: ServedTables) -> PolicyVerdict:
    """Check a charge against all policies: funding, enterprise, promo, csm."""
    verdict = PolicyVerdict()
    for check in (_funding, _enterprise, _promo, _csm):
        check(request, tables, verdict)
    return verdict


def _funding(request: ChargeRequest, tables: ServedTables, verdict: PolicyVerdict) -> None:
    """Each tier accepts some funding types only; a token that is no known card has none."""
    verdict.consult(FUNDING)
    row: FundingRow = tables[FUNDING].rows[request.tier]
    sent = request.payment_method
    if sent not in CARDS or CARDS[sent].funding not in row.accepts:
        subject, rule = ("Payment method", sent), "does not have a funding type that this tier accepts."
        verdict.add(Violation(subject, rule, "/payment_method", sent, row.use, FUNDING))


def _enterprise(request: ChargeRequest, tables: ServedTables, verdict: PolicyVerdict) -> None:
    """The enterprise tier has terms of its own; for other tiers the table is not consulted."""
    if request.tier != "enterprise":
        return
    verdict.consult(ENTERPRISE)
    terms = EnterpriseTerms.model_validate(tables[ENTERPRISE].rows)
    sent, wanted = request.billing_interval, terms.billing_interval
    if sent != wanted:
        rule = "is not the one in the terms of this tier."
        subject: tuple[str, str] = ("Billing interval", sent)
        verdict.add(Violation(subject, rule, "/billing_interval", sent, wanted, ENTERPRISE))
    if request.seats < terms.seats:
        rule = "is under the least in the terms of this tier."
        subject = ("The number of seats", "")
        verdict.add(Violation(subject, rule, "/seats", request.seats, terms.seats, ENTERPRISE))


def _promo(request: ChargeRequest, tables: ServedTables, verdict: PolicyVerdict) -> None:
    """Every code must be for the plan, and stand alone unless it is stackable.

    One suggestion mends the whole list. Without codes the table is not consulted.
    """
    sent, rows = request.promo_codes, tables[PROMO].rows
    if not sent:
        return
    verdict.consult(PROMO)
    mended = _mended(sent, request.plan_id, rows)
    if mended == sent:
        return
    wrong = next((code for code in sent if not _eligible(code, request.plan_id, rows)), None)
    subject = ("Promo codes", "") if wrong is None else ("Promo code", wrong)
    rule = "cannot be combined like this." if wrong is None else "is not eligible for this plan."
    verdict.add(Violation(subject, rule, "/promo_codes", sent, mended, PROMO))


def _mended(sent: list[str], plan: PlanId, rows: Mapping[str, PromoRow]) -> list[str]:
    """Return the codes that may stay: replaced or left out, each once, the first one deciding.

    Where the first that stays is not stackable it stays alone; else every stackable one stays.
    """
    heirs = (_heir(code, plan, rows) for code in sent)
    eligible = list(dict.fromkeys(code for code in heirs if code is not None))
    if eligible and not rows[eligible[0]].stackable:
        return eligible[:1]
    return [code for code in eligible if rows[code].stackable]


def _heir(code: str, plan: PlanId, rows: Mapping[str, PromoRow]) -> str | None:
    """Return the code itself, or the first of those that replaced it, that is for the plan."""
    seen: set[str] = set()
    following: str | None = code
    while following is not None and following in rows and following not in seen:
        if _eligible(following, plan, rows):
            return following
        seen.add(following)
        following = rows[following].replaced_by
    return None


def _eligible(code: str, plan: PlanId, rows: Mapping[str, PromoRow]) -> bool:
    return code in rows and plan in rows[code].plans


def _csm(request: ChargeRequest, tables: ServedTables, verdict: PolicyVerdict) -> None:
    """Some plans need the code that their row holds today, which must be eligible as a promo code.

    A wrong code is not looked up among the promo codes. A right one that is not eligible there can
    not be mended by the client: the two tables contradict each other.
    """
    plan, sent = request.plan_id, request.csm_code
    wanted: str | None = tables[CSM].rows.get(plan)
    if wanted is None:
        return
    verdict.consult(CSM)
    if sent != wanted:
        rule = "needs the code of its customer success manager."
        verdict.add(Violation(("Plan", plan), rule, "/csm_code", sent, wanted, CSM))
        return
    verdict.consult(PROMO)
    if not _eligible(wanted, plan, tables[PROMO].rows):
        verdict.final.append(f"Plan '{plan}' has a code that is not eligible as a promo code for it.")


def judge_refund(request: RefundRequest, tables: ServedTables) -> PolicyVerdict:
    """Check a refund against its policy: window, reason, limit. It is always consulted."""
    verdict = PolicyVerdict()
    verdict.consult(REFUND)
    rows = tables[REFUND].rows
    terms = RefundTerms.model_validate(rows)
    if request.days_since_charge > terms.window_days:
        verdict.final.append("The charge is too long ago to be refunded.")
    if (sent := request.reason) not in REASONS:
        known = rows.get(f"reason.{sent}")
        if known is None:
            verdict.final.append("The reason is none that a refund may have.")
        else:
            rule = "is not in the words of the payment provider."
            verdict.add(Violation(("Reason", sent), rule, "/reason", sent, known, REFUND))
    if request.amount > terms.max_amount:
        rule, place = "is over the limit of a refund.", "/amount"
        over = Violation(("The amount", ""), rule, place, request.amount, terms.max_amount, REFUND)
        # A smaller refund must not be raised to the limit.
        verdict.add(replace(over, lasting=False))
    return verdict
