"""The Acme domain's streams: one block of 12 tasks, repeated verbatim between rotations."""

from __future__ import annotations

from typing import Any

from crossmem.domains.base import PROVISIONED, Provision, Task
from crossmem.streams.plan import Authored, Plan

_BASE: dict[str, Any] = {
    "customer": "cus_0417",
    "plan_id": "growth",
    "tier": "team",
    "billing_interval": "monthly",
    "seats": 8,
    "amount": 12900,
    "currency": "usd",
    "payment_method": "pm_card_visa",
    "promo_codes": [],
}
_ENTERPRISE = {
    "plan_id": "scale",
    "tier": "enterprise",
    "billing_interval": "annual",
    "seats": 40,
    "amount": 480000,
    "payment_method": "pm_card_amex",
}
_TASKS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "partner": ("csm", "Charge the partner account for its seats.", {"plan_id": "partner"}),
    "pilot": ("csm", "Charge the pilot account for its seats.", {"plan_id": "enterprise-pilot"}),
    "funding A": (
        "funding",
        "Charge the yearly contract to the debit card on file.",
        {**_ENTERPRISE, "payment_method": "pm_card_visa_debit"},
    ),
    "funding B": (
        "funding",
        "Charge the team account to the prepaid card on file.",
        {"payment_method": "pm_card_mastercard_prepaid"},
    ),
    "interval": (
        "enterprise",
        "Charge the large account month by month.",
        {**_ENTERPRISE, "billing_interval": "monthly"},
    ),
    "promo X": ("promo", "Charge the team account with its promo code.", {"promo_codes": ["SPRING24"]}),
    "promo Y": ("promo", "Charge the team account with its promo code.", {"promo_codes": ["LAUNCH50"]}),
}
_BLOCK = (
    "partner, funding A, promo X, pilot, interval, promo Y, "
    "funding B, partner, promo X, interval, pilot, promo Y"
).split(", ")
_KEPT = ("customer", "plan_id", "amount", "currency")


def _blocks(number: int) -> list[Authored]:
    block = [_author(f"b{index:02}", name) for index, name in enumerate(_BLOCK)]
    return block * number


def _author(task_id: str, name: str) -> Authored:
    family, text, differing = _TASKS[name]
    body = {**_BASE, **differing}
    criterion = {"family": family, "keep": {field: body[field] for field in _KEPT}}
    return Authored(Task(id=task_id, description=text, input=body), criterion)


def _sanity() -> list[Authored]:
    return _blocks(2)


def _ladder() -> list[Authored]:
    return _blocks(4)


def _refunds() -> list[Authored]:
    """Refunds, some against policy, between charges to cards that are declined."""
    return [_refund(f"f{index:02}", name) for index, name in enumerate(_REFUND_BLOCK)]


_REFUND: dict[str, Any] = {"amount": 12900, "reason": "requested_by_customer", "days_since_charge": 3}
_REFUNDS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("Give the customer the payment back; they ask for it.", {}),
    "changed mind": (
        "Give the payment back; the customer has changed their mind.",
        {"reason": "changed_mind"},
    ),
    "ordered twice": (
        "Give the payment back; the customer ordered twice.",
        {"reason": "ordered_twice"},
    ),
    "too late": ("Give an old payment back; the customer asks for it.", {"days_since_charge": 45}),
    "too much": ("Give as much of the payment back as can be.", {"amount": 60000}),
}
_DECLINED = {
    "no funds": "pm_card_visa_chargeDeclinedInsufficientFunds",
    "expired": "pm_card_chargeDeclinedExpiredCard",
    "processing": "pm_card_chargeDeclinedProcessingError",
}
_REFUND_BLOCK = (
    "changed mind,no funds,plain,changed mind,ordered twice,expired,"
    "too late,too much,ordered twice,processing,changed mind,plain"
).split(",")


def _refund(task_id: str, name: str) -> Authored:
    if name in _DECLINED:
        body = {**_BASE, "payment_method": _DECLINED[name]}
        criterion = {"family": "charge", "keep": {field: body[field] for field in _KEPT}}
        text = "Charge the team account to the card on file."
        return Authored(Task(id=task_id, description=text, input=body), criterion)
    text, differing = _REFUNDS[name]
    body = {"payment_intent": PROVISIONED, **_REFUND, **differing}
    charge = {**_BASE, "amount": max(body["amount"], _BASE["amount"])}
    kept = ["payment_intent"] if name == "too much" else ["payment_intent", "amount"]
    criterion = {"family": "refund", "keep": {field: body[field] for field in kept}}
    provision = Provision(
        endpoint="/billing/charges",
        body=charge,
        result="/result/payment_intent",
        into="/payment_intent",
    )
    return Authored(Task(id=task_id, description=text, input=body), criterion, provision)


PLANS = (
    Plan("acme_sanity", "acme", "acme", _sanity, ((12, "v2"),), (5, 10), base_snapshot="v1"),
    Plan(
        "acme_m1",
        "acme",
        "acme",
        _ladder,
        ((12, "v2"), (24, "v3"), (36, "v4")),
        (5, 10),
        base_snapshot="v1",
    ),
    Plan("acme_refunds", "acme", "acme", _refunds, (), None, base_snapshot="v1"),
)
