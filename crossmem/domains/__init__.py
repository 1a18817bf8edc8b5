"""The domains the study knows, by name."""

from __future__ import annotations

from crossmem.domains.acme import Acme
from crossmem.domains.base import Domain
from crossmem.domains.recipe import Recipe
from crossmem.errors import unknown

DOMAINS: dict[str, Domain] = {domain.name: domain for domain in (Recipe(), Acme())}


def domain(name: str) -> Domain:
    """Return the domain called `name`; raises InputError naming the choices."""
    if name not in DOMAINS:
        raise unknown("domain", name, DOMAINS)
    return DOMAINS[name]
