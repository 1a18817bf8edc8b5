"""The test cards of Stripe that this study uses: brand, funding, and how they are declined.

Tokens, funding and codes are Stripe's (docs.stripe.com/testing). What its documentation leaves
open, the `decline_code` of an expired card and of a processing error, is as its test mode answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Funding = Literal["credit", "debit", "prepaid"]


@dataclass(frozen=True)
class Decline:
    """How a card is declined, in Stripe's words."""

    code: str
    decline_code: str
    message: str
    param: str | None = None


@dataclass(frozen=True)
class StripeCard:
    """A test card: what it is, and how it is declined if it is."""

    brand: str
    funding: Funding
    last4: str
    decline: Decline | None = None


_NO = Decline("card_declined", "generic_decline", "Your card was declined.")
_POOR = Decline("card_declined", "insufficient_funds", "Your card has insufficient funds.")
_OLD = Decline("expired_card", "expired_card", "Your card has expired.", "exp_month")
_ERROR = Decline(
    "processing_error",
    "processing_error",
    "An error occurred while processing your card. Try again in a little bit.",
)

CARDS: Mapping[str, StripeCard] = MappingProxyType(
    {
        "pm_card_visa": StripeCard("visa", "credit", "4242"),
        "pm_card_visa_debit": StripeCard("visa", "debit", "5556"),
        "pm_card_mastercard": StripeCard("mastercard", "credit", "4444"),
        "pm_card_mastercard_debit": StripeCard("mastercard", "debit", "8210"),
        "pm_card_mastercard_prepaid": StripeCard("mastercard", "prepaid", "5100"),
        "pm_card_amex": StripeCard("amex", "credit", "8431"),
        "pm_card_visa_chargeDeclined": StripeCard("visa", "credit", "0002", _NO),
        "pm_card_visa_chargeDeclinedInsufficientFunds": StripeCard("visa", "credit", "9995", _POOR),
        "pm_card_chargeDeclinedExpiredCard": StripeCard("visa", "credit", "0069", _OLD),
        "pm_card_chargeDeclinedProcessingError": StripeCard("visa", "credit", "0119", _ERROR),
    }
)
"""Token of each test card -> the card."""
