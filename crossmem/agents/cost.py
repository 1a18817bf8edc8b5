"""What a live run has spent, in tokens and dollars, against what it may."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from crossmem.errors import CrossmemError, InputError

if TYPE_CHECKING:
    from crossmem.harness.records import EpisodeRecord

PRICES_OF = "2026-02-17"
"""The date of the price table; check the provider's page before trusting a cost."""

PRICES = {
    "claude-haiku-4-5": (1.0, 5.0, 0.10, 1.25),
    "claude-sonnet-4-6": (3.0, 15.0, 0.30, 3.75),
}
"""US dollars per million tokens: input, output, cache read, cache write (five minutes)."""


class BudgetSpentError(CrossmemError):
    """The budget of the run is spent, or can no longer be counted; what is done stays in the log."""


@dataclass
class Meter:
    """Shared by all arms of a run. A limit of 0 is none. `uncounted` are answers without usage."""

    model: str
    max_tokens: int = 0
    max_cost_usd: float = 0.0
    tokens: int = 0
    cost_usd: float = 0.0
    uncounted: int = 0
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        if self.max_cost_usd and self.model not in PRICES:
            raise InputError(
                f"max_cost_usd: no price is known for {self.model!r}; "
                f"known are {', '.join(PRICES)} (as of {PRICES_OF}). Use max_tokens_total"
            )

    def add(self, episode: EpisodeRecord) -> None:
        """Count one finished episode."""
        row = episode.row
        counts = (row.input_tokens, row.output_tokens, row.cache_read_tokens, row.cache_write_tokens)
        prices = PRICES.get(self.model, (0.0, 0.0, 0.0, 0.0))
        with self._lock:
            self.tokens += row.total_tokens
            self.cost_usd += sum(n * p for n, p in zip(counts, prices, strict=True)) / 1e6
            self.uncounted += _uncounted(episode)

    def check(self) -> None:
        """Raise BudgetSpentError once a limit is reached, or cannot be kept."""
        if self.uncounted and (self.max_tokens or self.max_cost_usd):
            raise BudgetSpentError(cannot_keep(self.uncounted))
        if self.max_tokens and self.tokens >= self.max_tokens:
            raise BudgetSpentError(
                f"{self.tokens:,} tokens spent, max_tokens_total {self.max_tokens:,}"
            )
        if self.max_cost_usd and self.cost_usd >= self.max_cost_usd:
            raise BudgetSpentError(
                f"{self.cost_usd:.2f} US dollars spent (prices of {PRICES_OF}), "
                f"max_cost_usd {self.max_cost_usd:.2f}"
            )


def cannot_keep(answers: int) -> str:
    """Return the message for a limit on a run of which so many answers came without usage."""
    came = "1 answer" if answers == 1 else f"{answers} answers"
    return (
        f"max_tokens_total and max_cost_usd cannot be kept: {came} of the provider came without usage; "
        "leave them out to go on without a limit"
    )


def _uncounted(episode: EpisodeRecord) -> int:
    """Count the answers of an episode, summaries included, that came without usage."""
    missing = [a for a in episode.attempts if a.evidence and a.evidence.get("usage") == "missing"]
    signals = [signal for attempt in episode.attempts for signal in attempt.signals]
    free = [s for s in signals if s.kind == "summary" and s.fields is not None and s.tokens == 0]
    return len(missing) + len(free)
