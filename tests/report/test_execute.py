"""A notebook runs to its end, or is marked as one that did not; no kernel outlives it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from crossmem.errors import CrossmemError, InputError
from crossmem.report.execute import execute, report, sentinel_text

from .conftest import END, Cell, read, save, v4, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _no_kernel_is_left() -> Iterator[None]:
    yield
    kernels = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "ipykernel_launcher" in child.cmdline():
                kernels.append(child)
    assert psutil.wait_procs(kernels, timeout=2)[1] == []


# -- a run that ends -------------------------------------------------------------------------------

ASK = """
import json, os, sys, ipykernel
from tqdm import tqdm
for _ in tqdm(range(3)):
    pass
wire = ipykernel.get_connection_file()
print(json.dumps({
    "arms": arms,
    "executable": sys.executable,
    "directory": os.getcwd(),
    "transport": json.load(open(wire))["transport"],
    "wire": wire,
    "start-up file": "mine" in globals(),
    "previous output": open(previous).read(),
}))
"""


def test_a_run_to_the_end_in_a_fresh_kernel_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "else where {x}"
    directory.mkdir()
    startup = tmp_path / "ipython/profile_default/startup"
    startup.mkdir(parents=True)
    (startup / "mine.py").write_text("mine = 1")
    monkeypatch.chdir(directory)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("long" * 30)))
    output = tmp_path / "{arms}" / "done {}.ipynb"
    output.parent.mkdir()
    output.write_text("stands until a whole one takes its place")

    parameters = ("parameters", "arms = 'A0'  # the arms\nprevious = ''  # a file")
    source = write(tmp_path / "world.ipynb", parameters, ASK, END)
    given = {"arms": "A1F", "previous": str(output)}
    with redirect_stderr(io.StringIO()) as stderr, redirect_stdout(io.StringIO()) as stdout:
        assert execute(source, output, given) == output

    executed = read(output)
    assert executed.metadata.crossmem == {"status": "completed"}
    assert sentinel_text(output) == "the end"
    (printed,) = [out.text for out in executed.cells[-2].outputs if out.name == "stdout"]
    answer = json.loads(printed)
    assert not Path(answer.pop("wire")).parent.exists()
    assert answer == {
        "arms": "A1F",
        "executable": sys.executable,
        "directory": str(directory),
        "transport": "ipc",
        "start-up file": False,
        "previous output": "stands until a whole one takes its place",
    }
    assert "3/3" in stderr.getvalue(), "a progress bar reaches the terminal"
    assert stdout.getvalue() == ""
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_an_executed_notebook_does_not_tell_where_it_was_made_and_may_be_run_again(
    notebook: Callable[..., Path], tmp_path: Path
) -> None:
    once = execute(notebook(END), tmp_path / "once.ipynb", {})
    assert str(tmp_path) not in once.read_text()
    twice = execute(once, tmp_path / "twice.ipynb", {})
    assert sentinel_text(twice) == "the end"


def test_runs_at_once_do_not_meet(notebook: Callable[..., Path], tmp_path: Path) -> None:
    source = notebook(("parameters", "n = 0"), ("sentinel", "print(n)"))
    outputs = [tmp_path / f"{n}.ipynb" for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: execute(source, outputs[n], {"n": n}), range(4)))
    assert [sentinel_text(output) for output in outputs] == ["0", "1", "2", "3"]


# -- a run that fails ------------------------------------------------------------------------------

OURS = "from crossmem.errors import CrossmemError, InputError\n"
FAILURES: dict[str, tuple[list[Cell], type[CrossmemError], str]] = {
    "any error, in one line": (
        ["1", "raise ValueError('no such\\nthing')", "print('never')", END],
        CrossmemError,
        "world.ipynb, code cell 2: ValueError: no such",
    ),
    "ours as it is": (
        [OURS + "raise InputError('use another')", END],
        InputError,
        "use another",
    ),
    "ours that only the notebook knows": (
        [OURS + "class OnlyHereError(CrossmemError): pass\nraise OnlyHereError('say just this')", END],
        CrossmemError,
        "say just this",
    ),
    "left early": (
        ["import sys; sys.exit(0)", END],
        CrossmemError,
        "world.ipynb did not run to its end: its last code cell, tagged 'sentinel', said nothing",
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_is_one_line_and_the_notebook_is_marked(
    case: str, notebook: Callable[..., Path], tmp_path: Path
) -> None:
    cells, kind, message = FAILURES[case]
    output = tmp_path / "done.ipynb"
    with pytest.raises(kind) as caught:
        execute(notebook(*cells), output, {})
    assert type(caught.value) is kind
    assert str(caught.value) == message
    executed = read(output)
    assert executed.metadata.crossmem == {"status": "failed", "reason": message}
    assert ("An Exception was encountered" in executed.cells[0].source) == (case != "left early")
    assert sentinel_text(output) is None


def test_a_killed_kernel_is_a_failure_of_the_cell_that_killed_it_whatever_the_notebook_held(
    notebook: Callable[..., Path], tmp_path: Path
) -> None:
    source = notebook("1", "import os; os.kill(os.getpid(), 9)", "print('never')", END)
    stored = read(source)
    stored.cells[-1].outputs = [v4.new_output("stream", text="the end")]
    save(stored, source)
    assert sentinel_text(source) == "the end"
    with pytest.raises(CrossmemError, match="code cell 2: DeadKernelError: Kernel died"):
        execute(source, tmp_path / "done.ipynb", {})
    executed = read(tmp_path / "done.ipynb")
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    statuses = [cell.metadata.papermill.status for cell in cells]
    assert statuses == ["completed", "failed", "pending", "pending"]
    assert executed.metadata.crossmem.status == "failed"
    assert sentinel_text(tmp_path / "done.ipynb") is None


@pytest.mark.parametrize(
    ("cells", "text"),
    [([END], "the end"), ([], None), (["1"], None), ([END, "2"], None)],
    ids=["sentinel", "empty", "no sentinel", "sentinel not last"],
)
def test_only_a_sentinel_in_the_last_cell_counts_as_the_end(
    cells: list[Cell], text: str | None, notebook: Callable[..., Path]
) -> None:
    path = notebook(*cells)
    executed = read(path)
    for cell in executed.cells:
        cell.outputs = [v4.new_output("stream", text="the end")]
    save(executed, path)
    assert sentinel_text(path) == text
    for cell in executed.cells:
        cell.outputs = [v4.new_output("stream", name="stderr", text="a warning")]
    assert sentinel_text(save(executed, path)) is None


def test_paths_that_cannot_be_used_are_refused_before_anything_runs(
    notebook: Callable[..., Path], tmp_path: Path
) -> None:
    source, output, text = notebook(END), tmp_path / "out.ipynb", tmp_path / "note.txt"
    text.write_text("no notebook")
    with pytest.raises(InputError, match="cannot read"):
        execute(tmp_path / "none.ipynb", output, {})
    with pytest.raises(InputError, match="is not a notebook"):
        execute(text, output, {})
    with pytest.raises(InputError, match="cannot write"):
        execute(source, text / "out.ipynb", {})
    with pytest.raises(InputError, match="would overwrite"):
        report(source, source.with_suffix(".html"), {})
    assert {path.name for path in tmp_path.iterdir()} == {"world.ipynb", "note.txt"}


# -- a run that is stopped -------------------------------------------------------------------------

STUBBORN = "import signal\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\n"


def started(
    notebook: Callable[..., Path], folder: Path, code: str = ""
) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Report a notebook without end in a process of its own; return it and its kernels."""
    marker = folder / "running"
    loop = "import time\nwhile True: time.sleep(0.1)"
    source = notebook(f"{code}open({str(marker)!r}, 'w').close()\n{loop}", "2", END)
    command = (
        "from pathlib import Path; from crossmem.report.execute import report\n"
        f"report(Path({str(source)!r}), Path({str(folder / 'done.html')!r}), {{}})"
    )
    process = subprocess.Popen([sys.executable, "-c", command], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not marker.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process, psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize(("stubborn", "signals"), [("", 1), (STUBBORN, 2)], ids=["one", "stubborn"])
def test_an_interrupted_run_leaves_a_marked_notebook_its_page_and_no_kernel(
    stubborn: str, signals: int, notebook: Callable[..., Path], tmp_path: Path
) -> None:
    process, children = started(notebook, tmp_path, stubborn)
    for _ in range(signals):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(1)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode != 0
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert psutil.wait_procs(children, timeout=5)[1] == []
    mark = read(tmp_path / "done.ipynb").metadata.crossmem
    assert mark == {"status": "failed", "reason": "interrupted"}
    assert "This run did not finish" in (tmp_path / "done.html").read_text()
    assert not list(tmp_path.glob(".*"))


def test_a_kernel_does_not_outlive_a_run_that_was_killed(
    notebook: Callable[..., Path], tmp_path: Path
) -> None:
    process, children = started(notebook, tmp_path)
    process.kill()
    process.communicate()
    assert psutil.wait_procs(children, timeout=20)[1] == []
    assert not (tmp_path / "done.ipynb").exists()
