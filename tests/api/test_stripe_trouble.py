"""Stripe out of reach, failing or slow: what a client of the Acme API sees of it."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import pytest
from fastapi import FastAPI, Response

from crossmem.api.app_thread import AppThread
from crossmem.api.payments.access import StripeAccess
from crossmem.api.server import serving

from .acme import CHARGES, FUNDING, charge, copied
from .helpers import client_of
from .test_http_contract import assert_problem

if TYPE_CHECKING:
    from pathlib import Path

KEY = "sk_test_SECRETSECRET"


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
    ("status", "body", "answer", "detail"),
    [
        (500, STRIPE_ERROR, 502, "Stripe failed with status 500."),
        (503, STRIPE_ERROR, 502, "Stripe failed with status 503."),
        (502, "<html>", 502, "Stripe failed with status 502."),
        (200, "<html>", 502, "Stripe's answer cannot be understood."),
        (401, STRIPE_ERROR, 502, "Stripe does not accept the API key for this."),
        (403, STRIPE_ERROR, 502, "Stripe does not accept the API key for this."),
        (429, STRIPE_ERROR, 503, "Stripe limits the rate."),
    ],
)
def test_stripe_in_trouble_is_told_in_one_line_and_asked_once(
    tables: Path, status: int, body: str, answer: int, detail: str
) -> None:
    asked = []
    app = FastAPI(openapi_url=None)

    @app.post("/v1/payment_intents")
    def trouble() -> Response:
        asked.append(1)
        return Response(body, status, media_type="application/json")

    fake = AppThread(app, "Stripe in trouble")
    try:
        access = StripeAccess("test", fake.url, KEY)
        with serving("acme", tables, access) as server, client_of(server) as client:
            content = assert_problem(client.post(CHARGES, json=charge()), answer)
    finally:
        fake.stop()
    assert content["detail"] == detail
    assert asked == [1]


def test_a_slow_stripe_does_not_hold_up_other_requests(tables: Path) -> None:
    let_go = threading.Event()
    app = FastAPI(openapi_url=None)

    @app.post("/v1/payment_intents")
    def slow() -> Response:
        let_go.wait(30)
        return Response("{}", 500)

    fake = AppThread(app, "slow Stripe")
    try:
        access = StripeAccess("test", fake.url, KEY)
        with serving("acme", tables, access) as server, client_of(server) as client:
            waiting = threading.Thread(target=client.post, args=(CHARGES,), kwargs={"json": charge()})
            waiting.start()
            assert client.get("/healthz").json()["domain"] == "acme"
            assert waiting.is_alive()
            let_go.set()
            waiting.join(10)
    finally:
        let_go.set()
        fake.stop()
