"""Whatever a run does, the packaged tables stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from crossmem.api import tables_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _packaged_tables_are_never_written() -> Iterator[None]:
    before = packaged_tables()
    yield
    assert packaged_tables() == before


def packaged_tables() -> dict[str, bytes]:
    files = sorted(tables_of("recipe").rglob("*.json"))
    return {str(path): path.read_bytes() for path in files}
