"""A reference API that runs: in a thread for the study, in the foreground for a person."""

from __future__ import annotations

import contextlib
import secrets
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from crossmem.api.app import create_app
from crossmem.api.app_thread import AppThread
from crossmem.api.domain import load_domain

if TYPE_CHECKING:
    from crossmem.api.payments.access import StripeAccess
    from crossmem.api.payments.payments import Payments


class ApiServer(AppThread):
    """One running reference API. Made by `serving`; shares nothing with other servers."""

    def __init__(
        self, domain: str, tables: Path, port: int = 0, payments: Payments | None = None
    ) -> None:
        """Start it, and return when it answers; `port` 0 takes a free one."""
        self.admin_token = secrets.token_urlsafe(24)
        """What `/admin/reload` wants in X-Admin-Token: fresh, and in no repr."""
        super().__init__(create_app(domain, tables, self.admin_token, payments), "API server", port)


@contextlib.contextmanager
def serving(
    domain: str, tables: Path, stripe: StripeAccess | None = None, *, port: int = 0
) -> Iterator[ApiServer]:
    """Run a server for `domain` over the table folder `tables` while the block runs.

    `tables` holds the `<table>.json` files of the domain and is this server's own: the caller
    copies the packaged folder (`tables_of`), swaps files in it and asks for a reload. A domain that
    takes payments reaches Stripe through `stripe`; without it an emulator of its own runs beside
    the server. All of it has stopped when the block is left, by an exception too.

    Raises InputError for an unknown domain or a `port` that cannot be had (0 takes a free one), and
    CrossmemError with the reason if it cannot start.
    """
    # Left in reverse: the API first, so that no request of its own finds Stripe gone.
    with contextlib.ExitStack() as stack:
        payments = None
        if load_domain(domain).takes_payments:
            from crossmem.api.payments.payments import Payments

            if stripe is None:
                from crossmem.api.payments.emulator import emulating

                stripe = stack.enter_context(emulating())
            payments = stack.enter_context(contextlib.closing(Payments(stripe)))
        server = ApiServer(domain, tables, port, payments)
        stack.callback(server.stop)
        yield server


def serve(domain: str, port: int, tables: Path) -> None:
    """Run a server over the table folder `tables` for a person to explore, until Ctrl-C.

    `port` 0 takes a free port. Payments go to an emulator.

    Raises InputError if the port cannot be had or the domain is unknown.
    """
    with serving(domain, tables, port=port) as server:
        click.echo(_greeting(server, tables))
        # Ctrl-C is how this ends, not an error.
        with contextlib.suppress(KeyboardInterrupt):
            while server.alive:
                server.wait(0.5)
        click.echo("stopped")


def _greeting(server: ApiServer, tables: Path) -> str:
    second = (path for name in ("2.0.0", "v2") for path in tables.glob(f"*.snapshots/{name}.json"))
    drifting = min(second, default=None)
    copy = ""
    if drifting is not None:
        table = drifting.parent.name.removesuffix(".snapshots")
        copy = f"  {shlex.join(['cp', str(drifting), str(tables / f'{table}.json')])}\n"
    return f"""\
serving      {server.url}
described    {server.url}/openapi.json
tables       {tables}
admin token  {server.admin_token}

Swap a table file, then have it read:

{copy}  curl -X POST -H 'X-Admin-Token: {server.admin_token}' {server.url}/admin/reload

Ctrl-C stops it."""
