"""A notebook becomes a report: executed in a fresh kernel, then rendered to one HTML file.

The kernel and the page live in `rendering/`; what a notebook computes lives elsewhere.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from crossmem.errors import CrossmemError, InputError
from crossmem.paths import whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nbformat import NotebookNode


def report(notebook: Path, html: Path, parameters: Mapping[str, object]) -> Path:
    """Execute `notebook` with `parameters`, render it to `html` and return `html`.

    The executed notebook lies beside it, under the same stem. A failed run is rendered too, with
    a banner that says so, before its error is raised.
    """
    executed = html.with_suffix(".ipynb")
    failure = _execute(notebook, executed, parameters)
    if failure is None:
        return render(executed, html)
    try:
        render(executed, html)
    except CrossmemError as error:
        failure.add_note(f"The page of the failed run could not be rendered: {error}")
    raise failure


def execute(
    notebook: Path, output: Path, parameters: Mapping[str, object], *, timeout: int | None = None
) -> Path:
    """Run `notebook` in a fresh kernel, in the caller's directory, and return `output`.

    `output` appears whole or not at all. Its metadata say `crossmem: {"status": ...}`: `completed`
    only if the last code cell, tagged `sentinel`, has sentinel_output. `timeout` is in seconds a cell.

    Raises `InputError` before anything starts if a path cannot be used. A run that fails, or is
    interrupted, is written and marked `failed`, then raised: an error of ours as it is, Ctrl-C as
    `KeyboardInterrupt`, all else as a `CrossmemError` of one line.
    """
    failure = _execute(notebook, output, parameters, timeout)
    if failure is not None:
        raise failure
    return output


def render(notebook: Path, html: Path) -> Path:
    """Write the executed `notebook` as one self-contained page, whole or not at all.

    Raises `CrossmemError`, naming the cell, for an image without alternative text and for
    anything that the page would have to load from elsewhere.
    """
    from crossmem.report.html import page

    text = str(page(read(notebook), notebook))
    with whole(html) as draft:
        draft.write_text(text, encoding="utf-8")
    return html


def sentinel_text(notebook: Path) -> str | None:
    """Return what the sentinel cell of an executed notebook said, None if it never ran."""
    return sentinel_output(read(notebook))


def _execute(
    notebook: Path, output: Path, parameters: Mapping[str, object], timeout: int | None = None
) -> BaseException | None:
    """Run, mark and move into place; return how it failed, raise only what precedes the run."""
    read(notebook)
    if output.resolve() == notebook.resolve():
        raise InputError(f"{output} would overwrite the notebook it is made from")
    with whole(output) as draft:
        failure = _run(notebook, draft, parameters, timeout)
        executed = read(draft)
        if failure is None and sentinel_output(executed) is None:
            failure = CrossmemError(
                f"{notebook.name} did not run to its end: "
                "its last code cell, tagged 'sentinel', said nothing"
            )
        _mark(executed, failure)
        # Names only: a published report does not tell where on a disk it was made.
        executed.metadata.papermill.update(input_path=notebook.name, output_path=output.name)
        _write(executed, draft)
    return failure


def _run(
    notebook: Path, draft: Path, parameters: Mapping[str, object], timeout: int | None
) -> BaseException | None:
    import papermill  # type: ignore[import-untyped]
    from papermill.exceptions import PapermillExecutionError  # type: ignore[import-untyped]

    from crossmem.report.kernel import ENGINE, fresh_kernel

    try:
        with fresh_kernel() as kernel:
            papermill.execute_notebook(
                _literal(notebook),
                _literal(draft),
                dict(parameters),
                engine_name=ENGINE,
                kernel_name=kernel.kernel_name,
                language="python",
                request_save_on_cell_execute=False,
                progress_bar=False,  # the study in the notebook draws its own
                stderr_file=sys.stderr,  # ... and this is how it reaches the terminal
                km=kernel,
                timeout=timeout,
            )
    except PapermillExecutionError as error:
        return _failure(error, notebook)
    return None


def _literal(path: Path) -> str:
    """Papermill formats paths with the parameters; take them as they are."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _failure(error: Any, notebook: Path) -> BaseException:
    """Return what to raise for papermill's error: one line, no traceback of a cell."""
    name, message = str(error.ename), str(error.evalue)
    if name == "KeyboardInterrupt":
        return KeyboardInterrupt()
    kind = next((kind for kind in _kinds(CrossmemError) if kind.__name__ == name), None)
    if kind is not None:
        return kind(message)
    if error.traceback == [f"{name}: {message}"]:  # only our errors show themselves like this
        return CrossmemError(message)
    first = next((line for line in message.splitlines() if line.strip()), "")
    where = f"{notebook.name}, code cell {error.exec_count}"
    return CrossmemError(f"{where}: {name}: {first}" if first else f"{where}: {name}")


def _kinds(kind: type[CrossmemError]) -> list[type[CrossmemError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in _kinds(child))]


def _mark(executed: NotebookNode, failure: BaseException | None) -> None:
    if failure is None:
        executed.metadata["crossmem"] = {"status": "completed"}
    else:
        reason = str(failure) or "interrupted"
        executed.metadata["crossmem"] = {"status": "failed", "reason": reason}


def sentinel_output(executed: NotebookNode) -> str | None:
    """Return what the last code cell said if it is tagged `sentinel`, None if it never ran."""
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    if not cells or "sentinel" not in cells[-1].metadata.get("tags", []):
        return None
    texts = [
        out.text if out.output_type == "stream" else out.data.get("text/plain", "")
        for out in cells[-1].outputs
        if out.output_type in {"execute_result", "display_data"} or out.get("name") == "stdout"
    ]
    return "".join(texts).strip() or None


def read(notebook: Path) -> NotebookNode:
    """Return the notebook; raises `InputError` where it is missing or none."""
    import nbformat

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
        _write(content, draft)


def _write(executed: NotebookNode, path: Path) -> None:
    import nbformat

    path.write_text(nbformat.writes(executed) + "\n", encoding="utf-8")  # type: ignore[no-untyped-call]
