"""Calls through stripe-python for the tests of the embedded Stripe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import stripe

if TYPE_CHECKING:
    from collections.abc import Callable

    from stripe.params import PaymentIntentCreateParams, RefundCreateParams


def order(**changes: Any) -> PaymentIntentCreateParams:
    params: dict[str, Any] = {"amount": 5000, "currency": "usd", "payment_method": "pm_card_visa"}
    return {**params, "confirm": True, **changes}  # type: ignore[typeddict-item]


def refund_of(intent: stripe.PaymentIntent, **changes: Any) -> RefundCreateParams:
    return {"payment_intent": intent.id, **changes}  # type: ignore[typeddict-item]


def create(sdk: stripe.StripeClient, key: str = "", **changes: Any) -> stripe.PaymentIntent:
    options: stripe.RequestOptions = {"idempotency_key": key} if key else {}
    return sdk.v1.payment_intents.create(order(**changes), options)


def told(error: stripe.StripeError) -> stripe.ErrorObject:
    assert error.error is not None
    return error.error


def refused(call: Callable[[], object], kind: type[stripe.StripeError], status: int) -> Any:
    with pytest.raises(kind) as caught:
        call()
    assert caught.type is kind
    assert caught.value.http_status == status
    assert caught.value.request_id
    return caught.value


def invalid(call: Callable[[], object], status: int = 400) -> Any:
    return refused(call, stripe.InvalidRequestError, status)
