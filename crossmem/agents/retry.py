"""Waiting for a provider: bounded by the episode's deadline, in sight, and ended at once by a stop.

The SDKs' own retries give up within seconds or block in silence, so they are off.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay
from tenacity.wait import wait_random_exponential

from crossmem.agents.messages import ProviderError, late_error
from crossmem.errors import CrossmemError

T = TypeVar("T")

REQUEST_TIMEOUT_S = 120.0
_STOP_SEEN_WITHIN_S = 0.1
_LEAST_S, _LONGEST_BACKOFF_S = 0.25, 30
_BACKOFF = wait_random_exponential(multiplier=1, max=_LONGEST_BACKOFF_S)


class StoppedError(CrossmemError):
    """The run is being stopped; the episode in flight is given up and will be replayed by a resume."""


@dataclass
class RetryPolicy:
    """How long an episode may take, whom to tell of a wait, and what ends it early.

    `deadline_s` bounds an episode as a whole. `notify` is told in a few words why and how long.
    """

    deadline_s: float
    notify: Callable[[str], None] = lambda _: None
    stop: Event = field(default_factory=Event)

    def begin(self) -> Deadline:
        """Start the clock of one episode."""
        return Deadline(self, time.monotonic() + self.deadline_s)


@dataclass
class Deadline:
    """The clock of one episode."""

    retry_policy: RetryPolicy
    at: float

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self.at - time.monotonic())

    def ask(self, call: Callable[[float], T]) -> T:
        """Return `call(timeout)`, again after each transient error as long as time is left.

        Raises the ProviderError that was last, or StoppedError.
        """
        if self.left <= 0:
            raise ProviderError(
                f"no answer within the episode's {self.retry_policy.deadline_s:g} seconds"
            )
        retrying = Retrying(
            retry=retry_if_exception(lambda e: isinstance(e, ProviderError) and e.transient),
            wait=_wait,
            stop=stop_before_delay(self.left),
            sleep=self._sleep,
            before_sleep=self._tell,
            reraise=True,
        )
        answer: T = retrying(self._once, call)
        return answer

    def _once(self, call: Callable[[float], T]) -> T:
        if self.retry_policy.stop.is_set():
            raise StoppedError("the run is being stopped")
        seconds = max(0.05, min(REQUEST_TIMEOUT_S, self.left))
        return self._within(seconds, call)

    def _within(self, seconds: float, call: Callable[[float], T]) -> T:
        """Return `call(seconds)`, or give it up when the time is over or the run is being stopped.

        An SDK's timeout is one between two bytes: an answer that trickles in never meets it. What is
        given up ends in a thread of its own, for which nothing waits, at the end of the process either.
        """
        answer: Future[T] = Future()

        def settle() -> None:
            try:
                answer.set_result(call(seconds))
            except BaseException as error:  # raised where the answer is waited for
                answer.set_exception(error)

        Thread(target=settle, name="provider", daemon=True).start()
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                return answer.result(min(left, _STOP_SEEN_WITHIN_S))
            except TimeoutError:
                if self.retry_policy.stop.is_set():
                    raise StoppedError("the run is being stopped") from None
        raise late_error()

    def _sleep(self, seconds: float) -> None:
        if self.retry_policy.stop.wait(seconds):
            raise StoppedError("the run is being stopped")

    def _tell(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self.retry_policy.notify(f"waits {state.upcoming_sleep:.1f} s: {error}")


def _wait(state: RetryCallState) -> float:
    """Return an exponential back-off with jitter, or what the provider asks for where that is more."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, ProviderError) else None
    least = min(_LONGEST_BACKOFF_S, _LEAST_S * 2 ** (state.attempt_number - 1))
    return max(asked, least) if asked is not None else float(_BACKOFF(state))
