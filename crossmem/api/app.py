"""The ASGI application of one domain over one table folder: routes, error answers, OpenAPI.

HTTP only. Rules live in the domain modules, wording on the wire in `problem`, tables in `tables`.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.security import APIKeyHeader
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from crossmem.api.domain import load_domain
from crossmem.api.problem import FieldError, Problem, pointer, problem
from crossmem.api.tables import TableChange, TableError, TableStore, versions_of

if TYPE_CHECKING:
    from crossmem.api.payments.payments import Payments

DESCRIPTION = """\
A self-reflective API: a request that breaks a rule is answered with the literal values that mend \
it (`recovery_feedback`), and with the version of every table that was consulted. \
Schema v0.1, reconstructed from what is public about the upstream API."""

# Answers name the first errors only: a hostile body could have one per byte.
MOST_ERRORS = 50

# FastAPI filters warnings while it builds routes, and the filters belong to the whole process.
_BUILDING = threading.Lock()

Token = Annotated[
    str | None,
    Depends(
        APIKeyHeader(
            name="X-Admin-Token",
            scheme_name="AdminToken",
            description="A fresh random token per server, known to who started it.",
            auto_error=False,
        )
    ),
]


class Health(BaseModel):
    """Who answers here."""

    name: str
    domain: str


class TableVersions(BaseModel):
    """The version of each table in force."""

    table_versions: dict[str, str]


class Reloaded(BaseModel):
    """The tables whose content or version a reload found changed."""

    reloaded: list[TableChange]


class ReferenceAPI(FastAPI):
    """FastAPI, with the media type of errors told right in the OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        """Return the document; FastAPI files every response under the success media type."""
        with _BUILDING:  # the document is built when it is first asked for
            document = super().openapi()
        for operations in document["paths"].values():
            for operation in operations.values():
                for status, response in operation["responses"].items():
                    content = response.get("content", {})
                    if int(status) >= 400 and "application/json" in content:
                        content["application/problem+json"] = content.pop("application/json")
        return document


def create_app(
    domain: str, tables: Path, admin_token: str, payments: Payments | None = None
) -> FastAPI:
    """Return the application of `domain`, serving from the table files in the folder `tables`.

    The folder is read now and on every reload, never written. `admin_token` opens `/admin/reload`.
    `payments` is where a domain that takes payments sends them; without it, it takes none.

    Raises InputError for an unknown domain and TableError for a bad table file.
    """
    chosen = load_domain(domain)
    store = TableStore(tables, chosen.tables)
    with _BUILDING:
        app = ReferenceAPI(
            title=f"crossmem reference API: {chosen.title}",
            version="0.1",
            description=DESCRIPTION,
            docs_url=None,
            redoc_url=None,
            # "/tables/" is an unknown route and answered as one.
            redirect_slashes=False,
            # Spans nobody collects cost time on every request.
            telemetry={
                "tracing": False,
                "metrics": False,
                "logs": False,
                "operation_spans": False,
                "auto_configure": False,
            },
        )
        # Not `include_router`: it builds the routes once more at the first request, outside any lock.
        app.router.routes.extend(chosen.routes(store, payments).routes)
        _add_reading(app, domain, store)
        _add_reload(app, store, admin_token.encode())
    _add_errors(app)
    return app


def _add_reading(app: FastAPI, domain: str, store: TableStore) -> None:
    @app.get("/healthz")
    async def healthz() -> Health:
        """Tell that the server is up, and for which domain."""
        return Health(name="crossmem reference API", domain=domain)

    @app.get("/tables")
    async def table_versions() -> TableVersions:
        """Tell the version of every table (an extension of ours)."""
        tables = store.tables
        return TableVersions(table_versions=versions_of(tables, tables))

    @app.get("/", include_in_schema=False)
    async def home() -> RedirectResponse:
        return RedirectResponse("/openapi.json")


def _add_reload(app: FastAPI, store: TableStore, admin_token: bytes) -> None:
    @app.post(
        "/admin/reload",
        response_model=Reloaded,
        responses={
            403: {"model": Problem, "description": "The admin token is missing or wrong."},
            409: {"model": Problem, "description": "A table file is bad; the old tables stay."},
        },
    )
    def reload(token: Token) -> Reloaded | Response:
        """Read the table files again, all or nothing, and tell what changed."""
        # As bytes: comparing texts in constant time is limited to ASCII.
        if not secrets.compare_digest((token or "").encode(), admin_token):
            return problem(403, "Forbidden", "This needs the right X-Admin-Token header.")
        try:
            return Reloaded(reloaded=store.reload())
        except TableError as error:
            return problem(409, "Tables not reloaded", str(error))


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def off_schema(_request: Request, error: RequestValidationError) -> Response:
        errors = error.errors()
        if any(found["type"] == "json_invalid" for found in errors):
            return _malformed()
        told = [_field_error(found) for found in errors[:MOST_ERRORS]]
        detail = "The body or a header does not have the schema of this request."
        return problem(422, "Invalid request", detail, errors=told)

    @app.exception_handler(HTTPException)
    async def http_error(_request: Request, error: HTTPException) -> Response:
        # FastAPI's answer to bytes that are no text, and to nesting without end.
        if error.status_code == 400:
            return _malformed()
        title = str(error.detail)
        return problem(error.status_code, title, f"{title}.", headers=error.headers)

    @app.exception_handler(Exception)
    async def failure(_request: Request, _error: Exception) -> Response:
        # The traceback goes to uvicorn's log, never into a body. uvicorn then hangs up, so say so:
        # a client must not send its next request on this connection.
        title, detail = "Internal Server Error", "The server failed on this request."
        return problem(500, title, detail, headers={"Connection": "close"})


def _field_error(found: Mapping[str, Any]) -> FieldError:
    # The first part of a place says "body"; it is no part of the body.
    where, *place = found["loc"]
    if where == "body":
        return FieldError(field=pointer(*place), message=found["msg"])
    return FieldError(field="", message=f"{where} {pointer(*place)[1:]}: {found['msg']}")


def _malformed() -> Response:
    return problem(400, "Malformed JSON", "The body is not a JSON document.")
