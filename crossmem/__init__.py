"""The handful of names a notebook uses, loaded when first touched so that the import stays fast."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from types import ModuleType

    from crossmem import analysis as analysis
    from crossmem import findings as findings
    from crossmem import held as held
    from crossmem import plots as plots
    from crossmem import slots as slots
    from crossmem import stats as stats
    from crossmem.comparison import compare as compare
    from crossmem.explore import Explorer as Explorer
    from crossmem.notices import notice as notice
    from crossmem.parameters import guard as guard
    from crossmem.results import load as load
    from crossmem.study import acme as acme
    from crossmem.study import phase1 as phase1
    from crossmem.study import phase2 as phase2
    from crossmem.study import phase3 as phase3
    from crossmem.tables import by_epoch as by_epoch
    from crossmem.tables import show as show
    from crossmem.tables import stable_policies as stable_policies

_MODULES = ("analysis", "findings", "held", "plots", "slots", "stats")
_HOMES = {
    "acme": "study",
    "Explorer": "explore",
    "compare": "comparison",
    "guard": "parameters",
    "load": "results",
    "notice": "notices",
    "phase1": "study",
    "phase2": "study",
    "phase3": "study",
    "by_epoch": "tables",
    "show": "tables",
    "stable_policies": "tables",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _loaded(name)
    if name in _HOMES:
        return getattr(_loaded(_HOMES[name]), name)
    raise AttributeError(f"module 'crossmem' has no attribute {name!r}")


def _loaded(name: str) -> ModuleType:
    """Return a module of the package, loaded when first touched.

    What it brings along, pandas above all, stays until a notebook's kernel ends. So its garbage
    collector is told to leave it alone: to look through it again and again, and to take it apart at the
    end, takes a fifth of the time of a report. Other processes keep their collector as it is.
    """
    new = f"crossmem.{name}" not in sys.modules
    module = importlib.import_module(f"crossmem.{name}")
    if new and "ipykernel" in sys.modules:
        gc.freeze()
    return module


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_HOMES})
