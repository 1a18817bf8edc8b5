"""Payments through stripe-python: an intent created and confirmed, a refund, and what went wrong.

This is the one place that speaks to Stripe, the real one in test mode or the emulator alike. No
rule of policy is decided here.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import stripe

from crossmem.api.payments.access import LOOPBACK, StripeAccess
from crossmem.errors import CrossmemError

# Under what a client of the API waits for it.
TIMEOUT_S = 20.0
WAITS_S = (0.2, 0.5)
"""Before a request that Stripe could not serve (429, from 500 on, no connection) is sent again."""

# It would write an id into the home of whoever runs a study, and report durations to Stripe.
stripe.enable_telemetry = False


@dataclass
class PaymentError(Exception):
    """A payment or refund that did not come about, as an HTTP status and one line."""

    status: int
    title: str
    detail: str
    code: str | None = None
    decline_code: str | None = None


class _Transport(stripe.HTTPClient):
    """stripe-python over one httpx client that all threads share and that can be closed."""

    name = "httpx"

    def __init__(self, *, local: bool) -> None:
        super().__init__()
        # Building the context costs more than a request, and a local address does without.
        verify = False if local else ssl.create_default_context(cafile=stripe.ca_bundle_path)
        self._http = httpx.Client(timeout=TIMEOUT_S, trust_env=not local, verify=verify)

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
        *,
        _usage: list[str] | None = None,
    ) -> tuple[str, int, Mapping[str, str]]:
        """Send a request; in passing trouble send it again, under the same idempotency key."""
        for wait in (*WAITS_S, None):
            try:
                answer = self._http.request(method, url, headers=headers, content=post_data)
            except httpx.HTTPError as error:
                if wait is None or isinstance(error, httpx.TimeoutException):
                    # stripe-python leaves its errors without types.
                    raise stripe.APIConnectionError(type(error).__name__) from error  # type: ignore[no-untyped-call]
            else:
                if wait is None or (answer.status_code != 429 and answer.status_code < 500):
                    break
            time.sleep(wait or 0.0)
        return _understandable(answer), answer.status_code, answer.headers

    def close(self) -> None:
        self._http.close()


def _understandable(answer: httpx.Response) -> str:
    """Return the text of an answer; of a refusal in another shape than Stripe's, an empty one in its.

    stripe-python takes it for granted that an `error` is an object.
    """
    if answer.status_code < 400:
        return answer.text
    try:
        known = isinstance(answer.json()["error"], dict)
    except (ValueError, TypeError, KeyError, IndexError):
        known = False
    return answer.text if known else '{"error": {}}'


class Payments:
    """Stripe for one server; made once, for a client costs more than a request."""

    def __init__(self, access: StripeAccess) -> None:
        self._transport = _Transport(local=urlsplit(access.base).hostname in LOOPBACK)
        self._stripe = stripe.StripeClient(
            access.api_key,
            base_addresses={"api": access.base},
            max_network_retries=0,
            http_client=self._transport,
        )

    def check(self) -> None:
        """Raise PaymentError where Stripe is out of reach or does not take the key."""
        try:
            self._stripe.v1.payment_intents.retrieve("pi_none")
        except stripe.InvalidRequestError:
            return  # it was reached, took the key and does not know the intent
        except stripe.StripeError as error:
            raise _failure(error) from None

    def close(self) -> None:
        """Close the connections to Stripe."""
        self._transport.close()

    def charge(
        self, amount: int, currency: str, payment_method: str, metadata: dict[str, str], key: str | None
    ) -> stripe.PaymentIntent:
        """Create and confirm a PaymentIntent over `amount` minor units.

        Raises PaymentError: a decline, a conflict over the idempotency `key`, Stripe out of reach.
        """
        try:
            return self._stripe.v1.payment_intents.create(
                {
                    "amount": amount,
                    "currency": currency,
                    "payment_method": payment_method,
                    # Nobody is there to follow a redirect.
                    "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
                    "confirm": True,
                    "metadata": metadata,
                },
                _options(key),
            )
        except stripe.StripeError as error:
            raise _failure(error) from None

    def refund(self, payment_intent: str, amount: int, reason: Any, key: str | None) -> stripe.Refund:
        """Refund `amount` minor units of a charge; raises PaymentError as `charge` does."""
        try:
            return self._stripe.v1.refunds.create(
                {"payment_intent": payment_intent, "amount": amount, "reason": reason}, _options(key)
            )
        except stripe.StripeError as error:
            raise _failure(error) from None


def check_payments(access: StripeAccess) -> None:
    """Raise CrossmemError where payments cannot be made through `access`, with the reason."""
    with closing(Payments(access)) as payments:
        try:
            payments.check()
        except PaymentError as error:
            raise CrossmemError(f"stripe=test: {error.detail} Nothing was run.") from None


def _options(key: str | None) -> stripe.RequestOptions:
    return {} if key is None else {"idempotency_key": key}


def _failure(error: stripe.StripeError) -> PaymentError:
    """Return what an error of stripe-python says to a client of ours.

    Stripe's own words are passed on only where they concern the payment; the others may speak of
    the key.
    """
    given = error.error
    code = error.code or (given.code if given else None)
    words = error.user_message or "Stripe gave no reason."
    failed, unavailable = "Payment provider failed", "Payment provider unavailable"
    match error:
        case stripe.CardError():
            decline = given.decline_code if given else None
            failure = PaymentError(402, "Payment declined", words, code, decline)
        case stripe.IdempotencyError():
            failure = PaymentError(409, "Idempotency conflict", words, code or "idempotency_error")
        case _ if error.http_status == 409:
            failure = PaymentError(409, "Idempotency conflict", words, code)
        case stripe.InvalidRequestError() if code == "resource_missing":
            failure = PaymentError(404, "Not found at the payment provider", words, code)
        case stripe.InvalidRequestError():
            failure = PaymentError(400, "Refused by the payment provider", words, code)
        case stripe.AuthenticationError() | stripe.PermissionError():
            failure = PaymentError(502, failed, "Stripe does not accept the API key for this.")
        case stripe.RateLimitError():
            failure = PaymentError(503, unavailable, "Stripe limits the rate.")
        case stripe.APIConnectionError():
            failure = PaymentError(503, unavailable, f"Stripe cannot be reached: {words}.")
        case _ if (error.http_status or 0) >= 500:
            failure = PaymentError(502, failed, f"Stripe failed with status {error.http_status}.")
        case _:
            failure = PaymentError(502, failed, "Stripe's answer cannot be understood.")
    return failure
