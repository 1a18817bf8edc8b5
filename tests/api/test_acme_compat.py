"""The stand-in for the helper that upstream's Acme app imports: found by its path, not installed."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import stripe

from .stripe_calls import create

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[2] / "acme_compat"
SECRET = "abcDEF123"
FIELDS = {"type", "code", "decline_code", "message", "http_status", "param", "request_id"}


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(stripe, "api_key", None)
    yield importlib.import_module("stripe_api.sandbox")
    for name in ("stripe_api", "stripe_api.sandbox"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("prefix", ["sk_test_", "rk_test_"])
def test_configure_gives_the_sdk_the_test_mode_key(
    sandbox: Any, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", prefix + SECRET)
    assert sandbox.configure() == "test"
    assert stripe.api_key == prefix + SECRET


@pytest.mark.parametrize("key", [f"sk_live_{SECRET}", f"rk_live_{SECRET}", f"pk_test_{SECRET}", ""])
def test_configure_refuses_every_other_key_without_repeating_it(
    sandbox: Any, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", key)
    with pytest.raises(RuntimeError, match="STRIPE_API_KEY") as caught:
        sandbox.configure()
    assert SECRET not in str(caught.value)
    assert stripe.api_key is None


def test_a_decline_is_flattened(sandbox: Any, sdk: stripe.StripeClient) -> None:
    with pytest.raises(stripe.CardError) as caught:
        create(sdk, payment_method="pm_card_chargeDeclinedExpiredCard")
    flat = sandbox.normalize_error(caught.value)
    assert flat.pop("request_id").startswith("req_")
    assert flat == {
        "type": "card_error",
        "code": "expired_card",
        "decline_code": "expired_card",
        "message": "Your card has expired.",
        "http_status": 402,
        "param": "exp_month",
    }


def test_an_error_without_an_answer_is_flattened(sandbox: Any) -> None:
    error = stripe.APIConnectionError("no route")  # type: ignore[no-untyped-call]
    flat = sandbox.normalize_error(error)
    assert set(flat) == FIELDS
    assert {name: value for name, value in flat.items() if value is not None} == {
        "type": "api_connection_error",
        "message": "no route",
    }
