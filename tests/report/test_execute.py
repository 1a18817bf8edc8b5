"""A notebook runs to its end, or is marked as one that did not; no kernel outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import psutil
import pytest

from crossmem.errors import CrossmemError, InputError
from crossmem.report.execute import execute, report, sentinel_text

from .conftest import END

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow

CHECK = """
from crossmem.errors import unknown
if "arm" in globals():
    raise unknown("parameter", "arm", ["arms"])
"""


def run(source: Path, parameters: dict[str, object] | None = None, **options: int) -> Any:
    """Execute beside the source; return the executed notebook, failed or not."""
    output = source.with_name("done.ipynb")
    execute(source, output, parameters or {}, **options)
    return read(output)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def said(executed: Any) -> str:
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    return "".join(out.get("text", "") for cell in cells for out in cell.outputs)


def failed(folder: Path) -> Any:
    executed = read(folder / "done.ipynb")
    assert executed.metadata.crossmem.status == "failed"
    assert "An Exception was encountered" in executed.cells[0].source
    return executed


def test_a_completed_run_is_marked_and_its_sentinel_heard(
    notebook: Callable[..., Path], kernels: Callable[[], list[int]], tmp_path: Path
) -> None:
    source = notebook(("parameters", "arms = 'A0'  # the arms"), "print(arms)", END)
    executed = run(source, {"arms": "A1"})
    assert executed.metadata.crossmem == {"status": "completed"}
    assert "A1" in said(executed)
    assert sentinel_text(tmp_path / "done.ipynb") == "the end"
    assert {path.name for path in tmp_path.iterdir()} == {"world.ipynb", "done.ipynb"}
    assert kernels() == []


def test_a_published_notebook_does_not_tell_where_it_was_made(
    notebook: Callable[..., Path], tmp_path: Path
) -> None:
    run(notebook(END))
    assert str(tmp_path) not in (tmp_path / "done.ipynb").read_text()


def test_the_kernel_is_this_interpreter_in_the_callers_directory_on_sockets_of_its_own(
    notebook: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "else where {x}"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("TMPDIR", str(tmp_path / ("long" * 30)))
    source = notebook(
        "import sys, os, json, ipykernel\n"
        "wire = ipykernel.get_connection_file()\n"
        "print(json.dumps([sys.executable, os.getcwd(), json.load(open(wire))['transport'], wire]))",
        END,
    )
    executable, cwd, transport, wire = json.loads(said(run(source)).splitlines()[0])
    assert (executable, cwd, transport) == (sys.executable, str(elsewhere), "ipc")
    assert not Path(wire).parent.exists()


def test_the_users_ipython_start_up_files_stay_out(
    notebook: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    startup = tmp_path / "ipython/profile_default/startup"
    startup.mkdir(parents=True)
    (startup / "mine.py").write_text("mine = 1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    assert "False" in said(run(notebook("print('mine' in globals())", END)))


def test_paths_with_braces_are_taken_as_they_are(notebook: Callable[..., Path], tmp_path: Path) -> None:
    output = tmp_path / "{arms}" / "done {}.ipynb"
    assert execute(notebook(END), output, {"arms": "A0"}) == output
    assert sentinel_text(output) == "the end"


def test_progress_reaches_the_terminal(
    notebook: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run(notebook("from tqdm import tqdm\nfor _ in tqdm(range(3)): pass", END))
    captured = capsys.readouterr()
    assert "3/3" in captured.err
    assert captured.out == ""


def test_a_failing_cell_is_one_line_and_the_notebook_is_marked(
    notebook: Callable[..., Path], kernels: Callable[[], list[int]], tmp_path: Path
) -> None:
    with pytest.raises(CrossmemError) as caught:
        run(notebook("1", "raise ValueError('no such\\nthing')", "print('never')", END))
    assert str(caught.value) == "world.ipynb, code cell 2: ValueError: no such"
    assert failed(tmp_path).metadata.crossmem.reason == str(caught.value)
    assert sentinel_text(tmp_path / "done.ipynb") is None
    assert kernels() == []


def test_an_error_of_ours_is_raised_as_it_is(notebook: Callable[..., Path], tmp_path: Path) -> None:
    source = notebook(("parameters", "arms = 'A0'"), ("guard", CHECK), END)
    with pytest.raises(InputError) as caught:
        run(source, {"arm": "A1"})
    assert str(caught.value) == "unknown parameter 'arm'; did you mean 'arms'? Choices: arms"
    failed(tmp_path)


def test_an_error_of_ours_that_only_the_notebook_knows_keeps_its_message(
    notebook: Callable[..., Path],
) -> None:
    source = notebook(
        "from crossmem.errors import CrossmemError\n"
        "class OnlyHereError(CrossmemError): pass\n"
        "raise OnlyHereError('say just this')",
        END,
    )
    with pytest.raises(CrossmemError, match=r"\Asay just this\Z"):
        run(source)


def test_a_killed_kernel_is_a_failure_of_the_cell_that_killed_it(
    notebook: Callable[..., Path], kernels: Callable[[], list[int]], tmp_path: Path
) -> None:
    source = notebook("1", "import os; os.kill(os.getpid(), 9)", "print('never')", END)
    with pytest.raises(CrossmemError, match="code cell 2: DeadKernelError: Kernel died"):
        run(source)
    cells = [cell for cell in failed(tmp_path).cells if cell.cell_type == "code"]
    statuses = [cell.metadata.papermill.status for cell in cells]
    assert statuses == ["completed", "failed", "pending", "pending"]
    assert kernels() == []


def test_a_cell_that_takes_too_long_fails(
    notebook: Callable[..., Path], kernels: Callable[[], list[int]], tmp_path: Path
) -> None:
    with pytest.raises(CrossmemError, match="code cell 1: CellTimeoutError: "):
        run(notebook("import time; time.sleep(60)", END), timeout=1)
    failed(tmp_path)
    assert kernels() == []


@pytest.mark.parametrize(
    "cells",
    [
        ["import sys; sys.exit(0)", END],
        ["1"],
        [END, "2"],
        [("sentinel", "silence = 1")],
        [],
    ],
    ids=["left early", "no sentinel", "sentinel not last", "silent sentinel", "empty"],
)
def test_only_a_sentinel_that_spoke_counts_as_the_end(
    cells: list[Any], notebook: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(CrossmemError, match="did not run to its end"):
        run(notebook(*cells))
    assert read(tmp_path / "done.ipynb").metadata.crossmem.status == "failed"


def test_outputs_stored_in_the_notebook_are_no_evidence(
    notebook: Callable[..., Path], tmp_path: Path
) -> None:
    again = execute(notebook(END), tmp_path / "again.ipynb", {})
    stored = read(again)
    stored.cells.insert(0, nbformat.v4.new_code_cell("import os; os.kill(os.getpid(), 9)"))  # type: ignore[no-untyped-call]
    nbformat.write(stored, again)  # type: ignore[no-untyped-call]
    with pytest.raises(CrossmemError, match="Kernel died"):
        run(again)
    assert sentinel_text(tmp_path / "done.ipynb") is None


def test_the_previous_output_stands_until_a_whole_one_takes_its_place(
    notebook: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "done.ipynb").write_text("the previous one")
    executed = run(notebook(f"print(open({str(tmp_path / 'done.ipynb')!r}).read())", END))
    assert "the previous one" in said(executed)


def test_runs_at_once_do_not_meet(notebook: Callable[..., Path], tmp_path: Path) -> None:
    source = notebook(("parameters", "n = 0"), ("sentinel", "print(n)"))
    outputs = [tmp_path / f"{n}.ipynb" for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: execute(source, outputs[n], {"n": n}), range(4)))
    assert [sentinel_text(output) for output in outputs] == ["0", "1", "2", "3"]


def test_paths_that_cannot_be_used_are_refused_before_anything_runs(
    notebook: Callable[..., Path], tmp_path: Path
) -> None:
    source = notebook(END)
    text = tmp_path / "note.txt"
    text.write_text("no notebook")
    with pytest.raises(InputError, match="cannot read"):
        execute(tmp_path / "none.ipynb", tmp_path / "out.ipynb", {})
    with pytest.raises(InputError, match="is not a notebook"):
        execute(text, tmp_path / "out.ipynb", {})
    with pytest.raises(InputError, match="cannot write"):
        execute(source, text / "out.ipynb", {})
    with pytest.raises(InputError, match="would overwrite"):
        report(source, source.with_suffix(".html"), {})
    assert {path.name for path in tmp_path.iterdir()} == {"world.ipynb", "note.txt"}


STUBBORN = "import signal\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\n"


def start(source: Path, marker: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Report `source` in a process of its own; return it and its kernels once the cell runs."""
    code = (
        "from pathlib import Path; from crossmem.report.execute import report\n"
        f"report(Path({str(source)!r}), Path({str(source.with_name('done.html'))!r}), {{}})"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not marker.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process, psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize(("stubborn", "signals"), [("", 1), (STUBBORN, 2)])
def test_an_interrupted_run_leaves_a_marked_notebook_its_page_and_no_kernel(
    stubborn: str, signals: int, notebook: Callable[..., Path], tmp_path: Path
) -> None:
    marker = tmp_path / "running"
    loop = "import time\nwhile True: time.sleep(0.1)"
    source = notebook(f"{stubborn}open({str(marker)!r}, 'w').close()\n{loop}", "2", END)
    process, started = start(source, marker)
    for _ in range(signals):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(1)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode != 0
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    assert psutil.wait_procs(started, timeout=5)[1] == []
    assert failed(tmp_path).metadata.crossmem.reason == "interrupted"
    assert "This run did not finish" in (tmp_path / "done.html").read_text()
    assert not list(tmp_path.glob(".*"))


def test_a_kernel_does_not_outlive_a_run_that_was_killed(
    notebook: Callable[..., Path], tmp_path: Path
) -> None:
    marker = tmp_path / "running"
    source = notebook(f"open({str(marker)!r}, 'w').close()\nimport time; time.sleep(100)", END)
    process, started = start(source, marker)
    process.kill()
    process.communicate()
    assert psutil.wait_procs(started, timeout=20)[1] == []
    assert not (tmp_path / "done.ipynb").exists()
