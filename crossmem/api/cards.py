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
class Card:
    """A test card: what it is, and how it is declined if it is."""

    brand: str
    funding: Funding
    last4: str
    decline: Decline | None = None


CARDS: Mapping[str, Card] = MappingProxyType(
    {
        "pm_card_visa": Card("visa", "credit", "4242"),
        "pm_card_visa_debit": Card("visa", "debit", "5556"),
        "pm_card_mastercard": Card("mastercard", "credit", "4444"),
        "pm_card_mastercard_debit": Card("mastercard", "debit", "8210"),
        "pm_card_mastercard_prepaid": Card("mastercard", "prepaid", "5100"),
        "pm_card_amex": Card("amex", "credit", "8431"),
        "pm_card_visa_chargeDeclined": Card(
            "visa",
            "credit",
            "0002",
            Decline("card_declined", "generic_decline", "Your card was declined."),
        ),
        "pm_card_visa_chargeDeclinedInsufficientFunds": Card(
            "visa",
            "credit",
            "9995",
            Decline("card_declined", "insufficient_funds", "Your card has insufficient funds."),
        ),
        "pm_card_chargeDeclinedExpiredCard": Card(
            "visa",
            "credit",
            "0069",
            Decline("expired_card", "expired_card", "Your card has expired.", "exp_month"),
        ),
        "pm_card_chargeDeclinedProcessingError": Card(
            "visa",
            "credit",
            "0119",
            Decline(
                "processing_error",
                "processing_error",
                "An error occurred while processing your card. Try again in a little bit.",
            ),
        ),
    }
)
"""Token of each test card -> the card."""
