"""What a domain gives the API, and how one is found by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter

from crossmem.api import DOMAINS
from crossmem.api.tables import TableSpec, TableStore
from crossmem.errors import unknown

if TYPE_CHECKING:
    from crossmem.api.payments import Payments


@dataclass(frozen=True)
class ApiDomain:
    """A domain module's contribution: it exports one of these as `DOMAIN`.

    `routes` binds the domain's endpoints to the tables of one server and, where the domain takes
    payments, to Stripe. `example` is a request, as (path, body), that the API refuses with a
    suggestion: `crossmem serve` shows how to send it.
    """

    name: str
    title: str
    tables: tuple[TableSpec, ...]
    routes: Callable[[TableStore, Payments | None], APIRouter]
    example: tuple[str, dict[str, Any]]
    takes_payments: bool = False


def load(name: str) -> ApiDomain:
    """Return the domain called `name`; raises InputError for an unknown one."""
    if name not in DOMAINS:
        raise unknown("domain", name, DOMAINS)
    domain = importlib.import_module(DOMAINS[name]).DOMAIN
    if not isinstance(domain, ApiDomain):
        raise TypeError(f"{DOMAINS[name]}.DOMAIN is not a ApiDomain")
    return domain
