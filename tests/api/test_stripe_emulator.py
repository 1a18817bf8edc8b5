"""The embedded Stripe, spoken to through stripe-python alone: it behaves as Stripe documents."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import stripe

from crossmem.api.payments import Payments
from crossmem.api.stripe_emulator import emulating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stripe.params import PaymentIntentCreateParams, RefundCreateParams

    from crossmem.api.stripe_access import StripeAccess

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


@pytest.fixture(scope="module")
def access() -> Iterator[StripeAccess]:
    with emulating() as reached:
        yield reached


@pytest.fixture(scope="module")
def sdk(access: StripeAccess) -> Iterator[stripe.StripeClient]:
    payments = Payments(access)
    yield payments._stripe
    payments.close()


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
    error = refused(lambda: sdk.v1.payment_intents.confirm(intent.id), stripe.InvalidRequestError, 400)
    assert error.code == "payment_intent_unexpected_state"


def test_an_intent_without_a_card_waits_for_one(sdk: stripe.StripeClient) -> None:
    intent = sdk.v1.payment_intents.create({"amount": 5000, "currency": "eur"})
    assert intent.status == "requires_payment_method"
    error = refused(lambda: sdk.v1.payment_intents.confirm(intent.id), stripe.InvalidRequestError, 400)
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
    error = refused(lambda: create(sdk, **changes), stripe.InvalidRequestError, 400)
    assert (error.code, error.param) == (code, param)
    assert told(error).type == "invalid_request_error"


def test_what_does_not_exist_is_a_404(sdk: stripe.StripeClient) -> None:
    for call in (
        lambda: sdk.v1.payment_intents.retrieve("pi_nope"),
        lambda: sdk.v1.payment_intents.confirm("pi_nope"),
        lambda: sdk.v1.refunds.retrieve("re_nope"),
        lambda: sdk.v1.refunds.create({"payment_intent": "pi_nope"}),
    ):
        assert refused(call, stripe.InvalidRequestError, 404).code == "resource_missing"
    refused(sdk.v1.customers.list, stripe.InvalidRequestError, 404)


def test_what_cannot_be_expanded_is_refused(sdk: stripe.StripeClient) -> None:
    refused(lambda: create(sdk, expand=["customer"]), stripe.InvalidRequestError, 400)


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
    refused(lambda: other.v1.payment_intents.retrieve(mine.id), stripe.InvalidRequestError, 404)
    assert create(other, key="shared", amount=77).amount == 77


def test_a_full_refund_happens_once(sdk: stripe.StripeClient) -> None:
    intent = create(sdk)
    made = sdk.v1.refunds.create(refund_of(intent, reason="requested_by_customer"))
    assert (made.status, made.amount, made.currency) == ("succeeded", 5000, "usd")
    read = sdk.v1.refunds.retrieve(made.id)
    assert (read.payment_intent, read.reason) == (intent.id, "requested_by_customer")
    error = refused(lambda: sdk.v1.refunds.create(refund_of(intent)), stripe.InvalidRequestError, 400)
    assert error.code == "charge_already_refunded"


def test_partial_refunds_add_up_to_the_charge(sdk: stripe.StripeClient) -> None:
    intent = create(sdk)
    assert sdk.v1.refunds.create(refund_of(intent, amount=2000)).amount == 2000
    error = refused(
        lambda: sdk.v1.refunds.create(refund_of(intent, amount=3001)),
        stripe.InvalidRequestError,
        400,
    )
    assert "unrefunded amount on charge ($30.00)" in str(error)
    assert sdk.v1.refunds.create(refund_of(intent)).amount == 3000
    read = sdk.v1.payment_intents.retrieve(intent.id, {"expand": ["latest_charge"]})
    assert isinstance(read.latest_charge, stripe.Charge)
    assert (read.latest_charge.amount_refunded, read.latest_charge.refunded) == (5000, True)


def test_a_refund_over_the_charge_names_the_amount_and_has_no_code(
    sdk: stripe.StripeClient,
) -> None:
    intent = create(sdk)
    error = refused(
        lambda: sdk.v1.refunds.create(refund_of(intent, amount=5001)),
        stripe.InvalidRequestError,
        400,
    )
    assert (error.code, error.param) == (None, "amount")
    assert sdk.v1.refunds.create(refund_of(intent)).amount == 5000


def test_what_was_not_paid_cannot_be_refunded(sdk: stripe.StripeClient) -> None:
    intent = create(sdk, confirm=False)
    refused(lambda: sdk.v1.refunds.create(refund_of(intent)), stripe.InvalidRequestError, 400)


def test_a_refund_has_one_of_the_reasons_of_stripe(sdk: stripe.StripeClient) -> None:
    intent = create(sdk)
    error = refused(
        lambda: sdk.v1.refunds.create(refund_of(intent, reason="boredom")),
        stripe.InvalidRequestError,
        400,
    )
    assert error.param == "reason"


def headers(made: stripe.StripeObject) -> dict[str, str]:
    assert made.last_response is not None
    return dict(made.last_response.headers)


def test_a_key_that_is_used_again_gives_the_first_answer(sdk: stripe.StripeClient) -> None:
    first, again = create(sdk, key="again"), create(sdk, key="again")
    assert again.to_dict() == first.to_dict()
    assert "idempotent-replayed" not in headers(first)
    assert headers(again)["idempotent-replayed"] == "true"
    assert headers(again)["original-request"] == headers(first)["request-id"]
    assert headers(again)["request-id"] != headers(first)["request-id"]


def test_a_refund_under_one_key_happens_once(sdk: stripe.StripeClient) -> None:
    intent = create(sdk)
    made = [
        sdk.v1.refunds.create(refund_of(intent, amount=1000), {"idempotency_key": "refund once"})
        for _ in range(2)
    ]
    assert made[0].id == made[1].id
    assert sdk.v1.refunds.create(refund_of(intent)).amount == 4000


def test_a_decline_is_replayed_as_well(sdk: stripe.StripeClient) -> None:
    errors = [
        refused(
            lambda: create(sdk, key="declined", payment_method="pm_card_visa_chargeDeclined"),
            stripe.CardError,
            402,
        )
        for _ in range(2)
    ]
    assert errors[0].json_body == errors[1].json_body
    assert errors[1].headers["idempotent-replayed"] == "true"


def test_a_key_with_other_parameters_is_an_idempotency_error(sdk: stripe.StripeClient) -> None:
    intent = create(sdk, key="conflict")
    error = refused(lambda: create(sdk, key="conflict", amount=60), stripe.IdempotencyError, 400)
    assert told(error).type == "idempotency_error"
    refused(
        lambda: sdk.v1.refunds.create(refund_of(intent), {"idempotency_key": "conflict"}),
        stripe.IdempotencyError,
        400,
    )


def test_a_request_that_failed_validation_does_not_use_up_its_key(
    sdk: stripe.StripeClient,
) -> None:
    refused(lambda: create(sdk, key="typo", amount=1), stripe.InvalidRequestError, 400)
    assert create(sdk, key="typo").status == "succeeded"


def test_a_key_that_is_too_long_is_refused(sdk: stripe.StripeClient) -> None:
    refused(lambda: create(sdk, key="k" * 256), stripe.InvalidRequestError, 400)
    assert create(sdk, key="k" * 255).status == "succeeded"


def test_a_key_in_use_at_this_moment_is_a_409_and_one_payment_comes_of_it() -> None:
    with emulating(latency_s=0.3) as access, ThreadPoolExecutor(4) as pool:
        payments = Payments(access)
        start = threading.Barrier(4)

        def race(_: int) -> str:
            start.wait()
            try:
                return create(payments._stripe, key="race").id
            except stripe.APIError as error:
                return f"{error.http_status} {told(error).code}"

        outcomes = list(pool.map(race, range(4)))
        ids = {outcome for outcome in outcomes if outcome.startswith("pi_")}
        assert len(ids) == 1
        assert set(outcomes) == {*ids, "409 idempotency_key_in_use"}
        assert {create(payments._stripe, key="race").id} == ids
        payments.close()


def test_payments_at_once_do_not_mix(sdk: stripe.StripeClient) -> None:
    amounts = range(100, 140)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda amount: create(sdk, amount=amount), amounts))
    assert [intent.amount for intent in made] == list(amounts)
    assert len({intent.id for intent in made}) == len(made)


def test_two_emulators_share_nothing_and_the_same_key_gives_the_same_id() -> None:
    with emulating() as one, emulating() as two:
        here, there = Payments(one), Payments(two)
        made = create(here._stripe, key="run/arm/0/3/1")
        refused(
            lambda: there._stripe.v1.payment_intents.retrieve(made.id),
            stripe.InvalidRequestError,
            404,
        )
        assert create(there._stripe, key="run/arm/0/3/1").id == made.id
        here.close()
        there.close()
