"""What is made of a run: frames, intervals, figures, tables, findings. Here the frames of `metrics`.

They are loaded when first touched, so that the import stays without pandas.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossmem.analysis.metrics import (
        by_epoch,
        compositions,
        dividend,
        episodes,
        memory_events,
        post_drift,
        slot_outcomes,
        slot_rows,
        summary,
        unsolved,
        windows,
    )

__all__ = [
    *("by_epoch", "compositions", "dividend", "episodes", "memory_events", "post_drift"),
    *("slot_outcomes", "slot_rows", "summary", "unsolved", "windows"),
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("crossmem.analysis.metrics"), name)
    raise AttributeError(f"module 'crossmem.analysis' has no attribute {name!r}")
