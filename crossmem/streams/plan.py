"""What a domain hands to the stream author: tasks with their criteria, and where drifts fall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crossmem.domains.base import Keying, Provision, Task


@dataclass(frozen=True)
class Authored:
    """A task and what keeps its intent (family included); no fix value in either."""

    task: Task
    criterion: dict[str, Any]
    provision: Provision | None = None


@dataclass(frozen=True)
class Plan:
    """One stream: its tasks, the `(before, snapshot)` pairs of its drifts, and A3's window.

    `budget_window` is the range of episodes `[first, last]` under a tight budget, if any; it crosses no
    drift.
    `keying` is the one that the stream's phase runs under by default; the budget is measured with it.
    """

    name: str
    domain: str
    results_prefix: str
    tasks: Callable[[], list[Authored]]
    drifts: tuple[tuple[int, str], ...]
    budget_window: tuple[int, int] | None
    keying: Keying = "task"
    base_snapshot: str = "1.0.0"

    @property
    def pattern(self) -> str:
        """The stream's name within its phase."""
        return pattern_of(self.name, self.results_prefix)


def pattern_of(stream: str, results_prefix: str) -> str:
    """Return the short name of a stream.

    >>> pattern_of("phase2_v4", "phase2"), pattern_of("churn", "phase2"), pattern_of("phase1", "phase1")
    ('v4', 'churn', 'single')
    """
    return stream.removeprefix(results_prefix).strip("_") or "single"
