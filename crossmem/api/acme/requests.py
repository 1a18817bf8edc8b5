"""What the Acme billing endpoints take and answer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from crossmem.api.fields import RequestPart, Text, whole
from crossmem.api.problem import Versions

PlanId = Literal["starter", "growth", "scale", "partner", "enterprise-pilot"]
Tier = Literal["starter", "team", "enterprise"]
BillingInterval = Literal["monthly", "annual"]
Currency = Literal["usd", "eur"]
StripeReason = Literal["requested_by_customer", "duplicate", "fraudulent"]

# Stripe's own limits for both currencies. A decimal that is whole is whole; 12.5 is refused.
Charge = Annotated[int, Field(strict=True, ge=50, le=99_999_999), BeforeValidator(whole)]
Refunded = Annotated[int, Field(strict=True, ge=1, le=99_999_999), BeforeValidator(whole)]
Seats = Annotated[int, Field(strict=True, ge=1, le=1_000_000), BeforeValidator(whole)]
Days = Annotated[int, Field(strict=True, ge=0, le=100_000), BeforeValidator(whole)]


class ChargeRequest(RequestPart):
    """A charge for a plan. Codes and tokens are compared exactly."""

    customer: Text
    plan_id: PlanId
    tier: Tier
    billing_interval: BillingInterval
    seats: Seats
    amount: Annotated[Charge, Field(description="In minor units of the currency.")]
    currency: Currency
    payment_method: Annotated[Text, Field(description="A token of one of Stripe's test cards.")]
    promo_codes: Annotated[list[Text], Field(max_length=20)]
    csm_code: Annotated[Text | None, Field(description="The code of the customer success manager.")] = (
        None
    )


class RefundRequest(RequestPart):
    """A refund of a charge, in part or in full."""

    payment_intent: Text
    amount: Annotated[Refunded, Field(description="In minor units of the charge's currency.")]
    reason: Text
    days_since_charge: Days


class Payment(BaseModel):
    """The charge that was made."""

    payment_intent: str
    status: str
    amount: int
    currency: str
    customer: str
    plan_id: str
    tier: str
    billing_interval: str
    seats: int
    promo_codes: list[str]


class Charged(BaseModel):
    """The answer to an accepted charge."""

    result: Payment
    table_versions: Versions


class Refund(BaseModel):
    """The refund that was made."""

    refund: str
    status: str
    payment_intent: str
    amount: int
    currency: str
    reason: str


class RefundMade(BaseModel):
    """The answer to an accepted refund."""

    result: Refund
    table_versions: Versions
