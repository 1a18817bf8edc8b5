"""The policies of Acme billing as pure functions over a request and the tables, and their rows."""

from __future__ import annotations

from collections.abc import Mapping
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

from crossmem.api.acme_requests import (
    Charge,
    ChargeRequest,
    Interval,
    Plan,
    RefundRequest,
    Seats,
    StripeReason,
    Tier,
)
from crossmem.api.cards import CARDS, Funding
from crossmem.api.fields import Text
from crossmem.api.problem import Verdict, Violation
from crossmem.api.tables import Tables, TableSpec

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

    plans: list[Plan]
    stackable: bool
    replaced_by: Text | None


class EnterpriseTerms(_Row):
    """`enterprise_policy`: the interval and the least number of seats of the enterprise tier."""

    billing_interval: Annotated[Interval, Field(alias="enterprise.billing_interval")]
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


SPECS = (
    TableSpec(
        FUNDING,
        "dict",
        TypeAdapter(Annotated[dict[Tier, FundingRow], Field(min_length=len(get_args(Tier)))]),
    ),
    TableSpec(ENTERPRISE, "dict", _as_terms(EnterpriseTerms)),
    TableSpec(PROMO, "dict", TypeAdapter(dict[Text, PromoRow])),
    TableSpec(CSM, "dict", TypeAdapter(dict[Plan, Text])),
    TableSpec(REFUND, "dict", _as_terms(RefundTerms)),
)


def judge_charge(request: ChargeRequest, tables: Tables) -> Verdict:
    """Check a charge against all policies: funding, enterprise, promo, csm."""
    return Verdict.of(
        _funding(request, tables),
        _enterprise(request, tables),
        _promo(request, tables),
        _csm(request, tables),
    )


def _funding(request: ChargeRequest, tables: Tables) -> Verdict:
    """Each tier accepts some funding types only; a token that is no known card has none."""
    row: FundingRow = tables[FUNDING].rows[request.tier]
    card = CARDS.get(request.payment_method)
    if card is not None and card.funding in row.accepts:
        return Verdict(consulted=(FUNDING,))
    broken = Violation(
        subject=("Payment method", request.payment_method),
        rule="does not have a funding type that this tier accepts.",
        action="MODIFY_PARAMS",
        field="/payment_method",
        current=request.payment_method,
        suggested=row.use,
        table=FUNDING,
    )
    return Verdict((broken,), (FUNDING,))


def _enterprise(request: ChargeRequest, tables: Tables) -> Verdict:
    """The enterprise tier has terms of its own; for other tiers the table is not consulted."""
    if request.tier != "enterprise":
        return Verdict()
    terms = EnterpriseTerms.model_validate(tables[ENTERPRISE].rows)
    broken = []
    if request.billing_interval != terms.billing_interval:
        broken.append(
            Violation(
                subject=("Billing interval", request.billing_interval),
                rule="is not the one in the terms of this tier.",
                action="MODIFY_PARAMS",
                field="/billing_interval",
                current=request.billing_interval,
                suggested=terms.billing_interval,
                table=ENTERPRISE,
            )
        )
    if request.seats < terms.seats:
        broken.append(
            Violation(
                subject=("The number of seats", ""),
                rule="is under the least in the terms of this tier.",
                action="MODIFY_PARAMS",
                field="/seats",
                current=request.seats,
                suggested=terms.seats,
                table=ENTERPRISE,
            )
        )
    return Verdict(tuple(broken), (ENTERPRISE,))


def _promo(request: ChargeRequest, tables: Tables) -> Verdict:
    """Every code must be for the plan, and stand alone unless it is stackable.

    One suggestion mends the whole list. Without codes the table is not consulted.
    """
    sent = request.promo_codes
    if not sent:
        return Verdict()
    rows: Mapping[str, PromoRow] = tables[PROMO].rows
    mended = _mended(sent, request.plan_id, rows)
    if mended == sent:
        return Verdict(consulted=(PROMO,))
    wrong = next((code for code in sent if not _eligible(code, request.plan_id, rows)), None)
    broken = Violation(
        subject=("Promo codes", "") if wrong is None else ("Promo code", wrong),
        rule="cannot be combined like this." if wrong is None else "is not eligible for this plan.",
        action="MODIFY_PARAMS",
        field="/promo_codes",
        current=sent,
        suggested=mended,
        table=PROMO,
    )
    return Verdict((broken,), (PROMO,))


def _mended(sent: list[str], plan: Plan, rows: Mapping[str, PromoRow]) -> list[str]:
    """Return the codes that may stay: replaced or left out, each once, the first one deciding.

    Where the first that stays is not stackable it stays alone; else every stackable one stays.
    """
    heirs = (_heir(code, plan, rows) for code in sent)
    eligible = list(dict.fromkeys(code for code in heirs if code is not None))
    if eligible and not rows[eligible[0]].stackable:
        return eligible[:1]
    return [code for code in eligible if rows[code].stackable]


def _heir(code: str, plan: Plan, rows: Mapping[str, PromoRow]) -> str | None:
    """Return the code itself, or the first of those that replaced it, that is for the plan."""
    seen: set[str] = set()
    following: str | None = code
    while following is not None and following in rows and following not in seen:
        if _eligible(following, plan, rows):
            return following
        seen.add(following)
        following = rows[following].replaced_by
    return None


def _eligible(code: str, plan: Plan, rows: Mapping[str, PromoRow]) -> bool:
    return code in rows and plan in rows[code].plans


def _csm(request: ChargeRequest, tables: Tables) -> Verdict:
    """Some plans need the code that their row holds today, which must be eligible as a promo code.

    A wrong code is not looked up among the promo codes. A right one that is not eligible there can
    not be mended by the client: the two tables contradict each other.
    """
    codes: Mapping[str, str] = tables[CSM].rows
    plan = request.plan_id
    if plan not in codes:
        return Verdict()
    if request.csm_code != codes[plan]:
        broken = Violation(
            subject=("Plan", plan),
            rule="needs the code of its customer success manager.",
            action="MODIFY_PARAMS",
            field="/csm_code",
            current=request.csm_code,
            suggested=codes[plan],
            table=CSM,
        )
        return Verdict((broken,), (CSM,))
    if _eligible(codes[plan], plan, tables[PROMO].rows):
        return Verdict(consulted=(CSM, PROMO))
    said = f"Plan '{plan}' has a code that is not eligible as a promo code for it."
    return Verdict(consulted=(CSM, PROMO), final=(said,))


def judge_refund(request: RefundRequest, tables: Tables) -> Verdict:
    """Check a refund against its policy: window, reason, limit. It is always consulted."""
    rows = tables[REFUND].rows
    terms = RefundTerms.model_validate(rows)
    final, broken = [], []
    if request.days_since_charge > terms.window_days:
        final.append("The charge is too long ago to be refunded.")
    if request.reason not in REASONS:
        known = rows.get(f"reason.{request.reason}")
        if known is None:
            final.append("The reason is none that a refund may have.")
        else:
            broken.append(
                Violation(
                    subject=("Reason", request.reason),
                    rule="is not in the words of the payment provider.",
                    action="MODIFY_PARAMS",
                    field="/reason",
                    current=request.reason,
                    suggested=known,
                    table=REFUND,
                )
            )
    if request.amount > terms.max_amount:
        broken.append(
            Violation(
                subject=("The amount", ""),
                rule="is over the limit of a refund.",
                action="MODIFY_PARAMS",
                field="/amount",
                current=request.amount,
                suggested=terms.max_amount,
                table=REFUND,
                # A smaller refund must not be raised to the limit.
                lasting=False,
            )
        )
    return Verdict(tuple(broken), (REFUND,), tuple(final))
