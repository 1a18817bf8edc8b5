"""A drawn figure with its alternative text, as notebooks and pages show it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

    from crossmem.harness.results import Run


@dataclass(frozen=True)
class Picture:
    """A drawn figure and what it shows in words."""

    figure: Figure
    alt: str

    @cached_property
    def png(self) -> bytes:
        """The figure as a PNG at twice the size it is shown at."""
        buffer = io.BytesIO()
        self.figure.savefig(
            buffer,
            format="png",
            dpi=200,
            metadata={"Software": None},
            pil_kwargs={"compress_level": 3},  # a third of the time for a tenth more bytes
        )
        return buffer.getvalue()

    def save(self, path: Path) -> Path:
        """Write the PNG and return where it lies."""
        path.write_bytes(self.png)
        return path

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        width = round(self.figure.get_figwidth() * 100)
        return (
            {"image/png": self.png, "text/plain": self.alt},
            {"image/png": {"alt": self.alt, "width": width}},
        )


def titled(run: Run, title: str) -> str:
    """Return the title of a figure, which says whose figures it shows."""
    return f"{title} ({'scripted agent' if run.scripted else run.config['parameters']['model']})"
