"""All arms and replicates of a run, side by side: each on an API of its own, all into one log."""

from __future__ import annotations

import shutil
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Protocol

from filelock import FileLock, Timeout
from tqdm import tqdm

from crossmem.agents.cost import BudgetSpentError, Meter
from crossmem.agents.factory import full_name
from crossmem.agents.prompts import Prompter
from crossmem.agents.retry import StoppedError
from crossmem.client import NotServedError
from crossmem.domains import domain
from crossmem.errors import CrossmemError
from crossmem.harness.episode import Replay
from crossmem.harness.log import LogError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from crossmem.agents.base import Agent
    from crossmem.agents.factory import AgentFactory
    from crossmem.client import ApiClient
    from crossmem.harness.log import RunLog
    from crossmem.harness.records import EpisodeRecord
    from crossmem.harness.table_files import TableFiles
    from crossmem.memory.arms import Arm
    from crossmem.settings import RunSettings
    from crossmem.streams import Stream


class ApiSource(Protocol):
    """Where the API under study comes from; every arm and replicate is served one of its own."""

    def describe(self) -> dict[str, Any]:
        """Return what the config of a run says of it."""

    def serve(
        self, tables: Path, log: Path, stop: Event
    ) -> AbstractContextManager[tuple[ApiClient, TableFiles]]:
        """Serve one over a private copy at `tables`, which must not exist; `stop` ends its start."""

    def at_once(self, wanted: int, limit: int) -> int:
        """Return how many of the `wanted` can run at once; `limit` bounds those that cost much."""


def prompter_for(settings: RunSettings, stream: Stream, api: ApiClient) -> Prompter:
    """Return what writes the prompts, from what the API discloses of itself."""
    what = domain(stream.domain)
    endpoints = dict.fromkeys(what.endpoint(episode.task) for episode in stream.episodes)
    disclosures = {endpoint: api.disclosure(endpoint) for endpoint in endpoints}
    return Prompter(what, disclosures, settings.hint_style)


def replay_of(
    settings: RunSettings,
    stream: Stream,
    arm: Arm,
    agent: Agent,
    over: tuple[ApiClient, TableFiles],
    replicate: int = 0,
) -> Replay:
    """Compose memory and agent of one arm over an API that is up."""
    what = domain(stream.domain)
    api, tables = over
    return Replay(
        stream=stream,
        domain=what,
        memory=arm.memory(what, settings.keying, f"{settings.seed}/{replicate}"),
        agent=agent,
        api=api,
        tables=tables,
        budget=settings.budget_steps() or stream.budget,
        max_attempts=settings.max_attempts,
        replicate=replicate,
    )


@dataclass
class Runner:
    """One run that is going on. Private copies of tables lie in a temporary folder and go with it."""

    settings: RunSettings
    stream: Stream
    source: ApiSource
    agents: AgentFactory
    log: RunLog
    stop: Event = field(default_factory=Event)

    def __post_init__(self) -> None:
        chosen = self.settings
        self.meter = Meter(full_name(chosen.model), chosen.max_tokens_total, chosen.max_cost_usd)
        self._name = self.log.path.stem
        self._disclosing = Lock()
        self._prompter: Prompter | None = None
        self._done: dict[tuple[str, int], list[EpisodeRecord]] = {}
        for record in self.log.content.episodes:
            self._done.setdefault((record.row.arm, record.row.replicate), []).append(record)
            self.meter.add(record)

    def run(self) -> None:
        """Replay what the log lacks and end it; an error says how to go on."""
        try:
            self._run_remaining()
        except LogError:
            raise  # a resume would meet the same log: no way on
        except CrossmemError as error:
            if isinstance(error, NotServedError) and not self.log.has_episodes:
                self.log.path.unlink()
                raise
            end = "\n" if "\n" in str(error) else ". "
            raise type(error)(f"{error}{end}{self._resume_hint()}") from error
        except OSError as error:  # above all: no space left
            where = f" ({error.filename})" if error.filename else ""
            raise CrossmemError(f"{error.strerror or error}{where}. {self._resume_hint()}") from error
        self.log.end(now().isoformat(timespec="seconds"))

    def _resume_hint(self) -> str:
        return f"What is done stays in {self.log.path}; the same run with resume=True completes it"

    def _run_remaining(self) -> None:
        jobs = [
            (arm, replicate)
            for arm in self.settings.arms_to_run()
            for replicate in range(self.settings.replicates)
        ]
        most = self.source.at_once(self.agents.at_once(len(jobs)), self.settings.max_concurrency)
        total = len(jobs) * len(self.stream.episodes)
        bar = tqdm(total=total, desc=self._name, unit="episode", file=sys.stderr, mininterval=0.5)
        with (
            private_folder() as folder,
            bar,
            ThreadPoolExecutor(most) as pool,
        ):
            try:  # from the first that is submitted on: an interrupt here must reach the arms as well
                _all_done([pool.submit(self._replay, *job, folder, bar) for job in jobs])
            except BudgetSpentError:
                raise  # the other arms end the episodes they have paid for, and meet the same limit
            except (CrossmemError, OSError):
                self.stop.set()
                raise
            except BaseException:
                self.stop.set()
                bar.write(f"Stopped. {self._resume_hint()}", file=sys.stderr)
                raise

    def _replay(self, arm: Arm, replicate: int, folder: Path, bar: tqdm[Any]) -> None:
        """Replay the stream through one arm, from where the log ends for it."""
        name = f"{arm.name}-{replicate}"
        server_log = self.log.path.with_suffix(".logs") / f"{name}.log"
        try:
            with self.source.serve(folder / name, server_log, self.stop) as over:
                agent = self.agents.agent(
                    self._prompter_over(over[0]),
                    replicate,
                    self.stop,
                    lambda wait: bar.write(f"{name} {wait}", file=sys.stderr),
                )
                replay = replay_of(self.settings, self.stream, arm, agent, over, replicate)
                replay.run_name = self._name
                done = self._done.get((arm.name, replicate), [])
                replay.catch_up(done)
                bar.update(len(done))
                self._replay_from(len(done), replay, bar)
        except StoppedError:
            pass  # the episode in flight, or the start of its API, is given up
        finally:
            shutil.rmtree(folder / name, ignore_errors=True)

    def _replay_from(self, first: int, replay: Replay, bar: tqdm[Any]) -> None:
        for index in range(first, len(self.stream.episodes)):
            if self.stop.is_set():
                return
            self.meter.check()
            record = replay.episode(index)
            self.log.append(record)
            self.meter.add(record)
            bar.update()

    def _prompter_over(self, api: ApiClient) -> Prompter:
        """Ask the first API that is up what it discloses of itself; the others say the same."""
        with self._disclosing:
            if self._prompter is None:
                self._prompter = prompter_for(self.settings, self.stream, api)
            return self._prompter


@contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a temporary folder for private copies; those that killed runs have left are removed."""
    for lock in Path(gettempdir()).glob("crossmem-run-*/lock"):
        with suppress(Timeout, OSError), FileLock(lock, timeout=0):  # held as long as its run lives
            shutil.rmtree(lock.parent, ignore_errors=True)
    with (
        TemporaryDirectory(prefix="crossmem-run-", ignore_cleanup_errors=True) as name,
        FileLock(Path(name) / "lock"),
    ):
        yield Path(name)


def now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


def _all_done(futures: Iterable[Future[Any]]) -> None:
    """Return when all are done; raises what the first that fails raises.

    Never waits long at once: an interrupt that comes while another thread has the interpreter is only
    seen when the wait that follows ends.
    """
    left = set(futures)
    while left:
        done, left = wait(left, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
