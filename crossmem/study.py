"""All arms of a phase, side by side: each with its own server, tables and journal -> a results file.

A run in progress is a folder under `results/.runs/`: its config, a journal per arm and replicate, the
private tables. It turns into one results file when the last episode is done; until then `resume`
continues it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from crossmem import __version__, paths, results, streams
from crossmem.agents.meter import PRICES_OF, BudgetSpentError
from crossmem.agents.models import full_name, label
from crossmem.agents.patience import StoppedError
from crossmem.agents.prompts import BASE_INSTRUCTION, HINT_STYLES, Prompter
from crossmem.agents.staff import Staff, expectation, staff
from crossmem.api import tables_of
from crossmem.api.server import serving
from crossmem.client import ApiClient
from crossmem.domains import domain
from crossmem.drift import World
from crossmem.errors import CrossmemError, InputError
from crossmem.harness import Replay
from crossmem.journal import Journal, JournalError
from crossmem.memory.arms import ORACLE, Arm, arms
from crossmem.memory.memory import Memory
from crossmem.parameters import Parameters, budget_steps, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crossmem.agents.base import Agent
    from crossmem.api.stripe_access import StripeAccess
    from crossmem.records import EpisodeRecord
    from crossmem.results import Run
    from crossmem.streams import Stream

_PACKAGES = ("anthropic", "fastapi", "httpx", "openai", "papermill", "pandas", "pydantic", "uvicorn")


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
    resumed = _resumable(parameters, stream) if parameters.resume else None
    with staff(parameters) as workers:
        probes = _probe(parameters, stream, workers)
        folder = resumed or _new_folder(parameters, stream)
        try:
            with FileLock(folder / "lock", timeout=0):
                _note_probes(folder, probes)
                return _Study(parameters, stream, folder, workers).run()
        except Timeout:
            raise InputError(f"the run in {folder} is still going on in another process") from None


@contextmanager
def world_of(
    stream: Stream, tables: Path, stripe: StripeAccess | None = None
) -> Iterator[tuple[ApiClient, World]]:
    """Yield a client of a server of its own, with private tables in `tables`, which must not exist."""
    world = World(tables_of(stream.domain), tables, domain(stream.domain).companions)
    with (
        serving(stream.domain, tables, stripe) as server,
        ApiClient(server.url, server.admin_token) as api,
    ):
        yield api, world


def prompter_for(parameters: Parameters, stream: Stream, api: ApiClient) -> Prompter:
    """Return what writes the prompts, from what the API discloses of itself."""
    what = domain(stream.domain)
    endpoints = dict.fromkeys(what.endpoint(episode.task) for episode in stream.episodes)
    disclosures = {endpoint: api.disclosure(endpoint) for endpoint in endpoints}
    return Prompter(what, disclosures, parameters.hint_style)


def _probe(parameters: Parameters, stream: Stream, workers: Staff) -> list[dict[str, Any]]:
    """Say what a live run will take and probe its model, before anything else is done."""
    if parameters.mock:
        return []
    tasks = [episode.task for episode in stream.episodes]
    with TemporaryDirectory() as folder, world_of(stream, Path(folder) / "tables") as (api, _):
        prompter = prompter_for(parameters, stream, api)
    tqdm.write(expectation(parameters, prompter, tasks, len(_lines(parameters))), file=sys.stderr)
    return workers.probe(
        prompter, tasks[0], lambda wait: tqdm.write(f"preflight {wait}", file=sys.stderr)
    )


@dataclass
class _Study:
    """One run and the folder it lives in."""

    parameters: Parameters
    stream: Stream
    folder: Path
    workers: Staff
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
            raise type(error)(f"{error}. {self._way_on()}") from error
        except OSError as error:  # above all: no space left
            where = f" ({error.filename})" if error.filename else ""
            raise CrossmemError(f"{error.strerror or error}{where}. {self._way_on()}") from error

    def _records(self) -> list[EpisodeRecord]:
        jobs = [
            (arm, replicate)
            for arm in _lines(self.parameters)
            for replicate in range(self.parameters.replicates)
        ]
        self.meter = self.parameters.meter()
        total = len(jobs) * len(self.stream.episodes)
        with (
            self._journals(jobs) as journals,
            tqdm(
                total=total, desc=self.folder.name, unit="episode", file=sys.stderr, mininterval=0.5
            ) as bar,
            ThreadPoolExecutor(self.workers.at_once(len(jobs))) as pool,
        ):
            futures = [
                pool.submit(self._replay, *job, journal, bar)
                for job, journal in zip(jobs, journals, strict=True)
            ]
            try:
                for future in as_completed(futures):
                    future.result()
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
        with world_of(self.stream, tables, self.parameters.stripe_access()) as (api, world):
            prompter = self._prompter_over(api)
            agent = self.workers.agent(
                prompter,
                replicate,
                self.stop,
                lambda wait: bar.write(f"{name} {wait}", file=sys.stderr),
            )
            replay = make_replay(self.parameters, self.stream, arm, agent, (api, world))
            replay.replicate, replay.run_name = replicate, self.folder.name
            records = journal.records
            replay.catch_up(records)
            bar.update(len(records))
            self._go_on(replay, journal, bar)
        shutil.rmtree(tables)
        return records

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
        config["ended"] = _now().isoformat(timespec="seconds")
        content = results.Results(
            config=config,
            rows=[record.row for record in records],
            events=[event for record in records for event in record.events],
            attempts=[attempt for record in records for attempt in record.attempts],
        )
        path = paths.results() / f"{self.folder.name}.json"
        finished = results.save(content, path, drafts=self.folder)
        done = self.folder.rename(self.folder.with_name(f".done-{self.folder.name}"))
        shutil.rmtree(done)  # renamed first: half removed, it would pass for an unfinished run
        return finished


def make_replay(
    parameters: Parameters, stream: Stream, arm: Arm, agent: Agent, over: tuple[ApiClient, World]
) -> Replay:
    """Compose memory and agent of one arm over a server that is up."""
    what = domain(stream.domain)
    api, world = over
    return Replay(
        stream=stream,
        domain=what,
        memory=Memory(arm, what, parameters.keying),
        agent=agent,
        api=api,
        world=world,
        budget=budget_steps(parameters.budget) or stream.budget,
        max_attempts=parameters.max_attempts,
    )


def _lines(parameters: Parameters) -> list[Arm]:
    """Return what is replayed: the arms asked for, and the oracle where the phase has it."""
    return [*arms(parameters.arms), *([ORACLE] if parameters.with_oracle else [])]


_HOW = {
    "results",
    "resume",
    "strict_preflight",
    "max_concurrency",
    "episode_timeout_s",
    "max_tokens_total",
    "max_cost_usd",
}
"""Parameters that say how a run is carried out, not what it is; a resume may change them."""


def identity(parameters: Parameters, stream: Stream) -> dict[str, Any]:
    """Return what must be equal for one run to continue another."""
    chosen = parameters.model_dump(exclude=_HOW)
    return {"phase": parameters.phase, "stream_sha256": streams.digest(stream), "parameters": chosen}


def _config(parameters: Parameters, stream: Stream) -> dict[str, Any]:
    return {
        **identity(parameters, stream),
        "stream": stream.name,
        "domain": stream.domain,
        "pattern": stream.pattern,
        "drift_events": [event.model_dump() for event in stream.drift_events],
        "budget": [s.model_dump() for s in budget_steps(parameters.budget) or stream.budget],
        "arms": [arm.describe() for arm in _lines(parameters)],
        "wording": {"base": BASE_INSTRUCTION, "memory": HINT_STYLES[parameters.hint_style]},
        "api": {"source": "embedded", "crossmem": __version__},
        "carried_out": parameters.model_dump(include=_HOW - {"results", "resume"}),
        "model": {
            "id": None if parameters.mock else full_name(parameters.model),
            "prices_of": PRICES_OF,
        },
        "preflight": [],
        "versions": {"python": sys.version.split()[0], **{name: version(name) for name in _PACKAGES}},
        "git": _git(),
        "started": _now().isoformat(timespec="seconds"),
        "ended": None,
    }


def _new_folder(parameters: Parameters, stream: Stream) -> Path:
    """Make the folder of a new run; its name is that of the results file."""
    stem = f"{stream.results_prefix}_{stream.pattern}_{label(parameters)}_{_now():%Y%m%dT%H%M%SZ}"
    _runs().mkdir(exist_ok=True)
    for left in _runs().glob(".done-*"):
        shutil.rmtree(left, ignore_errors=True)
    made = Path(mkdtemp(prefix=".new-", dir=_runs()))
    (made / "run.json").write_text(json.dumps(_config(parameters, stream), indent=1), encoding="utf-8")
    for name in (stem if number == 0 else f"{stem}-{number}" for number in count()):
        if (paths.results() / f"{name}.json").exists():
            continue
        with suppress(OSError):  # another run has just taken this name
            return made.rename(_runs() / name)
    raise AssertionError("unreachable")


def _note_probes(folder: Path, probes: list[dict[str, Any]]) -> None:
    """Add the evidence of a preflight to a run's config; a resumed run has one more of them."""
    if not probes:
        return
    path = folder / "run.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["preflight"] += probes
    with paths.whole(path) as draft:
        draft.write_text(json.dumps(config, indent=1), encoding="utf-8")


def _resumable(parameters: Parameters, stream: Stream) -> Path:
    """Return the folder of the newest unfinished run of these parameters, by its name."""
    wanted = identity(parameters, stream)
    unfinished = sorted(_runs().glob("[!.]*/run.json"), key=lambda path: path.parent.name)
    for path in reversed(unfinished):
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue  # that run has just finished
        if {name: config.get(name) for name in wanted} == wanted:
            return path.parent
    listed = ", ".join(path.parent.name for path in unfinished) or "none"
    raise InputError(
        f"resume: no unfinished run of {parameters.phase} with these parameters in {_runs()} "
        f"(unfinished there: {listed})"
    )


def _runs() -> Path:
    return paths.results() / ".runs"


def _now() -> datetime:
    return datetime.now(UTC)


def _git() -> dict[str, Any]:
    """Return the commit of the checkout and whether it was changed since; None where git cannot say."""
    commands = (["git", "rev-parse", "HEAD"], ["git", "status", "--porcelain"])
    try:
        commit, status = (
            subprocess.run(  # noqa: S603
                command, cwd=paths.root(), capture_output=True, text=True, check=True, timeout=10
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}
    return {"commit": commit, "dirty": bool(status)}
