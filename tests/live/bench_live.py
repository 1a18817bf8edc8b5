"""How long n arms take at once against a slow provider, compared with the slowest of them alone."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from running import run_phase

from crossmem import streams
from crossmem.paths import RESULTS_VARIABLE

from .fakes import Answer, Asked, competent, providing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crossmem.streams import Stream

ARMS = "A0,A1F,A2,A3,LW,LWG"
BOUND = 1.2


def live_times(repetitions: int, episodes: int = 8, answer_s: float = 0.5) -> list[tuple[float, float]]:
    """Return the times of `ARMS` at once and of the slowest of them alone, measured in turns.

    Over the first `episodes` of Phase 1, against a provider of the tests' own that answers each request
    after `answer_s` seconds. Both times are those of whole runs, preflight included; a run before them
    pays the imports and says which arm is the slowest.
    """

    def slow(asked: Asked) -> Answer:
        answer = competent(asked)
        return Answer(answer.request, after=answer_s)

    with providing(slow) as provider, _short_runs(provider.url, episodes):
        attempts = run_phase("phase1", model="haiku", arms=ARMS).rows.groupby("arm")["attempts"].sum()
        slowest = str(attempts.idxmax())
        return [(_timed(ARMS), _timed(slowest)) for _ in range(repetitions)]


def _timed(arms: str) -> float:
    started = time.perf_counter()
    run_phase("phase1", model="haiku", arms=arms)
    return time.perf_counter() - started


@contextmanager
def _short_runs(url: str, episodes: int) -> Iterator[None]:
    load = streams.load

    def first(name: str) -> Stream:
        stream = load(name)
        return stream.model_copy(update={"episodes": stream.episodes[:episodes]})

    with tempfile.TemporaryDirectory(prefix="crossmem-bench-") as folder:
        settings = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "a key that no server looks at",
            RESULTS_VARIABLE: folder,
        }
        with patch.dict(os.environ, settings), patch.object(streams, "load", first):
            yield
