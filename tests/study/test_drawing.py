"""Figures are the study's, whatever a person's matplotlibrc says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import pytest

from crossmem.analysis import figures
from crossmem.analysis.display import Picture

if TYPE_CHECKING:
    from .conftest import Scripted

PERSONAL: dict[Any, Any] = {
    "text.usetex": True,
    "font.family": "monospace",
    "font.size": 22,
    "lines.linewidth": 9,
    "axes.facecolor": "black",
    "savefig.facecolor": "red",
    "savefig.bbox": "tight",
    "savefig.dpi": 50,
}


@pytest.mark.parametrize("name", ["strip", "tokens", "memory", "epochs", "dividend"])
def test_a_figure_is_the_same_under_a_persons_settings(name: str, scripted: Scripted) -> None:
    run = scripted("phase2", pattern="v2")
    draw = getattr(figures, name)
    plain = draw(run)
    assert isinstance(plain, Picture)
    with mpl.rc_context(PERSONAL):
        personal = draw(run)
        assert personal.png == plain.png
        assert mpl.rcParams["font.size"] == 22, "and theirs are left as they are"
