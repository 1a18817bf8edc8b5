"""Waiting for a provider: bounded by the episode's deadline, in sight, and ended at once by a stop.

The SDKs' own retries give up within seconds or block in silence, so they are off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import uniform
from threading import Event, Thread

from crossmem.agents.failures import FailureKind, ProviderError, timeout_error
from crossmem.agents.messages import Reply
from crossmem.errors import CrossmemError

REQUEST_TIMEOUT_S = 120.0
_STOP_SEEN_WITHIN_S = 0.1
_LEAST_S, _LONGEST_BACKOFF_S = 0.25, 30


class StoppedError(CrossmemError):
    """The run is being stopped; the episode in flight is given up and will be replayed by a resume."""

    def __init__(self, message: str = "the run is being stopped") -> None:
        super().__init__(message)


@dataclass(frozen=True)
class RetryPolicy:
    """How long an episode may take, which failures are waited out, and what ends a wait early.

    `deadline_s` bounds an episode as a whole. `notify` gets each wait's reason and length in words.
    """

    deadline_s: float
    notify: Callable[[str], None] = lambda _: None
    stop: Event = field(default_factory=Event)
    retried: frozenset[FailureKind] = frozenset({"transient", "unreachable"})

    def until(self) -> float:
        """Return the deadline of an episode that starts now, on the monotonic clock."""
        return time.monotonic() + self.deadline_s

    def ask(self, call: Callable[[float], Reply], until: float) -> Reply:
        """Return `call(timeout)`, again after each failure that passes, as long as time is left.

        Raises the ProviderError that was last, or StoppedError.
        """
        if time.monotonic() >= until:
            raise ProviderError(f"no answer within the episode's {self.deadline_s:g} seconds")
        wait, failures = 0.0, 0
        while not self.stop.wait(wait):
            try:
                return self._once(call, until)
            except ProviderError as error:
                failures += 1
                wait = _wait(failures, error.retry_after)
                if error.kind not in self.retried or time.monotonic() + wait >= until:
                    raise
                self.notify(f"waits {wait:.1f} s: {error}")
        raise StoppedError

    def _once(self, call: Callable[[float], Reply], until: float) -> Reply:
        """Return `call(timeout)`, or give it up when the time is over or the run is being stopped.

        An SDK's timeout is one between two bytes: an answer that trickles in never meets it. What is
        given up ends in a thread of its own, for which nothing waits, at the end of the process either.
        """
        timeout = max(0.05, min(REQUEST_TIMEOUT_S, until - time.monotonic()))
        answer: Future[Reply] = Future()

        def settle() -> None:
            try:
                answer.set_result(call(timeout))
            except BaseException as error:  # raised where the answer is waited for
                answer.set_exception(error)

        Thread(target=settle, name="provider", daemon=True).start()
        given_up = time.monotonic() + timeout
        while (left := given_up - time.monotonic()) > 0:
            try:
                return answer.result(min(left, _STOP_SEEN_WITHIN_S))
            except TimeoutError:
                if self.stop.is_set():
                    raise StoppedError from None
        raise timeout_error()


def _wait(failures: int, asked: float | None) -> float:
    """Return the seconds to wait after the `failures`th failure in a row.

    An exponential back-off with full jitter, or what the provider has `asked` for; where that is less
    than an exponential floor, the floor.
    """
    if asked is None:
        return uniform(0, min(_LONGEST_BACKOFF_S, 2 ** (failures - 1)))  # noqa: S311
    return max(asked, min(_LONGEST_BACKOFF_S, _LEAST_S * 2.0 ** (failures - 1)))
