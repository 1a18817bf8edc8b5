"""The Acme billing domain: its two endpoints, which forward what policy accepts to Stripe."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import APIRouter, Header
from fastapi.responses import Response

from crossmem.api.acme_requests import (
    Charged,
    ChargeRequest,
    Payment,
    Refund,
    RefundMade,
    RefundRequest,
)
from crossmem.api.acme_rules import SPECS, judge_charge, judge_refund
from crossmem.api.domain import ApiDomain
from crossmem.api.problem import (
    FinalRefusal,
    PaymentProblem,
    Problem,
    Refusal,
    Verdict,
    payment_problem,
    refused,
)
from crossmem.api.tables import Tables, TableStore

if TYPE_CHECKING:
    from crossmem.api.payments import Payments

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        pattern="^[!-~]{1,255}$",
        description="Passed on to Stripe: the same request is then carried out once.",
    ),
]

RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {
        "model": Problem | PaymentProblem,
        "description": "The body is not JSON; or Stripe refused the request.",
    },
    402: {"model": PaymentProblem, "description": "The card was declined."},
    404: {"model": PaymentProblem, "description": "Stripe knows no such PaymentIntent."},
    409: {"model": PaymentProblem, "description": "The idempotency key is in use."},
    422: {
        "model": Refusal | FinalRefusal | Problem,
        "description": "Refused by policy, with `recovery_feedback` if a change of the request "
        "would help; or off the schema.",
    },
    502: {"model": PaymentProblem, "description": "Stripe failed."},
    503: {"model": PaymentProblem, "description": "Stripe cannot be reached."},
}


def routes(store: TableStore, payments: Payments | None) -> APIRouter:
    """Return the domain's endpoints, bound to the tables of one server and to Stripe."""
    router = APIRouter()

    # Not `async`: while Stripe takes its time, the server answers others.
    @router.post("/billing/charges", response_model=Charged, responses=RESPONSES)
    def charge(body: ChargeRequest, idempotency_key: Key = None) -> Charged | Response:
        """Charge a customer for a plan. What policy accepts is paid through Stripe at once."""

        def pay(through: Payments, versions: dict[str, str]) -> Charged:
            details = {"customer": body.customer, "plan_id": body.plan_id}
            intent = through.charge(
                body.amount, body.currency, body.payment_method, details, idempotency_key
            )
            paid = Payment(
                payment_intent=intent.id,
                status=intent.status,
                amount=intent.amount,
                currency=intent.currency,
                customer=body.customer,
                plan_id=body.plan_id,
                tier=body.tier,
                billing_interval=body.billing_interval,
                seats=body.seats,
                promo_codes=body.promo_codes,
            )
            return Charged(result=paid, table_versions=versions)

        return _handled(body, store.tables, judge_charge, payments, pay)

    @router.post("/billing/refunds", response_model=RefundMade, responses=RESPONSES)
    def refund(body: RefundRequest, idempotency_key: Key = None) -> RefundMade | Response:
        """Refund a charge, in part or in full."""

        def pay(through: Payments, versions: dict[str, str]) -> RefundMade:
            made = through.refund(body.payment_intent, body.amount, body.reason, idempotency_key)
            result = Refund(
                refund=made.id,
                status=made.status or "unknown",
                payment_intent=body.payment_intent,
                amount=made.amount,
                currency=made.currency,
                reason=body.reason,
            )
            return RefundMade(result=result, table_versions=versions)

        return _handled(body, store.tables, judge_refund, payments, pay)

    return router


def _handled(
    body: Asked,
    tables: Tables,
    judge: Callable[[Asked, Tables], Verdict],
    payments: Payments | None,
    pay: Callable[[Payments, dict[str, str]], Answer],
) -> Answer | Response:
    """Judge a request, pay if policy accepts it, and say what happened."""
    verdict = judge(body, tables)
    versions = {name: tables[name].version for name in verdict.consulted}
    if not verdict.accepted:
        return refused(verdict, versions)
    if payments is None:
        raise RuntimeError("this server was made without payments")
    from crossmem.api.payments import PaymentError

    try:
        return pay(payments, versions)
    except PaymentError as error:
        said = PaymentProblem(
            title=error.title,
            status=error.status,
            detail=error.detail,
            code=error.code,
            decline_code=error.decline_code,
            table_versions=versions,
        )
        return payment_problem(said)


EXAMPLE = {
    "customer": "Fernhill Optics",
    "plan_id": "scale",
    "tier": "enterprise",
    "billing_interval": "monthly",
    "seats": 40,
    "amount": 480000,
    "currency": "usd",
    "payment_method": "pm_card_mastercard_prepaid",
    "promo_codes": [],
}

DOMAIN = ApiDomain(
    name="acme",
    title="Acme billing",
    tables=SPECS,
    routes=routes,
    example=("/billing/charges", EXAMPLE),
    takes_payments=True,
)
