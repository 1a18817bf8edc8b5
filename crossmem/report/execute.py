"""A notebook is executed in a fresh kernel and marked as finished or failed; html.py makes its page."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import sys
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any

import nbformat
import papermill  # type: ignore[import-untyped]
from filelock import FileLock, Timeout
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from papermill.clientwrap import PapermillNotebookClient  # type: ignore[import-untyped]
from papermill.engines import Engine, papermill_engines  # type: ignore[import-untyped]
from papermill.exceptions import PapermillExecutionError  # type: ignore[import-untyped]

from crossmem import paths
from crossmem.errors import CrossmemError, InputError
from crossmem.paths import whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nbformat import NotebookNode

_ENGINE = "crossmem"

# A terminal shows one clear line; what papermill logs beside it is for those who configure logging.
logging.getLogger("papermill").addHandler(logging.NullHandler())


def report(notebook: Path, html: Path, parameters: Mapping[str, object]) -> Path:
    """Execute `notebook` with `parameters`, render it to `html` and return `html`.

    The executed notebook lies beside it, under the same stem. A failed run is rendered too, with
    a banner that says so, before its error is raised.
    """
    from crossmem.report.html import render

    executed = html.with_suffix(".ipynb")
    failure = _execute(notebook, executed, parameters)
    try:
        render(executed, html)
    except CrossmemError as error:
        if failure is None:
            raise
        failure.add_note(f"The page of the failed run could not be rendered: {error}")
    if failure is not None:
        raise failure
    return html


def execute(notebook: Path, output: Path, parameters: Mapping[str, object]) -> Path:
    """Run `notebook` in a fresh kernel, in the caller's directory, and return `output`.

    `output` appears whole or not at all. Its metadata say `crossmem: {"status": ...}`: `completed`
    only if the last code cell, tagged `sentinel`, has printed something.

    Raises `InputError` before anything starts if a path cannot be used. A run that fails, or is
    interrupted, is written and marked `failed`, then raised: an error of ours with its message,
    Ctrl-C as `KeyboardInterrupt`, all else as a `CrossmemError` of one line.
    """
    failure = _execute(notebook, output, parameters)
    if failure is not None:
        raise failure
    return output


@contextmanager
def claimed_page(asked: Path | None, stem: str) -> Iterator[Path]:
    """Yield the page to write, which no other report writes as long as the block runs.

    `asked` is the page that a person named; without one it is the first free of `<stem>.html`,
    `<stem>-2.html`, ... in the reports folder, so that two reports at once write two pages. Raises
    InputError where a page cannot be written or is being written.
    """
    pages = [asked] if asked else (paths.reports() / f"{stem}{n}.html" for n in _numbers())
    for page in pages:
        _check_output(page)
        name = sha256(str(page.resolve()).encode()).hexdigest()[:16]
        lock = FileLock(Path(gettempdir()) / f"crossmem-{os.getuid()}-{name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            continue
        try:
            yield page
        finally:
            lock.release()
        return
    raise InputError(f"{asked} is being written by another report; name another file with -o")


def _numbers() -> Iterator[str]:
    yield ""
    yield from (f"-{number}" for number in itertools.count(2))


def _check_output(page: Path) -> None:
    """Raise InputError where neither a page nor the executed notebook beside it could be written."""
    if page.suffix == ".ipynb":
        raise InputError(f"{page} is the name of a notebook: name an .html file with -o")
    for file in (page, page.with_suffix(".ipynb")):
        if file.is_dir():
            raise InputError(f"cannot write {file}: it is a folder; name a file in it with -o")
    paths.check_writable(page.parent, "name another file with -o")


def sentinel_text(notebook: Path) -> str | None:
    """Return what the sentinel cell of an executed notebook printed, None if it never ran."""
    return final_text(read(notebook))


def read(notebook: Path) -> NotebookNode:
    """Return the notebook; raises `InputError` where it is missing or none."""
    try:
        return nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call, no-any-return]
    except OSError as error:
        raise InputError(f"cannot read {notebook}: {error.strerror}") from error
    except (ValueError, nbformat.ValidationError) as error:
        raise InputError(f"{notebook} is not a notebook: {error}") from error


def write_parameters(notebook: Path, source: str) -> None:
    """Put `source` into the parameters cell of a notebook, which is moved into place whole."""
    content = read(notebook)
    for cell in content.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = source
    with whole(notebook) as draft:
        draft.write_text(nbformat.writes(content) + "\n", encoding="utf-8")  # type: ignore[no-untyped-call]


def final_text(executed: NotebookNode) -> str | None:
    """Return what the last code cell printed if it is tagged `sentinel`, None if it never ran."""
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    if not cells or "sentinel" not in cells[-1].metadata.get("tags", []):
        return None
    printed = (out for out in cells[-1].outputs if out.get("name") != "stderr")
    texts = (out.get("text") or out.get("data", {}).get("text/plain", "") for out in printed)
    return "".join(texts).strip() or None


def _execute(notebook: Path, output: Path, parameters: Mapping[str, object]) -> BaseException | None:
    """Run, mark and move into place; return how it failed, raise only what precedes the run."""
    read(notebook)
    if output.resolve() == notebook.resolve():
        raise InputError(f"{output} would overwrite the notebook it is made from")
    with whole(output) as draft:
        failure = _run(notebook, draft, parameters)
        executed = read(draft)
        if failure is None and final_text(executed) is None:
            failure = CrossmemError(
                f"{notebook.name} did not run to its end: "
                "its last code cell, tagged 'sentinel', said nothing"
            )
        failed = {"status": "failed", "reason": str(failure) or "interrupted"}
        executed.metadata["crossmem"] = failed if failure else {"status": "completed"}
        # Names only: a published report does not tell where on a disk it was made.
        executed.metadata.papermill.update(input_path=notebook.name, output_path=output.name)
        text = nbformat.writes(executed)  # type: ignore[no-untyped-call]
        draft.write_text(f"{text}\n", encoding="utf-8")
    return failure


def _run(notebook: Path, draft: Path, parameters: Mapping[str, object]) -> BaseException | None:
    # Papermill formats paths with the parameters; these are to be taken as they are.
    source, target = (str(path).replace("{", "{{").replace("}", "}}") for path in (notebook, draft))
    try:
        with _fresh_kernel() as kernel:
            papermill.execute_notebook(
                source,
                target,
                dict(parameters),
                engine_name=_ENGINE,
                kernel_name=kernel.kernel_name,
                language="python",
                request_save_on_cell_execute=False,
                progress_bar=False,  # the study in the notebook draws its own
                km=kernel,
            )
    except PapermillExecutionError as error:
        return _failure(error, notebook)
    return None


def _failure(error: Any, notebook: Path) -> BaseException:
    """Return what to raise for papermill's error: one line, no traceback of a cell."""
    name, message = str(error.ename), str(error.evalue)
    if name == "KeyboardInterrupt":
        return KeyboardInterrupt()
    if error.traceback == [f"{name}: {message}"]:  # only our errors show themselves like this
        return InputError(message) if name == InputError.__name__ else CrossmemError(message)
    where = f"{notebook.name}, code cell {error.exec_count}"
    first = next(filter(str.strip, message.splitlines()), "")
    return CrossmemError(": ".join(filter(None, (where, name, first))))


@contextmanager
def _fresh_kernel() -> Iterator[AsyncKernelManager]:
    """Yield the manager of a kernel that is not yet started; leave nothing of it behind.

    It talks over sockets in a folder of its own: kernels started at once may get the same ports.
    """
    # The path of a socket may have no more than some hundred characters; $TMPDIR may be long.
    private = TemporaryDirectory(prefix="crossmem-", dir="/tmp", ignore_cleanup_errors=True)
    with ExitStack() as cleanup:
        folder = cleanup.enter_context(private)
        loop = ensure_event_loop()
        if not loop.is_running():  # in the caller's own: nbclient works in another thread
            # A task that an interrupt ends has nothing to say, now or when it is collected.
            loop.set_exception_handler(lambda _loop, _context: None)
            cleanup.enter_context(asyncio.Runner(loop_factory=lambda: loop))  # ends what is left in it
        kernel = AsyncKernelManager(
            # With no directory to look for others, this is ipykernel's own spec: sys.executable.
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
            kernel_name="python3",
            transport="ipc",
            ip=f"{folder}/socket",
            connection_file=f"{folder}/kernel.json",
            shutdown_wait_time=10.0,
        )
        cleanup.callback(_kill, kernel)
        yield kernel


def _kill(kernel: AsyncKernelManager) -> None:
    """Kill what an orderly shutdown, itself perhaps interrupted, has left running."""
    process = getattr(kernel.provisioner, "process", None)
    if process is not None and process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # jupyter_client starts it as a group leader
        process.wait()


class _FreshKernelEngine(Engine):  # type: ignore[misc]
    """Makes of whatever stops a run an error of its cell, which papermill then reports."""

    @classmethod
    def execute_managed_notebook(
        cls, run: Any, kernel_name: str, *, km: AsyncKernelManager, **_options: Any
    ) -> None:
        client = PapermillNotebookClient(
            run,
            km=km,
            log=logging.getLogger("papermill"),
            kernel_name=kernel_name,
            stderr_file=sys.stderr,  # how a progress bar in the notebook reaches the terminal
            extra_arguments=["--log-level=CRITICAL"],  # or it logs the SIGINT of its shutdown
        )
        # The caller's environment without what would let a person's IPython set-up into a report.
        figures = "module://matplotlib_inline.backend_inline"
        env = os.environ | {"IPYTHONDIR": str(Path(km.ip).parent), "MPLBACKEND": figures}
        try:
            client.execute(cleanup_kc=True, env=env)
        except (Exception, KeyboardInterrupt) as error:
            _blame(run, error)


papermill_engines.register(_ENGINE, _FreshKernelEngine)


def _blame(run: Any, error: BaseException) -> None:
    """Record `error` on the cell that ran last: nbclient and papermill leave it `completed`."""
    code = [cell for cell in run.nb.cells if cell.cell_type == "code"]
    started = [cell for cell in code if cell.metadata.papermill["start_time"]] or code[:1]
    cell = started[-1]
    cell.execution_count = cell.execution_count or len(started)
    # The shutdown has interrupted the cell: where it stood is of use, that it was interrupted is not.
    stood = [line for out in cell.outputs for line in out.get("traceback", [])]
    out = nbformat.v4.new_output(  # type: ignore[no-untyped-call]
        "error", ename=type(error).__name__, evalue=str(error), traceback=stood
    )
    cell.outputs = [*(o for o in cell.outputs if o.output_type != "error"), out]
    run.cell_exception(cell)
