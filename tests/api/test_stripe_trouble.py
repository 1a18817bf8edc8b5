"""Stripe out of reach, failing or slow: what a client of the Acme API sees of it."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from crossmem.api.app_thread import AppThread
from crossmem.api.payments.access import StripeAccess
from crossmem.api.payments.emulator import emulating
from crossmem.api.server import serving

from .acme import CHARGES, FUNDING, charge, copied
from .helpers import client_of
from .test_http_contract import assert_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEY = "sk_test_SECRETSECRET"


@contextmanager
def charging_at(respond: Callable[..., Any]) -> Iterator[StripeAccess]:
    """Run a Stripe that answers every charge with what `respond` returns."""
    app = FastAPI(openapi_url=None)
    app.post("/v1/payment_intents")(respond)
    fake = AppThread(app, "Stripe in trouble")
    try:
        yield StripeAccess("test", fake.url, KEY)
    finally:
        fake.stop()


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return copied(tmp_path / "acme")


def test_stripe_out_of_reach_is_a_503_with_the_reason_in_one_line(tables: Path) -> None:
    # Nothing listens on this port.
    nowhere = StripeAccess("test", "http://127.0.0.1:1", KEY)
    with serving("acme", tables, nowhere) as server, client_of(server) as client:
        content = assert_problem(client.post(CHARGES, json=charge()), 503)
        assert content["detail"] == "Stripe cannot be reached: ConnectError."
        assert content["table_versions"] == {FUNDING: "1.0.0"}
        assert KEY not in str(content)


STRIPE_ERROR = json.dumps({"error": {"type": "api_error", "message": f"Invalid API Key: {KEY}"}})


@pytest.mark.parametrize(
    ("status", "body", "answer", "detail", "times"),
    [
        (500, STRIPE_ERROR, 502, "Stripe failed with status 500.", 3),
        (503, STRIPE_ERROR, 502, "Stripe failed with status 503.", 3),
        (502, "<html>", 502, "Stripe failed with status 502.", 3),
        (200, "<html>", 502, "Stripe's answer cannot be understood.", 1),
        (401, STRIPE_ERROR, 502, "Stripe does not accept the API key for this.", 1),
        (403, STRIPE_ERROR, 502, "Stripe does not accept the API key for this.", 1),
        (429, STRIPE_ERROR, 503, "Stripe limits the rate.", 3),
        (401, '{"error": "denied"}', 502, "Stripe does not accept the API key for this.", 1),
        (401, "[]", 502, "Stripe does not accept the API key for this.", 1),
        (403, "<html>", 502, "Stripe does not accept the API key for this.", 1),
        (503, '{"error": null}', 502, "Stripe failed with status 503.", 3),
    ],
)
def test_stripe_in_trouble_is_asked_again_where_it_may_pass_and_told_in_one_line(
    tables: Path, status: int, body: str, answer: int, detail: str, times: int
) -> None:
    keys = []

    def trouble(request: Request) -> Response:
        keys.append(request.headers["idempotency-key"])
        return Response(body, status, media_type="application/json")

    with (
        charging_at(trouble) as access,
        serving("acme", tables, access) as server,
        client_of(server) as client,
    ):
        content = assert_problem(client.post(CHARGES, json=charge()), answer)
    assert content["detail"] == detail
    assert len(keys) == times
    assert len(set(keys)) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_passes_at_once_costs_nobody_an_attempt(tables: Path, status: int) -> None:
    """Stripe fails before and after it took the charge; under its key it is charged once."""
    with emulating() as stripe:
        troubles, charged = iter(["before", "after", "never"]), []

        async def passing(request: Request) -> Response:
            when = next(troubles)
            if when != "before":
                url = f"{stripe.base}/v1/payment_intents"
                headers = {k: v for k, v in request.headers.items() if k != "host"}
                async with httpx.AsyncClient() as client:
                    taken = await client.post(url, content=await request.body(), headers=headers)
                charged.append(taken.json()["id"])
            if when != "never":
                return Response(STRIPE_ERROR, status)
            return Response(taken.content, taken.status_code, media_type="application/json")

        with (
            charging_at(passing) as access,
            serving("acme", tables, access) as server,
            client_of(server) as client,
        ):
            answer = client.post(CHARGES, json=charge())
    assert answer.status_code == 200, answer.text
    assert len(charged) == 2
    assert len(set(charged)) == 1


def test_a_slow_stripe_does_not_hold_up_other_requests(tables: Path) -> None:
    let_go = threading.Event()

    def slow() -> Response:
        let_go.wait(30)
        return Response("{}", 500)

    with (
        charging_at(slow) as access,
        serving("acme", tables, access) as server,
        client_of(server) as client,
    ):
        waiting = threading.Thread(target=client.post, args=(CHARGES,), kwargs={"json": charge()})
        waiting.start()
        try:
            assert client.get("/healthz").json()["domain"] == "acme"
            assert waiting.is_alive()
        finally:
            let_go.set()
            waiting.join(10)
