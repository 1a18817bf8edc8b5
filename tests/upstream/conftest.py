"""Foreign repositories that are watched: they stay as they were, and no server is left."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Any, Protocol

import psutil
import pytest

from .foreign import PLAIN, Plan, build, servers, state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Builder(Protocol):
    def __call__(self, plan: Plan = PLAIN, name: str = "theirs", **misbehave: Any) -> Path: ...


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STRIPE_API_KEY", "PILOT_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def results(results: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results folder of this test; private copies of its runs go to `copies` beside it."""
    copies = results.with_name("copies")
    copies.mkdir()
    monkeypatch.setenv("TMPDIR", str(copies))
    monkeypatch.setattr("tempfile.tempdir", None)
    return results


@pytest.fixture
def made(tmp_path: Path) -> Builder:
    """Build a repository that a test may change."""

    def building(plan: Plan = PLAIN, name: str = "theirs", **misbehave: Any) -> Path:
        return build(tmp_path / name, plan, **misbehave)

    return building


@pytest.fixture
def watched(tmp_path: Path, results: Path) -> Iterator[Builder]:
    """Build repositories that are as they were after the test, with no server left."""
    before = {}

    def building(plan: Plan = PLAIN, name: str = "theirs", **misbehave: Any) -> Path:
        repository = build(tmp_path / name, plan, **misbehave)
        before[repository] = state(repository)
        return repository

    yield building
    nobody_left(results)
    for repository, was in before.items():
        assert state(repository) == was


def nobody_left(results: Path, within_s: float = 10.0) -> None:
    """Assert that no server of a run in `results` is left, or ends by itself soon; then none is."""
    deadline = time.monotonic() + within_s
    while (left := servers(results)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    assert left == []


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
