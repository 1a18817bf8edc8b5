"""Tiny notebooks to execute and render."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import nbformat
import psutil
import pytest
from nbformat import v4

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nbformat import NotebookNode

END = ("sentinel", "print('the end')")
Cell = str | tuple[str, str]


@pytest.fixture
def notebook(tmp_path: Path) -> Callable[..., Path]:
    """Write a notebook: prose starts with `#`, a pair is a tag and its code, all else is code."""

    def write(*cells: Cell, name: str = "world.ipynb") -> Path:
        path = tmp_path / name
        nbformat.write(v4.new_notebook(cells=[_cell(cell) for cell in cells]), path)  # type: ignore[no-untyped-call]
        return path

    return write


def _cell(cell: Cell) -> NotebookNode:
    made: Any
    if isinstance(cell, tuple):
        made = v4.new_code_cell(cell[1], metadata={"tags": [cell[0]]})  # type: ignore[no-untyped-call]
    elif cell.startswith("#"):
        made = v4.new_markdown_cell(cell)  # type: ignore[no-untyped-call]
    else:
        made = v4.new_code_cell(cell)  # type: ignore[no-untyped-call]
    return made  # type: ignore[no-any-return]


@pytest.fixture
def kernels() -> Callable[[], list[int]]:
    """Return the kernels that this process and its children run, once they had time to go."""

    def running() -> list[int]:
        for _ in range(20):
            found = _kernels()
            if not found:
                break
            time.sleep(0.1)
        return found

    return running


def _kernels() -> list[int]:
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE and "ipykernel_launcher" in child.cmdline():
                found.append(child.pid)
        except psutil.NoSuchProcess:
            continue
    return found
