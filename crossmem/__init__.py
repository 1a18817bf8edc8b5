"""The handful of names a notebook uses, loaded when first touched so that the import stays fast."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from types import ModuleType

    from crossmem.analysis import figures as figures
    from crossmem.analysis import findings as findings
    from crossmem.analysis import metrics as metrics
    from crossmem.analysis import slots as slots
    from crossmem.analysis import stats as stats
    from crossmem.analysis.compare import compare as compare
    from crossmem.analysis.display import by_epoch as by_epoch
    from crossmem.analysis.display import show as show
    from crossmem.analysis.display import stable_policies as stable_policies
    from crossmem.analysis.explorer import Explorer as Explorer
    from crossmem.analysis.notices import notice as notice
    from crossmem.run.history import memory_at as memory_at
    from crossmem.run.results import load as load
    from crossmem.settings import AcmeSettings as AcmeSettings
    from crossmem.settings import CompareSettings as CompareSettings
    from crossmem.settings import Phase1Settings as Phase1Settings
    from crossmem.settings import Phase2Settings as Phase2Settings
    from crossmem.settings import Phase3Settings as Phase3Settings
    from crossmem.settings import StaleAttemptsSettings as StaleAttemptsSettings
    from crossmem.settings import guard as guard
    from crossmem.study import acme as acme
    from crossmem.study import phase1 as phase1
    from crossmem.study import phase2 as phase2
    from crossmem.study import phase3 as phase3
    from crossmem.study import run as run

_MODULES = {
    "figures": "analysis.figures",
    "findings": "analysis.findings",
    "metrics": "analysis.metrics",
    "slots": "analysis.slots",
    "stats": "analysis.stats",
}
_HOMES = {
    **dict.fromkeys(("acme", "phase1", "phase2", "phase3", "run"), "study"),
    **dict.fromkeys(
        (
            "AcmeSettings",
            "CompareSettings",
            "Phase1Settings",
            "Phase2Settings",
            "Phase3Settings",
            "StaleAttemptsSettings",
            "guard",
        ),
        "settings",
    ),
    "memory_at": "run.history",
    "Explorer": "analysis.explorer",
    "compare": "analysis.compare",
    "load": "run.results",
    "notice": "analysis.notices",
    "by_epoch": "analysis.display",
    "show": "analysis.display",
    "stable_policies": "analysis.display",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return _loaded(_MODULES[name])
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
