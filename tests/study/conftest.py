"""Whatever a run does, the packaged tables stay as they are; runs that tests only read are shared."""

from __future__ import annotations

import os
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock
from running import run_phase

from crossmem.api import tables_of
from crossmem.domains import DOMAINS
from crossmem.harness.results import load
from crossmem.memory.arms import ARMS
from crossmem.paths import RESULTS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from crossmem.harness.results import Run

    Scripted = Callable[..., Run]


@pytest.fixture(autouse=True)
def _packaged_tables_are_never_written() -> Iterator[None]:
    before = packaged_tables()
    yield
    assert packaged_tables() == before


def packaged_tables() -> dict[str, bytes]:
    files = sorted(path for domain in DOMAINS for path in tables_of(domain).rglob("*.json"))
    return {str(path): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Scripted:
    """Return the run of a phase with the scripted agent, all ten arms unless others are named.

    Beside them the oracle, but in Phase 1.

    Replayed once for all tests and workers, and read from its file; not to be changed.
    """
    root = tmp_path_factory.getbasetemp()
    root = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "scripted"
    root.mkdir(exist_ok=True)
    known: dict[str, Run] = {}

    def made(phase: str, **given: Any) -> Run:
        given = {"mock": True, "arms": ",".join(ARMS), **given}
        given["arms"] += "" if phase == "phase1" else ",oracle"
        name = repr((phase, sorted(given.items())))
        if name not in known:
            folder = root / sha256(name.encode()).hexdigest()[:16]
            with FileLock(f"{folder}.lock"), pytest.MonkeyPatch.context() as patch:
                patch.setenv(RESULTS_VARIABLE, str(folder))
                files = [*folder.glob("*.jsonl")] or [run_phase(phase, **given).path]
            known[name] = load(files[0])
        return known[name]

    return made
