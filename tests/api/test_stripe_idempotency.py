"""Idempotency keys of the embedded Stripe, spoken to through stripe-python alone."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import stripe

from crossmem.api.payments.emulator import emulating
from crossmem.api.payments.payments import Payments

from .stripe_calls import create, invalid, refund_of, refused, told


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


def test_a_request_that_failed_validation_does_not_use_up_its_key(sdk: stripe.StripeClient) -> None:
    invalid(lambda: create(sdk, key="typo", amount=1))
    assert create(sdk, key="typo").status == "succeeded"


def test_a_key_that_is_too_long_is_refused(sdk: stripe.StripeClient) -> None:
    invalid(lambda: create(sdk, key="k" * 256))
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
        invalid(lambda: there._stripe.v1.payment_intents.retrieve(made.id), 404)
        assert create(there._stripe, key="run/arm/0/3/1").id == made.id
        here.close()
        there.close()
