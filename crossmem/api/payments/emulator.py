"""A small Stripe on loopback: the slice of its API that the Acme domain uses, and its error shape.

PaymentIntents (create, confirm, read), refunds and idempotency keys, for `sk_test_`/`rk_test_` keys
and the cards in `cards`. Every emulator has its own state; each API key is an account of its own.
Ids follow from the idempotency key, so that a run that is repeated or resumed shows the same ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from crossmem.api.app_thread import AppThread
from crossmem.api.payments import objects
from crossmem.api.payments.access import TEST_KEY, StripeAccess
from crossmem.api.payments.calls import Call, EmulatedError
from crossmem.api.payments.objects import Account, Object

LONGEST_KEY = 255
NOT_YET: tuple[int, Object] = (0, {})

_Action = Callable[[Account, Call], Object]


def _request_id() -> str:
    return f"req_{secrets.token_hex(7)}"


def _headers() -> dict[str, str]:
    return {"Request-Id": _request_id()}


@dataclass
class _Reply:
    """What a request under an idempotency key was, and its answer once there is one."""

    request: tuple[Any, ...]
    request_id: str = field(default_factory=_request_id)
    answer: tuple[int, Object] = NOT_YET

    def response(self, key: str, request_id: str) -> Response:
        """Return the answer to the request `request_id`, the first one or one that came again."""
        status, content = self.answer
        headers = {"Idempotency-Key": key, "Original-Request": self.request_id}
        return JSONResponse(content, status, {"Request-Id": request_id, **headers})


class _Emulator:
    """The endpoints over one state: an account per API key, a reply per key and idempotency key."""

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._accounts: dict[str, Account] = {}
        self._replies: dict[tuple[str, str], _Reply] = {}

    async def read(self, read: _Action, request: Request) -> Response:
        call = Call(request.path_params, dict(parse_qsl(request.url.query)), "")
        return JSONResponse(read(self._account(request), call), headers=_headers())

    async def act(self, act: _Action, request: Request) -> Response:
        account = self._account(request)
        form = dict(parse_qsl((await request.body()).decode(), keep_blank_values=True))
        key = request.headers.get("idempotency-key", "")
        call = Call(request.path_params, form, _seed(key))
        if key:
            return await self._once(act, account, call, request, key)
        await asyncio.sleep(self._latency_s)
        return JSONResponse(act(account, call), headers=_headers())

    def _account(self, request: Request) -> Account:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not key:
            raise EmulatedError("You did not provide an API key.", status=401)
        if not TEST_KEY.fullmatch(key):
            raise EmulatedError("Invalid API Key provided.", status=401)
        return self._accounts.setdefault(key, Account())

    async def _once(
        self, act: _Action, account: Account, call: Call, request: Request, key: str
    ) -> Response:
        """Act under an idempotency key, or give its first answer again.

        Only what was executed is kept, a decline too: a request that fails validation leaves no trace.
        """
        if len(key) > LONGEST_KEY:
            raise EmulatedError(f"Idempotency keys are at most {LONGEST_KEY} characters long.")
        place = (request.headers["authorization"], key)
        asked = (request.url.path, tuple(sorted(call.form.items())))
        if place in self._replies:
            return _replayed(self._replies[place], asked, key)
        reply = self._replies[place] = _Reply(asked)
        try:
            await asyncio.sleep(self._latency_s)
            reply.answer = 200, act(account, call)
        except EmulatedError as refusal:
            if not refusal.executed:
                raise
            reply.answer = refusal.status, {"error": refusal.error}
        finally:
            if reply.answer == NOT_YET:
                del self._replies[place]
        return reply.response(key, reply.request_id)


def create_emulator(latency_s: float = 0.0) -> FastAPI:
    """Return an emulator with no accounts yet, which takes `latency_s` over every POST."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    of = _Emulator(latency_s)
    for path, act in {
        "/v1/payment_intents": objects.create_intent,
        "/v1/payment_intents/{id}/confirm": objects.confirm_intent,
        "/v1/refunds": objects.create_refund,
    }.items():
        app.add_api_route(path, partial(of.act, act), methods=["POST"])
    app.add_api_route("/v1/payment_intents/{id}", partial(of.read, objects.read_intent))
    app.add_api_route("/v1/refunds/{id}", partial(of.read, objects.read_refund))

    @app.exception_handler(EmulatedError)
    async def refused(_request: Request, refusal: EmulatedError) -> Response:
        return JSONResponse({"error": refusal.error}, refusal.status, _headers())

    @app.exception_handler(HTTPException)
    async def no_such_route(request: Request, _error: HTTPException) -> Response:
        error = EmulatedError(f"Unrecognized request URL ({request.method}: {request.url.path}).")
        return JSONResponse({"error": error.error}, 404, _headers())

    return app


@contextlib.contextmanager
def emulating(latency_s: float = 0.0) -> Iterator[StripeAccess]:
    """Run an emulator of its own while the block runs; yield how to reach it."""
    thread = AppThread(create_emulator(latency_s), "Stripe emulator")
    try:
        yield StripeAccess("embedded", thread.url, "sk_test_embedded")
    finally:
        thread.stop()


def _replayed(reply: _Reply, asked: tuple[Any, ...], key: str) -> Response:
    """Return the first answer under an idempotency key once more, if this is the same request."""
    if reply.request != asked:
        raise EmulatedError(
            "Keys for idempotent requests can only be used with the same parameters they were first "
            f"used with. Try using a key other than '{key}' if you meant to execute a different "
            "request.",
            type="idempotency_error",
        )
    if reply.answer == NOT_YET:
        raise EmulatedError(
            "There is currently another in-progress request using this Idempotent Key (that probably "
            "means you submitted twice, and the other request is still going through): "
            f"{key}. Please try again later.",
            "idempotency_key_in_use",
            status=409,
        )
    response = reply.response(key, _request_id())
    response.headers["Idempotent-Replayed"] = "true"
    return response


def _seed(key: str) -> str:
    """Return 24 characters for the ids of what a request makes."""
    return hashlib.sha256(key.encode()).hexdigest()[:24] if key else secrets.token_hex(12)
