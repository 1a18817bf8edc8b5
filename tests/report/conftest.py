"""Tiny notebooks to execute and render."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nbformat
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

END = ("sentinel", "print('the end')")
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
Cell = str | tuple[str, str]
v4: Any = nbformat.v4


def write(path: Path, *cells: Cell) -> Path:
    """Write a notebook: prose starts with `#`, a pair is a tag and its code, all else is code."""
    made = []
    for cell in cells:
        tag, code = cell if isinstance(cell, tuple) else ("", cell)
        new = v4.new_markdown_cell if code.startswith("#") else v4.new_code_cell
        made.append(new(code, metadata={"tags": [tag]} if tag else {}))
    return save(v4.new_notebook(cells=made), path)


def save(notebook: Any, path: Path) -> Path:
    path.write_text(nbformat.writes(notebook), encoding="utf-8")  # type: ignore[no-untyped-call]
    return path


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


@pytest.fixture
def notebook(tmp_path: Path) -> Callable[..., Path]:
    """Write a notebook, `world.ipynb`, of these cells."""
    return lambda *cells: write(tmp_path / "world.ipynb", *cells)
