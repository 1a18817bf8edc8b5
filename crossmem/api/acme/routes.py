"""The two endpoints of Acme billing, which forward what policy accepts to Stripe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Header
from fastapi.responses import Response
from pydantic import BaseModel

from crossmem.api.acme.requests import (
    Charged,
    ChargeRequest,
    Payment,
    Refund,
    RefundMade,
    RefundRequest,
)
from crossmem.api.acme.rules import judge_charge, judge_refund
from crossmem.api.problem import (
    FinalRefusal,
    PaymentProblem,
    PolicyVerdict,
    Problem,
    ProblemResponse,
    Refusal,
    refused,
)
from crossmem.api.tables import ServedTables, TableStore, versions_of

if TYPE_CHECKING:
    from crossmem.api.payments.payments import Payments

IdempotencyKey = Annotated[
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
    def charge(body: ChargeRequest, idempotency_key: IdempotencyKey = None) -> object:
        """Charge a customer for a plan. What policy accepts is paid through Stripe at once."""

        def pay(through: Payments, versions: dict[str, str]) -> Charged:
            details = {"customer": body.customer, "plan_id": body.plan_id}
            intent = through.charge(
                body.amount, body.currency, body.payment_method, details, idempotency_key
            )
            asked = body.model_dump(exclude={"amount", "currency", "payment_method", "csm_code"})
            paid = Payment(
                payment_intent=intent.id,
                status=intent.status,
                amount=intent.amount,
                currency=intent.currency,
                **asked,
            )
            return Charged(result=paid, table_versions=versions)

        tables = store.tables
        return _handled(judge_charge(body, tables), tables, payments, pay)

    @router.post("/billing/refunds", response_model=RefundMade, responses=RESPONSES)
    def refund(body: RefundRequest, idempotency_key: IdempotencyKey = None) -> object:
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

        tables = store.tables
        return _handled(judge_refund(body, tables), tables, payments, pay)

    return router


def _handled(
    verdict: PolicyVerdict,
    tables: ServedTables,
    payments: Payments | None,
    pay: Callable[[Payments, dict[str, str]], BaseModel],
) -> BaseModel | Response:
    """Refuse what policy does not accept; else pay, and answer with what happened."""
    versions = versions_of(tables, verdict.consulted)
    if not verdict.accepted:
        return refused(verdict, versions)
    if payments is None:
        raise RuntimeError("this server was made without payments")
    from crossmem.api.payments.payments import PaymentError  # loads stripe-python, which takes long

    try:
        return pay(payments, versions)
    except PaymentError as error:
        content = PaymentProblem(**asdict(error), table_versions=versions)
        return ProblemResponse(content.model_dump(exclude_none=True), error.status)
