"""One real server over a private copy of the packaged recipe tables, and one embedded Stripe."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crossmem.api import tables_of
from crossmem.api.payments.emulator import emulating
from crossmem.api.payments.payments import Payments
from crossmem.api.server import ApiServer, serving

from .helpers import client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx
    import stripe

    from crossmem.api.payments.access import StripeAccess


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return Path(shutil.copytree(tables_of("recipe"), tmp_path / "recipe"))


@pytest.fixture
def server(tables: Path) -> Iterator[ApiServer]:
    with serving("recipe", tables) as running:
        yield running


@pytest.fixture
def client(server: ApiServer) -> Iterator[httpx.Client]:
    with client_of(server) as opened:
        yield opened


@pytest.fixture(scope="module")
def access() -> Iterator[StripeAccess]:
    with emulating() as reached:
        yield reached


@pytest.fixture(scope="module")
def sdk(access: StripeAccess) -> Iterator[stripe.StripeClient]:
    payments = Payments(access)
    yield payments._stripe
    payments.close()
