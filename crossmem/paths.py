"""Where streams, notebooks, results and reports lie, and how a file gets into place whole."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from crossmem.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULTS_VARIABLE = "CROSSMEM_RESULTS"
"""Environment variable that names another folder for results files."""


def root() -> Path:
    """Return the checkout: the folder that holds the package beside `streams/` and `notebooks/`."""
    return Path(__file__).resolve().parent.parent


def streams() -> Path:
    """Return the folder of the stream files."""
    return root() / "streams"


def notebooks() -> Path:
    """Return the folder of the notebooks."""
    return root() / "notebooks"


def reports() -> Path:
    """Return the folder of the rendered reports."""
    return root() / "reports"


def published() -> Path:
    """Return the folder of the published reports."""
    return reports() / "published"


def results() -> Path:
    """Return the folder of the results files."""
    return Path(os.environ.get(RESULTS_VARIABLE) or root() / "results")


def given(path: str) -> Path:
    """Return a path as a person gave it, `~` included."""
    return Path(path).expanduser()


def shown(path: Path) -> str:
    """Return `path` as a report may show it: within the checkout, else its name alone."""
    resolved = path.resolve()
    return str(resolved.relative_to(root())) if resolved.is_relative_to(root()) else path.name


def check_writable(folder: Path, advice: str) -> None:
    """Make `folder` and prove that a file of some size can be written there.

    Raises InputError with the system's reason (no permission, no space) where it cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"\0" * 65536)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot write to {folder}: {reason}. Free it, or {advice}") from None


@contextmanager
def whole(path: Path, drafts: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path beside `path`; move it into place, synced, if the block succeeds.

    A reader sees the old file or the new one, never a part. On an error the old file stays. The
    temporary file has the suffix of `path`. It lies in `drafts` (a folder of the same file system) if
    given, so that not even a killed process leaves a part beside `path`. Raises InputError where the
    folder takes no file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(path.suffix, f".{path.stem}-", drafts or path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        draft.chmod(0o644)
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
