"""The plans that stream files are written from: a module a domain or family, each with its `PLANS`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from crossmem.streams.plan import Plan

_MODULES = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
PLANS: dict[str, Plan] = {plan.name: plan for module in _MODULES for plan in module.PLANS}
"""Every plan by the name of its stream."""


def patterns(results_prefix: str) -> dict[str, Plan]:
    """Return the plans of the streams with a results prefix, by pattern: a stream's short name.

    >>> list(patterns("phase3"))
    ['m1']
    """
    return {plan.pattern: plan for plan in PLANS.values() if plan.results_prefix == results_prefix}
