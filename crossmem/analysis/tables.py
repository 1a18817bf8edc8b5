"""How a table of figures is shown: words for columns, units, and a dash where a value is missing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from crossmem.analysis import metrics

if TYPE_CHECKING:
    from collections.abc import Collection

    from crossmem.harness.results import Run

MISSING = "-"

Form = Callable[[Any], str]


@dataclass(frozen=True)
class Table:
    """Cells in words, under a caption. A pandas Styler costs more than all tables of a report."""

    cells: pd.DataFrame
    caption: str

    def __str__(self) -> str:
        return f"{self.caption}\n{self.cells.to_string()}"

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            html = self.cells.to_html(border=0)
        return html.replace(">", f"><caption>{escape(self.caption)}</caption>", 1)


def show(
    frame: pd.DataFrame,
    caption: str,
    columns: list[str] | None = None,
    percent: Collection[str] = (),
) -> Table:
    """Return `frame` (the `columns` named, or all) ready to be displayed under `caption`.

    Columns in `percent` hold shares, beside the rates that are known to.
    """
    cells = {}
    for name in columns or frame:
        label, form = _shown(str(name))
        cells[label] = frame[name].map(_or_missing("{:.0%}".format if name in percent else form))
    names = [str(name or "").replace("_", " ") for name in frame.index.names]
    return Table(pd.DataFrame(cells, index=frame.index).rename_axis(index=names), caption)


def by_epoch(run: Run, figure: str, family: str | None = None) -> Table:
    """Return one figure of `metrics.measure` as a table of arms by drift epochs."""
    label, form = _shown(figure)
    of = f" in {family} episodes" if family else ""
    caption = f"{label.capitalize()}{of}, by drift epoch"
    return Table(metrics.by_epoch(run, figure, family).map(_or_missing(form)), caption)


def stable_policies(run: Run) -> Table:
    """Return the first-try rate of each family that the drifting table does not govern, by epoch."""
    families = metrics.stable_families(run)
    tables = {family: metrics.by_epoch(run, "first_try_rate", family) for family in families}
    cells = pd.concat(tables, names=["family"]).map(_or_missing("{:.0%}".format))
    return Table(cells, "First-try rate by drift epoch")


def _plain(value: Any) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


_FORMS: dict[str, tuple[str, Form]] = {
    "success_rate": ("success rate", "{:.0%}".format),
    "first_try_rate": ("first-try rate", "{:.0%}".format),
    "tokens_per_success": ("tokens per success", "{:,.0f}".format),
    "peak_bytes": ("most bytes held", "{:,.0f}".format),
}


def _shown(figure: str) -> tuple[str, Form]:
    """Return what a figure is called and how it is written."""
    return _FORMS.get(figure, (figure.replace("_", " "), _plain))


def _or_missing(form: Form) -> Form:
    return lambda value: MISSING if pd.isna(value) else form(value)
