"""The embedded Stripe, spoken to through stripe-python alone: it behaves as Stripe documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
import stripe

from crossmem.api.payments.payments import Payments

from .stripe_calls import create, invalid, refund_of, refused, told

if TYPE_CHECKING:
    from crossmem.api.payments.access import StripeAccess

DECLINED = {
    "pm_card_visa_chargeDeclined": ("card_declined", "generic_decline", None),
    "pm_card_visa_chargeDeclinedInsufficientFunds": ("card_declined", "insufficient_funds", None),
    "pm_card_chargeDeclinedExpiredCard": ("expired_card", "expired_card", "exp_month"),
    "pm_card_chargeDeclinedProcessingError": ("processing_error", "processing_error", None),
}
PAID = {
    "pm_card_visa": ("visa", "credit", "4242"),
    "pm_card_visa_debit": ("visa", "debit", "5556"),
    "pm_card_mastercard": ("mastercard", "credit", "4444"),
    "pm_card_mastercard_debit": ("mastercard", "debit", "8210"),
    "pm_card_mastercard_prepaid": ("mastercard", "prepaid", "5100"),
    "pm_card_amex": ("amex", "credit", "8431"),
}


@pytest.mark.parametrize("token", PAID)
def test_a_good_card_is_charged_at_once(sdk: stripe.StripeClient, token: str) -> None:
    intent = create(sdk, payment_method=token, expand=["payment_method", "latest_charge"])
    assert (intent.status, intent.amount, intent.amount_received) == ("succeeded", 5000, 5000)
    assert (intent.livemode, intent.last_payment_error) == (False, None)
    method, charge = intent.payment_method, intent.latest_charge
    assert isinstance(method, stripe.PaymentMethod)
    assert isinstance(charge, stripe.Charge)
    assert method.card is not None
    assert (method.card.brand, method.card.funding, method.card.last4) == PAID[token]
    assert (charge.paid, charge.status, charge.amount) == (True, "succeeded", 5000)


@pytest.mark.parametrize("token", DECLINED)
def test_a_bad_card_is_declined_in_the_words_of_stripe(sdk: stripe.StripeClient, token: str) -> None:
    error = refused(lambda: create(sdk, payment_method=token), stripe.CardError, 402)
    of = told(error)
    assert of.type == "card_error"
    assert (error.code, of.decline_code, of.param) == DECLINED[token]
    assert of.payment_intent is not None
    assert of.payment_method is not None
    intent = sdk.v1.payment_intents.retrieve(of.payment_intent.id)
    assert (intent.status, intent.payment_method) == ("requires_payment_method", None)
    last = intent.last_payment_error
    assert last is not None
    assert (last.code, last.decline_code) == (error.code, of.decline_code)
    assert intent.amount_received == 0


def test_a_declined_intent_is_paid_by_another_card(sdk: stripe.StripeClient) -> None:
    with pytest.raises(stripe.CardError) as caught:
        create(sdk, payment_method="pm_card_visa_chargeDeclined")
    declined = told(caught.value).payment_intent
    assert declined is not None
    paid = sdk.v1.payment_intents.confirm(declined.id, {"payment_method": "pm_card_visa"})
    assert (paid.id, paid.status, paid.last_payment_error) == (declined.id, "succeeded", None)


def test_an_intent_can_be_confirmed_later_and_only_once(sdk: stripe.StripeClient) -> None:
    intent = create(sdk, confirm=False)
    assert intent.status == "requires_confirmation"
    assert sdk.v1.payment_intents.confirm(intent.id).status == "succeeded"
    error = invalid(lambda: sdk.v1.payment_intents.confirm(intent.id))
    assert error.code == "payment_intent_unexpected_state"


def test_an_intent_without_a_card_waits_for_one(sdk: stripe.StripeClient) -> None:
    intent = sdk.v1.payment_intents.create({"amount": 5000, "currency": "eur"})
    assert intent.status == "requires_payment_method"
    error = invalid(lambda: sdk.v1.payment_intents.confirm(intent.id))
    assert error.code == "payment_intent_unexpected_state"


def test_metadata_and_description_are_kept(sdk: stripe.StripeClient) -> None:
    made = create(sdk, metadata={"plan": "Größe & Co=1"}, description="a plan")
    read = sdk.v1.payment_intents.retrieve(made.id)
    assert read.metadata["plan"] == "Größe & Co=1"
    assert read.description == "a plan"


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"amount": 49}, "amount_too_small", "amount"),
        ({"amount": 49, "currency": "eur"}, "amount_too_small", "amount"),
        ({"amount": 100_000_000}, "amount_too_large", "amount"),
        ({"amount": 0}, "parameter_invalid_integer", "amount"),
        ({"amount": -100}, "parameter_invalid_integer", "amount"),
        ({"amount": 12.5}, "parameter_invalid_integer", "amount"),
        ({"amount": "many"}, "parameter_invalid_integer", "amount"),
        ({"amount": ""}, "parameter_missing", "amount"),
        ({"currency": "xyz"}, None, "currency"),
        ({"payment_method": "pm_card_nope"}, "resource_missing", "payment_method"),
        ({"payment_method": None}, "parameter_missing", "payment_method"),
        ({"colour": "red"}, "parameter_unknown", "colour"),
        (
            {"payment_method_types": ["card"]},
            "payment_method_types_no_longer_supported",
            "payment_method_types",
        ),
    ],
)
def test_a_parameter_that_stripe_refuses_is_named(
    sdk: stripe.StripeClient, changes: dict[str, Any], code: str | None, param: str
) -> None:
    error = invalid(lambda: create(sdk, **changes))
    assert (error.code, error.param) == (code, param)
    assert told(error).type == "invalid_request_error"


def test_what_does_not_exist_is_a_404(sdk: stripe.StripeClient) -> None:
    for call in (
        lambda: sdk.v1.payment_intents.retrieve("pi_nope"),
        lambda: sdk.v1.payment_intents.confirm("pi_nope"),
        lambda: sdk.v1.refunds.retrieve("re_nope"),
        lambda: sdk.v1.refunds.create({"payment_intent": "pi_nope"}),
    ):
        assert invalid(call, 404).code == "resource_missing"
    invalid(sdk.v1.customers.list, 404)


def test_what_cannot_be_expanded_is_refused(sdk: stripe.StripeClient) -> None:
    invalid(lambda: create(sdk, expand=["customer"]))


@pytest.mark.parametrize("key", ["sk_live_abc", "pk_test_abc", "nonsense"])
def test_any_key_but_a_test_mode_secret_is_a_401(access: StripeAccess, key: str) -> None:
    transport = Payments(access)._transport
    client = stripe.StripeClient(
        key, base_addresses={"api": access.base}, max_network_retries=0, http_client=transport
    )
    error = refused(lambda: create(client), stripe.AuthenticationError, 401)
    assert key not in str(error)
    transport.close()


def test_without_a_key_everything_is_a_401(access: StripeAccess) -> None:
    # Not through stripe-python, which does not send such a request.
    assert httpx.get(f"{access.base}/v1/payment_intents/pi_x", trust_env=False).status_code == 401


def test_each_api_key_is_an_account_of_its_own(access: StripeAccess, sdk: stripe.StripeClient) -> None:
    mine = create(sdk, key="shared")
    other = stripe.StripeClient(
        "rk_test_other",
        base_addresses={"api": access.base},
        max_network_retries=0,
        http_client=sdk._requestor._client,
    )
    invalid(lambda: other.v1.payment_intents.retrieve(mine.id), 404)
    assert create(other, key="shared", amount=77).amount == 77


def test_a_full_refund_happens_once(sdk: stripe.StripeClient) -> None:
    intent = create(sdk)
    made = sdk.v1.refunds.create(refund_of(intent, reason="requested_by_customer"))
    assert (made.status, made.amount, made.currency) == ("succeeded", 5000, "usd")
    read = sdk.v1.refunds.retrieve(made.id)
    assert (read.payment_intent, read.reason) == (intent.id, "requested_by_customer")
    error = invalid(lambda: sdk.v1.refunds.create(refund_of(intent)))
    assert error.code == "charge_already_refunded"


def test_partial_refunds_add_up_to_the_charge(sdk: stripe.StripeClient) -> None:
    intent = create(sdk)
    assert sdk.v1.refunds.create(refund_of(intent, amount=2000)).amount == 2000
    error = invalid(lambda: sdk.v1.refunds.create(refund_of(intent, amount=3001)))
    assert "unrefunded amount on charge ($30.00)" in str(error)
    assert sdk.v1.refunds.create(refund_of(intent)).amount == 3000
    read = sdk.v1.payment_intents.retrieve(intent.id, {"expand": ["latest_charge"]})
    assert isinstance(read.latest_charge, stripe.Charge)
    assert (read.latest_charge.amount_refunded, read.latest_charge.refunded) == (5000, True)


def test_a_refund_over_the_charge_names_the_amount_and_has_no_code(
    sdk: stripe.StripeClient,
) -> None:
    intent = create(sdk)
    error = invalid(lambda: sdk.v1.refunds.create(refund_of(intent, amount=5001)))
    assert (error.code, error.param) == (None, "amount")
    assert sdk.v1.refunds.create(refund_of(intent)).amount == 5000


def test_what_was_not_paid_cannot_be_refunded(sdk: stripe.StripeClient) -> None:
    intent = create(sdk, confirm=False)
    invalid(lambda: sdk.v1.refunds.create(refund_of(intent)))


def test_a_refund_has_one_of_the_reasons_of_stripe(sdk: stripe.StripeClient) -> None:
    intent = create(sdk)
    error = invalid(lambda: sdk.v1.refunds.create(refund_of(intent, reason="boredom")))
    assert error.param == "reason"
