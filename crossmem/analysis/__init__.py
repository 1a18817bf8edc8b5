"""What is made of a run: frames, intervals, figures, tables, findings. Here the frames of `metrics`.

They are loaded when first touched, so that the import stays without pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crossmem.analysis.metrics import by_epoch as by_epoch
    from crossmem.analysis.metrics import compositions as compositions
    from crossmem.analysis.metrics import dividend as dividend
    from crossmem.analysis.metrics import episodes as episodes
    from crossmem.analysis.metrics import memory_events as memory_events
    from crossmem.analysis.metrics import post_drift as post_drift
    from crossmem.analysis.metrics import slot_outcomes as slot_outcomes
    from crossmem.analysis.metrics import slot_rows as slot_rows
    from crossmem.analysis.metrics import summary as summary
    from crossmem.analysis.metrics import unsolved as unsolved
    from crossmem.analysis.metrics import windows as windows

_FRAMES = (
    *("by_epoch", "compositions", "dividend", "episodes", "memory_events", "post_drift"),
    *("slot_outcomes", "slot_rows", "summary", "unsolved", "windows"),
)


def __getattr__(name: str) -> Any:
    if name not in _FRAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("crossmem.analysis.metrics"), name)


def __dir__() -> list[str]:
    return [*globals(), *_FRAMES]
