"""Where Stripe is reached and with which key; refuses every key that could move real money.

Importing this loads neither stripe-python nor a web framework: it is asked before a run starts.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from crossmem.errors import InputError, unknown

KEY_VARIABLE = "STRIPE_API_KEY"
BASE_VARIABLE = "STRIPE_API_BASE"
STRIPE = "https://api.stripe.com"
MODES = ("embedded", "test")
LOOPBACK = ("127.0.0.1", "localhost", "::1")

TEST_KEY = re.compile(r"(sk|rk)_test_[A-Za-z0-9_]+")
LIVE_PREFIXES = ("sk_live_", "rk_live_")


@dataclass(frozen=True)
class StripeAccess:
    """An address that speaks Stripe's API and a test-mode key for it. The key is in no repr.

    Raises InputError for any other key: no way leads around the check.
    """

    mode: Literal["embedded", "test"]
    base: str
    api_key: str = field(repr=False)

    def __post_init__(self) -> None:
        if not TEST_KEY.fullmatch(self.api_key):
            raise InputError("this is no test-mode key (sk_test_... or rk_test_...)")


def stripe_access(mode: str) -> StripeAccess | None:
    """Return how to reach Stripe: None for "embedded", Stripe's test mode for "test".

    The key is read from the environment variable STRIPE_API_KEY; STRIPE_API_BASE names another
    address than Stripe's own, for tests against a local server.

    Raises InputError for an unknown mode, a live-mode key in the environment whatever the mode, under
    "test" for a missing key or one of another kind, and for an address that would carry the key over
    the network in clear. No message holds the key.
    """
    if mode not in MODES:
        raise unknown("stripe", mode, MODES)
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if (live := key[:8]) in LIVE_PREFIXES:
        raise InputError(
            f"{KEY_VARIABLE} holds a live-mode key ({live}...); only test-mode keys are used, and none "
            "is needed with stripe=embedded"
        )
    return StripeAccess("test", _base(), _test_key(key)) if mode == "test" else None


def _test_key(key: str) -> str:
    if not key:
        raise InputError(f'stripe="test" needs a test-mode key (sk_test_...) in {KEY_VARIABLE}')
    if not TEST_KEY.fullmatch(key):
        raise InputError(f"{KEY_VARIABLE} holds no test-mode key (sk_test_... or rk_test_...)")
    return key


def _base() -> str:
    base = os.environ.get(BASE_VARIABLE, "").rstrip("/") or STRIPE
    try:
        address = urlsplit(base)
        plain = address.scheme == "http" and address.hostname in LOOPBACK
        good = bool(address.hostname) and not address.username and (plain or address.scheme == "https")
    except ValueError:
        good = False
    if not good:
        raise InputError(f"{BASE_VARIABLE} must be https://..., or http:// on loopback")
    return base
