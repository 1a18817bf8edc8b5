"""Stripe in test mode for the upstream Acme app: the key, and errors as flat dicts.

The folder `acme_compat` goes on the PYTHONPATH of the upstream server. Nothing in crossmem needs it.
"""

from __future__ import annotations

import os

import stripe

KEY_VARIABLE = "STRIPE_API_KEY"
TEST_PREFIXES = ("sk_test_", "rk_test_")
LIVE_PREFIXES = ("sk_live_", "rk_live_")


def configure() -> str:
    """Give stripe-python the test-mode key from STRIPE_API_KEY; return "test", never the key.

    Raises RuntimeError, without the key, if there is none or if it is not a test-mode key.
    """
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key:
        raise RuntimeError(f"{KEY_VARIABLE} is not set; it must hold a test-mode key (sk_test_...)")
    if key.startswith(LIVE_PREFIXES):
        raise RuntimeError(f"{KEY_VARIABLE} holds a live-mode key; only test-mode keys are used")
    if not key.startswith(TEST_PREFIXES):
        raise RuntimeError(f"{KEY_VARIABLE} holds no test-mode key (sk_test_... or rk_test_...)")
    stripe.api_key = key
    return "test"


def normalize_error(error: stripe.StripeError) -> dict[str, str | int | None]:
    """Flatten an error of stripe-python; what it does not tell is None.

    `type` is Stripe's, or "api_connection_error" where Stripe gave no answer.
    """
    told = error.error
    kind = told.type if told else None
    if kind is None and isinstance(error, stripe.APIConnectionError):
        kind = "api_connection_error"
    return {
        "type": kind,
        "code": error.code or (told.code if told else None),
        "decline_code": told.decline_code if told else None,
        "message": error.user_message,
        "http_status": error.http_status,
        "param": told.param if told else None,
        "request_id": error.request_id,
    }
