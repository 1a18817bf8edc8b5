"""A reference API that runs: in a thread for the study, in the foreground for a person."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from crossmem.api import tables_of
from crossmem.api.app import create_app
from crossmem.api.background import AppThread
from crossmem.api.domain import load

if TYPE_CHECKING:
    from crossmem.api.payments import Payments
    from crossmem.api.stripe_access import StripeAccess

_BUILDING = threading.Lock()
"""FastAPI filters warnings while it builds an app, and the filters belong to the whole process."""


class Server(AppThread):
    """One running reference API. Made by `serving`; shares nothing with other servers."""

    def __init__(
        self, domain: str, tables: Path, port: int = 0, payments: Payments | None = None
    ) -> None:
        """Start it, and return when it answers; `port` 0 takes a free one."""
        self.admin_token = secrets.token_urlsafe(24)
        """What `/admin/reload` wants in X-Admin-Token: fresh, and in no repr."""
        with _BUILDING:
            app = create_app(domain, tables, self.admin_token, payments)
        described = app.openapi

        def described_alone() -> dict[str, Any]:
            with _BUILDING:  # the document is built when it is first asked for
                return described()

        app.openapi = described_alone  # type: ignore[method-assign]
        super().__init__(app, "API server", port)


@contextlib.contextmanager
def serving(domain: str, tables: Path, stripe: StripeAccess | None = None) -> Iterator[Server]:
    """Run a server for `domain` over the table folder `tables` while the block runs.

    `tables` holds the `<table>.json` files of the domain and is this server's own: the caller
    copies the packaged folder (`tables_of`), swaps files in it and asks for a reload. A domain that
    takes payments reaches Stripe through `stripe`; without it an emulator of its own runs beside
    the server. All of it has stopped when the block is left, by an exception too.

    Raises InputError for an unknown domain, and CrossmemError with the reason if it cannot start.
    """
    with _running(domain, tables, stripe=stripe) as server:
        yield server


def serve(domain: str, port: int, tables: Path | None = None) -> None:
    """Run a server in the foreground for a person to explore, until Ctrl-C.

    It serves a temporary copy of the packaged tables, or the folder `tables` itself; `port` 0
    takes a free port. Payments go to an emulator.

    Raises InputError if the port cannot be had or the domain is unknown.
    """
    with contextlib.ExitStack() as stack:
        if tables is None:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="crossmem-"))
            tables = Path(shutil.copytree(tables_of(domain), Path(temporary) / domain))
        server = stack.enter_context(_running(domain, tables, port))
        click.echo(_greeting(server, domain, tables))
        # Ctrl-C is how this ends, not an error.
        with contextlib.suppress(KeyboardInterrupt):
            while server.alive:
                server.wait(0.5)
        click.echo("stopped")


@contextlib.contextmanager
def _running(
    domain: str, tables: Path, port: int = 0, stripe: StripeAccess | None = None
) -> Iterator[Server]:
    # Left in reverse: the API first, so that no request of its own finds Stripe gone.
    with contextlib.ExitStack() as stack:
        payments = stack.enter_context(_paying(stripe)) if load(domain).takes_payments else None
        server = Server(domain, tables, port, payments)
        stack.callback(server.stop)
        yield server


@contextlib.contextmanager
def _paying(stripe: StripeAccess | None) -> Iterator[Payments]:
    from crossmem.api.payments import Payments

    with contextlib.ExitStack() as stack:
        if stripe is None:
            from crossmem.api.stripe_emulator import emulating

            stripe = stack.enter_context(emulating())
        payments = Payments(stripe)
        stack.callback(payments.close)
        yield payments


def _greeting(server: Server, domain: str, tables: Path) -> str:
    second = (path for name in ("2.0.0", "v2") for path in tables.glob(f"*.snapshots/{name}.json"))
    drifting = min(second, default=None)
    lines = [
        f"serving      {server.url}",
        f"described    {server.url}/openapi.json",
        f"tables       {tables}",
        f"admin token  {server.admin_token}",
        "",
        "Send a request that is refused with a suggestion:",
        "",
        "  " + shlex.join(_example(server.url, domain)),
        "",
        "Swap a table file, then have it read:",
        "",
    ]
    if drifting is not None:
        table = drifting.parent.name.removesuffix(".snapshots")
        lines.append("  " + shlex.join(["cp", str(drifting), str(tables / f"{table}.json")]))
    lines += [
        f"  curl -X POST -H 'X-Admin-Token: {server.admin_token}' {server.url}/admin/reload",
        "",
        "Ctrl-C stops it.",
    ]
    return "\n".join(lines)


def _example(url: str, domain: str) -> list[str]:
    path, body = load(domain).example
    return ["curl", "-H", "Content-Type: application/json", f"{url}{path}", "-d", json.dumps(body)]
