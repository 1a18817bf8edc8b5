"""The ratios that must hold (DESIGN.md), each measured within this run: `make bench`.

A ratio is the median of several interleaved repetitions, so that what else the machine does meets both
sides. Exit status 1 if one does not hold. That the parts work at all is tested in test_bench.py.
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
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import nbformat
from nbformat import v4

from crossmem import paths, streams
from crossmem.agents.scripted import ScriptedAgent
from crossmem.api import tables_of
from crossmem.api.server import serving
from crossmem.client import ApiClient
from crossmem.contract import Response, read_response
from crossmem.domains import domain
from crossmem.domains.base import Task
from crossmem.memory.arms import ARMS
from crossmem.memory.entry import Entry
from crossmem.memory.events import BudgetSet, Carried, Observation
from crossmem.memory.memory import Memory
from crossmem.report.execute import execute
from crossmem.run.log import Journal
from crossmem.run.table_files import private_copy
from crossmem.settings import read
from crossmem.stage import make_replay, prompter_for

if TYPE_CHECKING:
    from crossmem.run.records import EpisodeRecord

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

    The tables are swapped between episodes, outside of both times; the journal is timed apart. Every
    other repetition sends the bare requests first: those of the last one, for they are always the same.
    """
    parameters = read("phase1", {"mock": True, "model": "haiku"})
    stream = streams.load(parameters.stream_name)
    calm = stream.model_copy(update={"drift_events": []})
    endpoint = domain(stream.domain).endpoint(stream.episodes[0].task)
    number = episodes or len(stream.episodes)
    pairs, synced = [], []
    records: dict[int, EpisodeRecord] = {}
    with tempfile.TemporaryDirectory(prefix="crossmem-bench-") as folder:
        world = private_copy(tables_of(stream.domain), Path(folder) / "tables")
        with (
            serving(stream.domain, world.layout.folder) as server,
            ApiClient(server.url, server.admin_token) as api,
            httpx.Client(base_url=server.url, trust_env=False) as bare,
        ):
            agent = ScriptedAgent(parameters.model, prompter_for(parameters, stream, api))
            for repetition in range(2 * repetitions):
                journal = Journal(Path(folder) / f"{repetition}.journal", {})
                world.swap(stream.drift_events[0].table, stream.episodes[0].snapshot, api)
                line = make_replay(parameters, calm, ARMS["A2"], agent, (api, world))
                scripted = plain = 0.0
                for index in range(number):
                    for event in stream.drift_events:
                        if event.before == index:
                            world.swap(event.table, event.snapshot, api)
                    if bare_first := repetition % 2 == 1:
                        plain += _send_again(bare, endpoint, records[index])
                    started = time.perf_counter()
                    records[index] = line.episode(index)
                    scripted += time.perf_counter() - started
                    if not bare_first:
                        plain += _send_again(bare, endpoint, records[index])
                    synced.append(timed(partial(journal.append, records[index])))
                pairs.append((scripted, plain))
                journal.close()
    # Two rounds are one repetition: the order within a round favours what comes second.
    both = [(a + c, b + d) for (a, b), (c, d) in zip(pairs[::2], pairs[1::2], strict=True)]
    yield ratio("replay: scripted episodes / bare round trips", both, 1.5)
    each = statistics.median(scripted for scripted, _ in pairs) / number
    share = statistics.median(synced) / each
    yield Ratio("  the journal's sync / an episode, apart", share, None, f"{_shown(each)} an episode")


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
    yield ratio(f"report: phase1 / empty with {figures} figures", pairs, 1.5)


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
        recall, fold = self.memory.recall, self.memory.fold
        if what == "recall":
            asked = [_task(name) for name in chosen]
            return lambda: [recall(task) for task in asked]
        events = [self._lesson(name, repetition) for name in chosen]
        return lambda: [fold(event) for event in events]

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
            row.append(timed(partial(each.fold, event)) / dropped)
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


# -- all of it -----------------------------------------------------------------------------------------


# -- live: arms at once to the slowest alone ---------------------------------------------------------


def live() -> Iterator[Ratio]:
    """Run arms at once and alone against a provider of the tests' own that answers in half a second."""
    from live.bench_live import live_ratio

    with redirect_stderr(io.StringIO()):
        value, bound = live_ratio()
    yield Ratio("live: arms at once / the slowest alone", value, bound, "0.5 s an answer")


def everything() -> Iterator[Ratio]:
    yield from replay(repetitions=9)
    yield from report(repetitions=5)
    yield from memory((10**2, 10**4, 10**6), repetitions=21)
    yield from invalidation(10**3, (10**3, 10**6), repetitions=11)
    yield from live()
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
