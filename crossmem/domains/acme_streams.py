"""The Acme domain's streams: one block of 12 tasks, repeated verbatim between rotations."""

from __future__ import annotations

from typing import Any

from crossmem.domains.base import Task
from crossmem.domains.plan import Authored, Plan

_BASE = {
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
)
