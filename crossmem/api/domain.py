"""What a domain gives the API, and how one is found by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter

from crossmem.api import tables_of
from crossmem.api.tables import TableSpec, TableStore

if TYPE_CHECKING:
    from crossmem.api.payments.payments import Payments


@dataclass(frozen=True)
class ApiDomain:
    """What the module of a domain exports as `DOMAIN`.

    `routes` binds the domain's endpoints to the tables of one server and, where the domain takes
    payments, to Stripe.
    """

    title: str
    tables: tuple[TableSpec, ...]
    routes: Callable[[TableStore, Payments | None], APIRouter]
    takes_payments: bool = False


def load_domain(name: str) -> ApiDomain:
    """Return the domain called `name`; raises InputError for an unknown one."""
    tables_of(name)  # no name but that of a data folder is ever imported
    domain: ApiDomain = importlib.import_module(f"crossmem.api.{name}").DOMAIN
    return domain
