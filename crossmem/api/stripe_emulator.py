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
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from crossmem.api import stripe_objects as objects
from crossmem.api.background import AppThread
from crossmem.api.stripe_access import TEST_KEY, StripeAccess
from crossmem.api.stripe_call import Call, EmulatedError
from crossmem.api.stripe_objects import Account, Object

LONGEST_KEY = 255


@dataclass
class _Reply:
    """What a request under an idempotency key was, and its answer once there is one."""

    request: tuple[Any, ...]
    request_id: str
    answer: tuple[int, Object] | None = None


@dataclass
class _State:
    accounts: dict[str, Account] = field(default_factory=dict)
    replies: dict[tuple[str, str], _Reply] = field(default_factory=dict)


def create_emulator(latency_s: float = 0.0) -> FastAPI:
    """Return an emulator with no accounts yet, which takes `latency_s` over every POST."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    state = _State()

    def reading(read: Callable[[Account, Call], Object]) -> Callable[..., Any]:
        async def answer(request: Request) -> Response:
            account = _account(state, request)
            call = Call(request.path_params, dict(parse_qsl(request.url.query)), "")
            return JSONResponse(read(account, call), headers=_request_id())

        return answer

    def acting(act: Callable[[Account, Call], Object]) -> Callable[..., Any]:
        async def answer(request: Request) -> Response:
            account = _account(state, request)
            form = dict(parse_qsl((await request.body()).decode(), keep_blank_values=True))
            key = request.headers.get("idempotency-key", "")
            call = Call(request.path_params, form, _seed(key))
            if not key:
                await asyncio.sleep(latency_s)
                return JSONResponse(act(account, call), headers=_request_id())
            with _under_key(state, request, call, key) as reply:
                if reply.answer is None:
                    await asyncio.sleep(latency_s)
                    reply.answer = _executed(act, account, call)
                    return _told(reply, key)
                return _told(reply, key, replayed=True)

        return answer

    for path, endpoint in {
        "/v1/payment_intents": acting(objects.create_intent),
        "/v1/payment_intents/{id}/confirm": acting(objects.confirm_intent),
        "/v1/refunds": acting(objects.create_refund),
    }.items():
        app.add_api_route(path, endpoint, methods=["POST"])
    app.add_api_route("/v1/payment_intents/{id}", reading(objects.read_intent))
    app.add_api_route("/v1/refunds/{id}", reading(objects.read_refund))

    @app.exception_handler(EmulatedError)
    async def refused(_request: Request, refusal: EmulatedError) -> Response:
        return JSONResponse({"error": refusal.error}, refusal.status, _request_id())

    @app.exception_handler(HTTPException)
    async def no_such_route(request: Request, _error: HTTPException) -> Response:
        message = f"Unrecognized request URL ({request.method}: {request.url.path})."
        error = {"type": "invalid_request_error", "message": message}
        return JSONResponse({"error": error}, 404, _request_id())

    return app


@contextlib.contextmanager
def emulating(latency_s: float = 0.0) -> Iterator[StripeAccess]:
    """Run an emulator of its own while the block runs; yield how to reach it."""
    thread = AppThread(create_emulator(latency_s), "Stripe emulator")
    try:
        yield StripeAccess("embedded", thread.url, "sk_test_embedded")
    finally:
        thread.stop()


def _account(state: _State, request: Request) -> Account:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme != "Bearer" or not key:
        raise EmulatedError(401, "You did not provide an API key.")
    if not TEST_KEY.fullmatch(key):
        raise EmulatedError(401, "Invalid API Key provided.")
    return state.accounts.setdefault(key, Account())


@contextlib.contextmanager
def _under_key(state: _State, request: Request, call: Call, key: str) -> Iterator[_Reply]:
    """Yield the reply under an idempotency key; forget it if there is no answer to keep.

    Only what was executed is kept, a decline too: a request that fails validation, or that comes
    while the first one is still being executed, leaves no trace.
    """
    if len(key) > LONGEST_KEY:
        raise EmulatedError(400, f"Idempotency keys are at most {LONGEST_KEY} characters long.")
    place = (request.headers["authorization"], key)
    asked = (request.url.path, tuple(sorted(call.form.items())))
    reply = state.replies.setdefault(place, _Reply(asked, ""))
    if reply.request != asked:
        raise EmulatedError(
            400,
            "Keys for idempotent requests can only be used with the same parameters they were first "
            f"used with. Try using a key other than '{key}' if you meant to execute a different "
            "request.",
            type="idempotency_error",
        )
    if reply.request_id and reply.answer is None:
        raise EmulatedError(
            409,
            "There is currently another in-progress request using this Idempotent Key (that probably "
            "means you submitted twice, and the other request is still going through): "
            f"{key}. Please try again later.",
            code="idempotency_key_in_use",
        )
    if not reply.request_id:
        reply.request_id = _request_id()["Request-Id"]
    try:
        yield reply
    finally:
        if reply.answer is None:
            del state.replies[place]


def _executed(
    act: Callable[[Account, Call], Object], account: Account, call: Call
) -> tuple[int, Object]:
    try:
        return 200, act(account, call)
    except EmulatedError as refusal:
        if not refusal.executed:
            raise
        return refusal.status, {"error": refusal.error}


def _told(reply: _Reply, key: str, *, replayed: bool = False) -> Response:
    if reply.answer is None:
        raise RuntimeError("nothing was executed")
    status, content = reply.answer
    headers = _request_id() if replayed else {"Request-Id": reply.request_id}
    headers |= {"Idempotency-Key": key, "Original-Request": reply.request_id}
    if replayed:
        headers["Idempotent-Replayed"] = "true"
    return JSONResponse(content, status, headers)


def _request_id() -> dict[str, str]:
    return {"Request-Id": f"req_{secrets.token_hex(7)}"}


def _seed(key: str) -> str:
    """Return 24 characters for the ids of what a request makes."""
    return hashlib.sha256(key.encode()).hexdigest()[:24] if key else secrets.token_hex(12)
