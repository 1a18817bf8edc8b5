"""All arms of a phase, side by side: each with its own server, tables and journal -> a results file.

A run in progress is a folder under `results/.runs/`: its config, a journal per arm and replicate, the
private tables. It turns into one results file when the last episode is done; until then `resume`
continues it.
"""

from __future__ import annotations

import json
import shutil
import sys
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from crossmem import paths, streams
from crossmem.agents.cost import BudgetSpentError
from crossmem.agents.factory import AgentFactory, agent_factory, expectation
from crossmem.agents.prompts import Prompter
from crossmem.agents.retry import StoppedError
from crossmem.client import ApiClient
from crossmem.errors import CrossmemError, InputError
from crossmem.memory.arms import Arm
from crossmem.run import results
from crossmem.run.episode import Replay
from crossmem.run.folders import (
    check_same_tree,
    diff_source,
    identity,
    lines,
    new_folder,
    note_probes,
    now,
    place_for_a_probe,
    resumable,
    sweep,
)
from crossmem.run.log import Journal, JournalError
from crossmem.run.table_files import World
from crossmem.settings import Parameters, read
from crossmem.stage import make_replay, prompter_for, world_of
from crossmem.upstream.process import NotServedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from crossmem.run.records import EpisodeRecord
    from crossmem.run.results import Run
    from crossmem.streams import Stream
    from crossmem.upstream.checkout import Checkout


def phase1(**given: Any) -> Run:
    """Run or load Phase 1: one drift, 24 episodes. See `run`."""
    return run("phase1", **given)


def phase2(**given: Any) -> Run:
    """Run or load Phase 2: one drift pattern over the same 24 tasks. See `run`."""
    return run("phase2", **given)


def phase3(**given: Any) -> Run:
    """Run or load Phase 3: 48 episodes, four drifts. See `run`."""
    return run("phase3", **given)


def acme(**given: Any) -> Run:
    """Run or load the Acme billing study: rotations of the csm codes. See `run`."""
    return run("acme", **given)


def run(phase: str, **given: Any) -> Run:
    """Run `phase` with the parameters given, or load the results file that they name.

    Raises InputError before anything starts where a parameter is wrong, and CrossmemError with the
    reason where a run stops half-way: its journal stays and `resume=True` completes it.
    """
    parameters = read(phase, given)
    if parameters.results:
        return results.find(parameters.results, phase, parameters.stream_name)
    advice = f"name another folder in the environment variable {paths.RESULTS_VARIABLE}"
    paths.check_writable(paths.results(), advice)
    stream = streams.load(parameters.stream_name)
    sweep()
    resumed = resumable(parameters, stream) if parameters.resume else None
    checkout = parameters.checkout()
    if checkout:
        from crossmem.upstream.checkout import announce

        if resumed:
            check_same_tree(resumed, checkout)
        announce(checkout, len(lines(parameters)) * parameters.replicates)
    with agent_factory(parameters) as workers:
        probes = _probe(parameters, stream, workers, checkout)
        folder = resumed or new_folder(parameters, stream, checkout)
        try:
            with FileLock(folder / "lock", timeout=0):
                note_probes(folder, probes)
                return _Study(parameters, stream, folder, workers, checkout).run()
        except Timeout:
            raise InputError(f"the run in {folder} is still going on in another process") from None


def _probe(
    parameters: Parameters, stream: Stream, workers: AgentFactory, checkout: Checkout | None
) -> list[dict[str, Any]]:
    """Say what a live run will take and probe its model, before anything else is done."""
    if parameters.mock:
        return []
    tasks = [episode.task for episode in stream.episodes]
    with place_for_a_probe() as folder:
        place, log = folder / "tables", folder / "preflight.log"
        own = checkout.world(place, log) if checkout else world_of(stream, place)
        with own as (api, _):
            prompter = prompter_for(parameters, stream, api)
    tqdm.write(expectation(parameters, prompter, tasks, len(lines(parameters))), file=sys.stderr)
    return workers.probe(
        prompter, tasks[0], lambda wait: tqdm.write(f"preflight {wait}", file=sys.stderr)
    )


@dataclass
class _Study:
    """One run and the folder it lives in."""

    parameters: Parameters
    stream: Stream
    folder: Path
    workers: AgentFactory
    checkout: Checkout | None = None
    stop: Event = field(default_factory=Event)
    _asking: Lock = field(default_factory=Lock)
    _prompter: Prompter | None = None

    def run(self) -> Run:
        """Replay every arm and write the results file; an error says how to go on."""
        try:
            return self._finish(self._records())
        except JournalError:
            raise  # a resume would meet the same journal: no way on
        except CrossmemError as error:
            if isinstance(error, NotServedError) and not self._has_records():
                self._let_go()
                raise
            end = "\n" if "\n" in str(error) else ". "
            raise type(error)(f"{error}{end}{self._way_on()}") from error
        except OSError as error:  # above all: no space left
            where = f" ({error.filename})" if error.filename else ""
            raise CrossmemError(f"{error.strerror or error}{where}. {self._way_on()}") from error

    def _records(self) -> list[EpisodeRecord]:
        jobs = [
            (arm, replicate)
            for arm in lines(self.parameters)
            for replicate in range(self.parameters.replicates)
        ]
        self.meter = self.parameters.meter()
        total = len(jobs) * len(self.stream.episodes)
        with (
            self._journals(jobs) as journals,
            tqdm(
                total=total, desc=self.folder.name, unit="episode", file=sys.stderr, mininterval=0.5
            ) as bar,
            ThreadPoolExecutor(self._at_once(len(jobs))) as pool,
        ):
            try:  # from the first that is submitted on: an interrupt here must reach the arms as well
                futures = [
                    pool.submit(self._replay, *job, journal, bar)
                    for job, journal in zip(jobs, journals, strict=True)
                ]
                _all_done(futures)
            except BudgetSpentError:
                raise  # the other arms end the episodes they have paid for, and meet the same limit
            except (CrossmemError, OSError):
                self.stop.set()
                raise
            except BaseException:
                self.stop.set()
                bar.write(f"Stopped. {self._way_on()}", file=sys.stderr)
                raise
        return [record for future in futures for record in future.result()]

    def _at_once(self, jobs: int) -> int:
        """Return how many arms and replicates to replay at once: a checkout has a process for each."""
        most = self.workers.at_once(jobs)
        if self.checkout is None:
            return most
        return 1 if self.checkout.profile.server.port else min(most, self.parameters.max_concurrency)

    def _way_on(self) -> str:
        return f"The journal stays in {self.folder}; the same run with resume=True completes it"

    @contextmanager
    def _journals(self, jobs: list[tuple[Arm, int]]) -> Iterator[list[Journal]]:
        """Open every journal and count what they hold, before any arm asks whether there is budget."""
        same = identity(self.parameters, self.stream)
        with ExitStack() as stack:
            journals = []
            for arm, replicate in jobs:
                header = {**same, "arm": arm.name, "replicate": replicate}
                path = self.folder / f"{arm.name}-{replicate}.journal"
                journals.append(stack.enter_context(Journal(path, header)))
            for journal in journals:
                for record in journal.records:
                    self.meter.add(record.row)
            yield journals

    def _replay(
        self, arm: Arm, replicate: int, journal: Journal, bar: tqdm[Any]
    ) -> list[EpisodeRecord]:
        """Replay the stream through one arm, from where its journal ends."""
        name = f"{arm.name}-{replicate}"
        tables = self.folder / "tables" / name
        shutil.rmtree(tables, ignore_errors=True)  # left by a killed run: the journal is the truth
        tables.parent.mkdir(exist_ok=True)
        try:
            with self._world(name, tables) as over:
                self._replay_over(over, arm, replicate, journal, bar)
        except StoppedError:
            pass  # while its API was starting
        finally:
            shutil.rmtree(tables, ignore_errors=True)
        return journal.records

    def _replay_over(
        self, over: tuple[ApiClient, World], arm: Arm, replicate: int, journal: Journal, bar: tqdm[Any]
    ) -> None:
        """Bring an arm to where its journal ends and let it go on from there."""
        name = f"{arm.name}-{replicate}"
        agent = self.workers.agent(
            self._prompter_over(over[0]),
            replicate,
            self.stop,
            lambda wait: bar.write(f"{name} {wait}", file=sys.stderr),
        )
        replay = make_replay(self.parameters, self.stream, arm, agent, over, replicate)
        replay.run_name = self.folder.name
        replay.catch_up(journal.records)
        bar.update(len(journal.records))
        self._go_on(replay, journal, bar)

    def _world(self, name: str, tables: Path) -> AbstractContextManager[tuple[ApiClient, World]]:
        """Return a server of its own for an arm and replicate; a checkout's log is kept."""
        if self.checkout is None:
            return world_of(self.stream, tables, self.parameters.stripe_access())
        log = paths.results() / f"{self.folder.name}.logs" / f"{name}.log"
        return self.checkout.world(tables, log, self.stop)

    def _prompter_over(self, api: ApiClient) -> Prompter:
        """Ask the first server that is up what it discloses of itself; the others say the same."""
        with self._asking:
            if self._prompter is None:
                self._prompter = prompter_for(self.parameters, self.stream, api)
            return self._prompter

    def _go_on(self, replay: Replay, journal: Journal, bar: tqdm[Any]) -> None:
        """Replay what the journal lacks, episode by episode, until the end or a stop."""
        for index in range(len(journal.records), len(self.stream.episodes)):
            if self.stop.is_set():
                return
            self.meter.check()
            try:
                record = replay.episode(index)
            except StoppedError:
                return
            journal.append(record)
            journal.records.append(record)
            self.meter.add(record.row)
            bar.update()

    def _finish(self, records: list[EpisodeRecord]) -> Run:
        """Write the results file, then let the run's folder go."""
        config = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        config["ended"] = now().isoformat(timespec="seconds")
        config["api"]["diffs"] = diff_source(records)
        content = results.Results(
            config=config,
            rows=[record.row for record in records],
            events=[event for record in records for event in record.events],
            attempts=[attempt for record in records for attempt in record.attempts],
        )
        path = paths.results() / f"{self.folder.name}.json"
        finished = results.save(content, path, drafts=self.folder)
        self._let_go()
        return finished

    def _has_records(self) -> bool:
        return any(path.read_bytes().count(b"\n") > 1 for path in self.folder.glob("*.journal"))

    def _let_go(self) -> None:
        """Remove the run's folder; renamed first: half removed, it would pass for an unfinished run."""
        done = self.folder.rename(self.folder.with_name(f".done-{self.folder.name}"))
        shutil.rmtree(done)


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
