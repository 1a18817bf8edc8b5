"""A fresh kernel on this very interpreter, and the papermill engine that runs a notebook in it.

Importing this costs about a second, so it is imported where a notebook is about to run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import ensure_event_loop
from nbformat import v4
from papermill.clientwrap import PapermillNotebookClient  # type: ignore[import-untyped]
from papermill.engines import Engine, papermill_engines  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINE = "crossmem"

# A terminal shows one clear line; what papermill logs beside it is for those who configure logging.
_LOG = logging.getLogger("papermill")
_LOG.addHandler(logging.NullHandler())


@contextmanager
def fresh_kernel() -> Iterator[AsyncKernelManager]:
    """Yield the manager of a kernel that is not yet started; leave nothing of it behind.

    It talks over sockets in a folder of its own: kernels started at once may get the same ports.
    """
    # The path of a socket may have no more than some hundred characters; $TMPDIR may be long.
    short = "/tmp" if Path("/tmp").is_dir() else None  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="crossmem-", dir=short))
    kernel = AsyncKernelManager(
        # With no directory to look for others, this is ipykernel's own spec: sys.executable.
        kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
        kernel_name="python3",
        transport="ipc",
        ip=str(folder / "socket"),
        connection_file=str(folder / "kernel.json"),
        shutdown_wait_time=10.0,
    )
    _quieten_event_loop()
    try:
        yield kernel
    finally:
        _kill(kernel)
        _close_event_loop()
        shutil.rmtree(folder, ignore_errors=True)


def _kill(kernel: AsyncKernelManager) -> None:
    """Kill what an orderly shutdown, itself perhaps interrupted, has left running."""
    process = getattr(kernel.provisioner, "process", None)
    if process is not None and process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # jupyter_client starts it as a group leader
        process.wait()


def _quieten_event_loop() -> None:
    """Have the loop that nbclient works in say nothing of the tasks that an interrupt ends.

    From the start: a task that is forgotten with its error in it is told of whenever it is collected.
    """
    loop = ensure_event_loop()
    if not loop.is_running():  # the caller's own: nbclient works in another thread
        loop.set_exception_handler(lambda _loop, _context: None)


def _close_event_loop() -> None:
    """Close the loop that nbclient opens in every thread, with what an interrupt left in it."""
    loop = ensure_event_loop()
    if loop.is_running():
        return
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
    asyncio.set_event_loop(None)


class _FreshKernel(Engine):  # type: ignore[misc]
    """Makes of whatever stops a run an error of its cell, which papermill then reports."""

    @classmethod
    def execute_managed_notebook(
        cls, run: Any, kernel_name: str, *, km: AsyncKernelManager, **options: Any
    ) -> None:
        wanted = {k: options[k] for k in ("stderr_file", "timeout") if options[k] is not None}
        quiet = ["--log-level=CRITICAL"]  # or it logs as an error the SIGINT of its shutdown
        client = PapermillNotebookClient(
            run, km=km, log=_LOG, kernel_name=kernel_name, extra_arguments=quiet, **wanted
        )
        try:
            client.execute(cleanup_kc=True, env=_environment(Path(km.ip).parent))
        except (Exception, KeyboardInterrupt) as error:
            _blame(run, error)


papermill_engines.register(ENGINE, _FreshKernel)


def _environment(folder: Path) -> dict[str, str]:
    """The caller's environment without what would let a person's IPython set-up into a report."""
    figures = "module://matplotlib_inline.backend_inline"
    return {**os.environ, "IPYTHONDIR": str(folder), "MPLBACKEND": figures}


def _blame(run: Any, error: BaseException) -> None:
    """Record `error` on the cell that ran last: nbclient and papermill leave it `completed`."""
    code = [cell for cell in run.nb.cells if cell.cell_type == "code"]
    started = [i for i, cell in enumerate(code) if cell.metadata.papermill["start_time"]]
    index = started[-1] if started else 0
    cell = code[index]
    cell.execution_count = cell.execution_count or index + 1
    # The shutdown has interrupted the cell: where it stood is of use, that it was interrupted is not.
    stood = [line for out in cell.outputs for line in out.get("traceback", [])]
    name, message = type(error).__name__, str(error)
    out = v4.new_output("error", ename=name, evalue=message, traceback=stood)  # type: ignore[no-untyped-call]
    cell.outputs = [*(o for o in cell.outputs if o.output_type != "error"), out]
    run.cell_exception(cell)
