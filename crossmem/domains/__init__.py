"""The domains the study knows, by name: every module of this room but `base` holds one, as `DOMAIN`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from crossmem.domains.base import Domain
from crossmem.errors import unknown

_MODULES = [module.name for module in iter_modules(__path__) if module.name != "base"]
_FOUND: list[Domain] = [import_module(f"{__name__}.{name}").DOMAIN for name in _MODULES]
DOMAINS: dict[str, Domain] = {domain.name: domain for domain in _FOUND}


def domain(name: str) -> Domain:
    """Return the domain called `name`; raises InputError naming the choices."""
    if name not in DOMAINS:
        raise unknown("domain", name, DOMAINS)
    return DOMAINS[name]
