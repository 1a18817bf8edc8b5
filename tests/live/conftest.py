"""A provider of the tests' own, reached through the standard environment variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from crossmem import streams

from .fakes import Provider, providing
from .helpers import KEY, short

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _no_settings_of_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ANTHROPIC_AUTH_TOKEN", "PILOT_MODEL", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch, results: Path) -> Iterator[Provider]:
    """A competent provider of both APIs, and a results folder of this test."""
    with providing() as provider:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{provider.url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        yield provider


@pytest.fixture
def six(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every stream one of six episodes with a drift in the middle."""
    load = streams.load
    monkeypatch.setattr(streams, "load", lambda name: short(load(name)))
