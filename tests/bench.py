"""The ratios that must hold (DESIGN.md), each measured within this run: `make bench`.

A ratio is the median of several interleaved repetitions, so that what else the machine does meets both
sides. Exit status 1 if one does not hold.
"""

from __future__ import annotations

import io
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import nbformat
from nbformat import v4

import crossmem
from crossmem import paths, streams
from crossmem.agents.scripted import ScriptedAgent
from crossmem.contract import Response, read_response
from crossmem.domains import domain
from crossmem.domains.base import Task
from crossmem.harness.log import RunLog
from crossmem.harness.runner import prompter_for, replay_of
from crossmem.memory.arms import ARMS
from crossmem.memory.entry import Entry
from crossmem.memory.events import BudgetSet, Carried, Observation
from crossmem.memory.memory import Memory
from crossmem.report.execute import execute
from crossmem.settings import Phase1Settings
from crossmem.upstream.embedded import EmbeddedApi

if TYPE_CHECKING:
    from crossmem.harness.records import EpisodeRecord

Seconds = float


@dataclass(frozen=True)
class Ratio:
    """A measured ratio beside its bound, None where it is printed for information only."""

    name: str
    value: float
    bound: float | None
    detail: str

    @property
    def holds(self) -> bool:
        return self.bound is None or self.value <= self.bound

    def __str__(self) -> str:
        verdict = "" if self.bound is None else "holds" if self.holds else "DOES NOT HOLD"
        bound = "" if self.bound is None else f"<= {self.bound:g}"
        return f"{self.name:<52}{self.value:>7.2f}  {bound:<7}{verdict:<15}{self.detail}"


def timed(work: Callable[[], object]) -> Seconds:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def ratio(name: str, pairs: Sequence[tuple[Seconds, Seconds]], bound: float) -> Ratio:
    """The median over repetitions of the first time to the second."""
    above, below = (statistics.median(side) for side in zip(*pairs, strict=True))
    detail = f"{_shown(above)} to {_shown(below)}, {len(pairs)} repetitions"
    return Ratio(name, statistics.median(a / b for a, b in pairs), bound, detail)


def _shown(seconds: Seconds) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds / 1e-6:.1f} us"


# -- replay: a scripted episode to its bare round trips ----------------------------------------------


def replay(repetitions: int, episodes: int | None = None) -> Iterator[Ratio]:
    """Replay a stream and send the same requests again, bare, to the same server in the same state.

    The tables are swapped between episodes, outside of both times; the log is timed apart. Every
    other repetition sends the bare requests first: those of the last one, for they are always the same.
    """
    settings = Phase1Settings(mock=True, model="haiku")
    stream = streams.load(settings.stream_name)
    calm = stream.model_copy(update={"drift_events": []})
    endpoint = domain(stream.domain).endpoint(stream.episodes[0].task)
    number = episodes or len(stream.episodes)
    pairs, synced = [], []
    records: dict[int, EpisodeRecord] = {}
    with (
        tempfile.TemporaryDirectory(prefix="crossmem-bench-") as folder,
        EmbeddedApi(stream.domain).serve(Path(folder) / "tables") as (api, tables),
        httpx.Client(base_url=api.url, trust_env=False) as bare,
    ):
        agent = ScriptedAgent(settings.model, prompter_for(settings, stream, api))
        for repetition in range(2 * repetitions):
            log = RunLog.create(Path(folder), str(repetition), {})
            tables.swap(stream.drift_events[0].table, stream.episodes[0].snapshot, api)
            line = replay_of(settings, calm, ARMS["A2"], agent, (api, tables))
            scripted = plain = 0.0
            for index in range(number):
                for event in stream.drift_events:
                    if event.before == index:
                        tables.swap(event.table, event.snapshot, api)
                if bare_first := repetition % 2 == 1:
                    plain += _send_again(bare, endpoint, records[index])
                started = time.perf_counter()
                records[index] = line.episode(index)
                scripted += time.perf_counter() - started
                if not bare_first:
                    plain += _send_again(bare, endpoint, records[index])
                synced.append(timed(partial(log.append, records[index])))
            pairs.append((scripted, plain))
            log.close()
    # Two rounds are one repetition: the order within a round favours what comes second.
    both = [(a + c, b + d) for (a, b), (c, d) in zip(pairs[::2], pairs[1::2], strict=True)]
    yield ratio("replay: scripted episodes / bare round trips", both, 1.35)
    each = statistics.median(scripted for scripted, _ in pairs) / number
    share = statistics.median(synced) / each
    yield Ratio("  the log's sync / an episode, apart", share, None, f"{_shown(each)} an episode")


def _send_again(bare: httpx.Client, endpoint: str, record: EpisodeRecord) -> Seconds:
    seconds = 0.0
    for attempt in record.attempts:
        started = time.perf_counter()
        answer = bare.post(endpoint, json=attempt.request)
        seconds += time.perf_counter() - started
        if answer.status_code != attempt.status:
            raise RuntimeError(f"sent again, a request got {answer.status_code}, not {attempt.status}")
    return seconds


# -- report: a notebook to an empty one ----------------------------------------------------------------


def report(repetitions: int, parameters: dict[str, object] | None = None) -> Iterator[Ratio]:
    """Execute the Phase 1 notebook in mock mode and an empty one that draws as many figures."""
    given = {"mock": True, **(parameters or {})}
    with tempfile.TemporaryDirectory(prefix="crossmem-bench-") as name:
        folder = Path(name)
        source = paths.notebooks() / "phase1.ipynb"
        study, blank, empty = (folder / f"{each}.ipynb" for each in ("study", "blank", "empty"))
        with _results_in(folder / "results"), redirect_stderr(io.StringIO()):  # the study's bar
            execute(source, study, given)
            figures = _figures(study)
            _write_empty(blank, figures)
            pairs = [
                (
                    timed(partial(execute, source, study, given)),
                    timed(partial(execute, blank, empty, {})),
                )
                for _ in range(repetitions)
            ]
        if _figures(empty) != figures:
            raise RuntimeError("the empty notebook draws another number of figures")
    yield ratio(f"report: phase1 / empty with {figures} figures", pairs, 1.3)


@contextmanager
def _results_in(folder: Path) -> Iterator[None]:
    before = os.environ.get(paths.RESULTS_VARIABLE)
    os.environ[paths.RESULTS_VARIABLE] = str(folder)
    try:
        yield
    finally:
        del os.environ[paths.RESULTS_VARIABLE]
        if before is not None:
            os.environ[paths.RESULTS_VARIABLE] = before


def _figures(notebook: Path) -> int:
    executed: Any = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    outputs = (out for cell in executed.cells for out in cell.get("outputs", []))
    return sum("image/png" in out.get("data", {}) for out in outputs)


def _write_empty(path: Path, figures: int) -> None:
    first = v4.new_code_cell("import pandas as pd\nimport seaborn as sns")  # type: ignore[no-untyped-call]
    draw = "frame = pd.DataFrame({'x': range(24), 'y': range(24)})\nsns.lineplot(frame, x='x', y='y');"
    cells = [v4.new_code_cell(draw) for _ in range(figures)]  # type: ignore[no-untyped-call]
    last = v4.new_code_cell("print('the end')", metadata={"tags": ["sentinel"]})  # type: ignore[no-untyped-call]
    nbformat.write(v4.new_notebook(cells=[first, *cells, last]), path)  # type: ignore[no-untyped-call]


# -- memory: flat in the number of entries ------------------------------------------------------------

BATCH = 200
RECIPE = domain("recipe")
PAIRS, BRANDS = "incompatible_ingredients", "celiac_brands"


def memory(sizes: Sequence[int], repetitions: int) -> Iterator[Ratio]:
    """Time recall and observe over memories of several sizes; each to that of the smallest."""
    for name in ("LW", "A2", "A3"):
        held = [Filled(name, size) for size in sizes]
        for what in ("recall", "observe"):
            times = [
                [timed(each.batch(what, repetition)) / BATCH for each in held]
                for repetition in range(repetitions + 1)
            ][1:]
            for column, size in enumerate(sizes[1:], start=1):
                pairs = [(row[column], row[0]) for row in times]
                yield ratio(f"memory: {what} of {name}, {size:,} / {sizes[0]:,}", pairs, 2.0)


class Filled:
    """A memory that holds `size` entries, and batches of work that leave that number as it is."""

    def __init__(self, name: str, size: int) -> None:
        self.memory = Memory(ARMS[name], RECIPE, "task")
        self.size = size
        self.random = random.Random(7)
        self.fresh = count(size)
        self.memory.observe(_seen(_task("salt"), read_response(200, {"table_versions": {PAIRS: "1"}})))
        fill(self.memory, PAIRS, range(size))
        if self.memory.arm.has_budget:
            self.memory.observe(BudgetSet(bytes=self.memory.store.bytes))

    def batch(self, what: str, repetition: int) -> Callable[[], object]:
        """Prepare a batch of `BATCH` recalls, or of as many observations."""
        chosen = [_name(self.random.randrange(self.size)) for _ in range(BATCH)]
        recall, observe = self.memory.recall, self.memory.observe
        if what == "recall":
            asked = [_task(name) for name in chosen]
            return lambda: [recall(task) for task in asked]
        events = [self._lesson(name, repetition) for name in chosen]
        return lambda: [observe(event) for event in events]

    def _lesson(self, name: str, repetition: int) -> Observation:
        """A refusal that gives a held key another value; under a budget a new key, which evicts."""
        if self.memory.arm.has_budget:
            name = _name(next(self.fresh))
        suggestion = {
            "action": "REPLACE_INCOMPATIBLE_INGREDIENT",
            "parameters": {"field": "/ingredients/0/name", "suggested_value": f"r{repetition:06}"},
            "table": PAIRS,
            "cache_hint": {"cacheable": True},
        }
        body = {
            "recovery_feedback": {"suggestions": [suggestion]},
            "table_versions": {PAIRS: "1"},
        }
        task = _task(name)
        carried = [Carried(entry, refused=False) for entry in self.memory.recall(task)]
        return _seen(task, read_response(422, body), carried)


def invalidation(dropped: int, others: Sequence[int], repetitions: int) -> Iterator[Ratio]:
    """Time a stamp that drops `dropped` entries, beside few and beside many of another table."""
    held = []
    for size in others:
        filled = Filled("A2", size)
        filled.memory.observe(_stamp("0"))
        held.append(filled.memory)
    times = []
    for repetition in range(repetitions + 1):
        row = []
        for each in held:
            fill(each, BRANDS, range(dropped), version=str(repetition))
            event = _stamp(str(repetition + 1))
            row.append(timed(partial(each.observe, event)) / dropped)
            if each.store.count_of(BRANDS):
                raise RuntimeError("a stamp did not drop the entries of its table")
        times.append(row)
    for column, size in enumerate(others[1:], start=1):
        pairs = [(row[column], row[0]) for row in times[1:]]
        yield ratio(f"memory: drop {dropped:,} among {size:,} / {others[0]:,} others", pairs, 2.0)


def fill(memory: Memory, table: str, numbers: range, version: str = "1") -> None:
    """Put entries of `table` into a memory that a server could have taught it."""
    plain = Entry((), table, None, "r000000", version, cacheable=True)
    for number in numbers:
        name = _name(number)
        if table == BRANDS:
            memory.store.put(replace(plain, key=("brand", name), row=f"c{number % 10}"))
        else:
            memory.store.put(replace(plain, key=("name", name, "thai"), row=f"{name}|thai"))


def _name(number: int) -> str:
    return f"ingredient {number:08}"  # of one length, so that one evicts one


def _task(name: str) -> Task:
    listed = [{"name": each, "amount": 1.0, "unit": "g"} for each in (name, "salt")]
    body = {"cuisine": "thai", "dietary": [], "ingredients": listed}
    return Task(id="t", description="", input=body)


def _seen(task: Task, response: Response, carried: Sequence[Carried] = ()) -> Observation:
    return Observation(task, task.input, response, carried)


def _stamp(version: str) -> Observation:
    return _seen(_task("salt"), read_response(200, {"table_versions": {BRANDS: version}}))


# -- a results file ------------------------------------------------------------------------------------


def loading(episodes: int, repetitions: int) -> Iterator[Ratio]:
    """Load a log of many episodes: those of a real run, over and over."""
    with tempfile.TemporaryDirectory(prefix="crossmem-bench-") as name:
        with _results_in(Path(name)), redirect_stderr(io.StringIO()):
            run = crossmem.phase3(mock=True)
            log = RunLog.create(Path(name), "long", run.config)
            with closing(log):
                for number in range(episodes):
                    replicate, place = divmod(number, len(run.episodes))
                    record = run.episodes[place]
                    row = record.row.model_copy(update={"replicate": replicate})
                    log.append(record.model_copy(update={"row": row}))
                log.end("now")
        times = [timed(partial(crossmem.load, log.path)) for _ in range(repetitions)]
        size = log.path.stat().st_size / 1e6
    shown = f"{size:.1f} MB, {repetitions} repetitions"
    yield Ratio(f"results: {episodes:,} episodes load, seconds", statistics.median(times), 1.0, shown)


# -- live: arms at once to the slowest alone ---------------------------------------------------------


def live(repetitions: int) -> Iterator[Ratio]:
    """Run arms at once and alone against a provider of the tests' own that answers in half a second."""
    from live.bench_live import BOUND, live_times

    with redirect_stderr(io.StringIO()):
        pairs = live_times(repetitions)
    yield ratio("live: arms at once / the slowest alone", pairs, BOUND)


def everything() -> Iterator[Ratio]:
    yield from replay(repetitions=9)
    yield from report(repetitions=5)
    yield from memory((10**2, 10**4, 10**6), repetitions=21)
    yield from invalidation(10**3, (10**3, 10**6), repetitions=11)
    yield from loading(2_000, repetitions=5)
    yield from live(repetitions=3)
    from bench_experience import amplification, experience

    yield from experience((10**3, 10**4), repetitions=21)
    yield amplification(800)


def main() -> int:
    """Print the table; return the exit status."""
    failed = 0
    for each in everything():
        print(each, flush=True)  # noqa: T201
        failed += not each.holds
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
