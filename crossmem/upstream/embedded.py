"""The embedded reference API as the source of a run: a server over a private copy of the tables."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crossmem import __version__
from crossmem.api import tables_of
from crossmem.api.server import serving
from crossmem.client import ApiClient
from crossmem.domains import domain
from crossmem.harness.table_files import private_copy
from crossmem.settings import EMBEDDED

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from threading import Event

    from crossmem.api.payments.access import StripeAccess
    from crossmem.harness.table_files import TableFiles


@dataclass(frozen=True)
class EmbeddedApi:
    """The API of one domain; without `stripe` an emulator takes the payments, where it has any."""

    domain: str
    stripe: StripeAccess | None = None

    def describe(self) -> dict[str, Any]:
        """Return what the config of a run says of it."""
        return {"source": EMBEDDED, "crossmem": __version__}

    def at_once(self, wanted: int, limit: int) -> int:  # noqa: ARG002
        """Return how many of the `wanted` can run at once: a thread each is cheap."""
        return wanted

    @contextmanager
    def serve(
        self,
        tables: Path,
        log: Path | None = None,  # noqa: ARG002
        stop: Event | None = None,  # noqa: ARG002
    ) -> Iterator[tuple[ApiClient, TableFiles]]:
        """Yield a client of a server over a copy of the tables at `tables`, which must not exist."""
        files = private_copy(tables_of(self.domain), tables, domain(self.domain).companions)
        with (
            serving(self.domain, tables, self.stripe) as server,
            ApiClient(server.url, server.admin_token) as api,
        ):
            yield api, files
