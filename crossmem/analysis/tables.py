"""How a table of figures is shown: words for columns, units, and a dash where a value is missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pandas as pd

from crossmem.analysis import metrics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from crossmem.harness.results import Run

MISSING = "-"
_MISSING = {MISSING, "nan", "NaN", "NaT", "None", "<NA>"}  # the others are pandas' own
_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?%?")

Form = Callable[[Any], str]


@dataclass(frozen=True)
class Table:
    """Cells in words, under a caption. A pandas Styler costs more than all tables of a report."""

    cells: pd.DataFrame
    caption: str

    def __str__(self) -> str:
        return f"{self.caption}\n{self.cells.to_string()}"

    def _repr_html_(self) -> str:
        """One head row, classes on the cells, and a region around it that scrolls where it is wide."""
        keys = [key if isinstance(key, tuple) else (key,) for key in self.cells.index]
        lines = [list(_row_labels(keys, place)) for place in range(len(keys))]
        head = [_cell("th", name or "") for name in self.cells.index.names]
        for name, column in self.cells.items():
            texts = [str(value) for value in column]
            numeric = is_numeric(texts)
            head.append(_cell("th", name, cell_classes(str(name), numeric=numeric)))
            for line, text in zip(lines, texts, strict=True):
                line.append(_cell("td", text, cell_classes(text, numeric=numeric)))
        caption = escape(self.caption)
        body = "\n".join(f"<tr>{''.join(line)}</tr>" for line in lines)
        return (
            f'<div class="table" role="region" tabindex="0" aria-label="{caption}">\n'
            f'<table class="dataframe">\n<caption>{caption}</caption>\n'
            f"<thead>\n<tr>{''.join(head)}</tr>\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>"
        )


def is_numeric(texts: Iterable[str]) -> bool:
    """Whether all of a column that is not missing are numbers, and some are.

    >>> is_numeric(["1,234", "-", "56%"]), is_numeric(["1.0.0"]), is_numeric(["-"])
    (True, False, False)
    """
    given = [text for text in texts if text and text not in _MISSING]
    return bool(given) and all(_NUMBER.fullmatch(text) for text in given)


def cell_classes(text: str, *, numeric: bool) -> str:
    """Return the CSS classes of a cell: `num` in a column of numbers, `missing` where there is none."""
    return " ".join(["missing"] * (text in _MISSING) + ["num"] * numeric)


def _cell(tag: str, value: object, classes: str = "", rows: int = 1) -> str:
    attributes = f' class="{classes}"' if classes else ""
    attributes += f' rowspan="{rows}"' if rows > 1 else ""
    return f"<{tag}{attributes}>{escape(str(value))}</{tag}>"


def _row_labels(keys: list[tuple[object, ...]], place: int) -> Iterator[str]:
    """Yield the labels of a row; but for the last, one that the row above shares spans both."""
    key = keys[place]
    for level in range(1, len(key) + 1):
        if level == len(key):
            yield _cell("th", key[-1])
        elif place == 0 or keys[place - 1][:level] != key[:level]:
            spanned = next(groupby(other[:level] for other in keys[place:]))[1]
            yield _cell("th", key[level - 1], rows=len(list(spanned)))


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
