"""What a notebook cell shows: pictures with alt texts, tables, sentences; and figures put in words."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Any

from crossmem.memory.arms import ARMS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    import pandas as pd  # imported where used: settings import this module for its words
    from matplotlib.figure import Figure

    from crossmem.harness.results import Run

MISSING = "-"
_MISSING = {MISSING, "nan", "NaN", "NaT", "None", "<NA>"}  # the others are pandas' own
_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?%?")

Format = Callable[[Any], str]


@contextmanager
def drawing_style() -> Iterator[None]:
    """Draw within the block in the study's style, whatever a person's matplotlibrc says."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(
            {
                "font.size": 10,
                "axes.titlesize": 12,
                "axes.titlelocation": "left",
                "axes.titleweight": "bold",
            }
        )
        yield


@dataclass(frozen=True)
class Picture:
    """A drawn figure and its alternative text."""

    figure: Figure
    alt: str

    @cached_property
    def png(self) -> bytes:
        """The figure as a PNG at twice the size it is shown at."""
        buffer = io.BytesIO()
        with drawing_style():
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


@dataclass(frozen=True)
class Prose:
    """Sentences in a box of the given kind (a CSS class of the report).

    `data` is what goes into the notebook beside them by type; nothing shows it.
    """

    sentences: tuple[str, ...]
    kind: str = "finding"
    data: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __str__(self) -> str:
        return " ".join(self.sentences)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return dict(self.data)

    def _repr_html_(self) -> str:
        body = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.sentences)
        return f'<div class="{self.kind}">{body}</div>'

    def _repr_markdown_(self) -> str:
        return "\n\n".join(self.sentences)


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
    import pandas as pd

    cells = {}
    for name in columns or frame:
        label, form = _label_and_format(str(name))
        cells[label] = frame[name].map(_or_missing(_PERCENT if name in percent else form))
    names = [str(name or "").replace("_", " ") for name in frame.index.names]
    return Table(pd.DataFrame(cells, index=frame.index).rename_axis(index=names), caption)


def by_epoch(run: Run, figure: str, family: str | None = None) -> Table:
    """Return one figure of `metrics.measure` as a table of arms by drift epochs."""
    from crossmem.analysis import metrics

    label, form = _label_and_format(figure)
    of = f" in {family} episodes" if family else ""
    caption = f"{label.capitalize()}{of}, by drift epoch"
    return Table(metrics.by_epoch(run, figure, family).map(_or_missing(form)), caption)


def stable_policies(run: Run) -> Table:
    """Return the first-try rate of each family that the drifting table does not govern, by epoch."""
    import pandas as pd

    from crossmem.analysis import metrics

    families = metrics.stable_families(run)
    tables = {family: metrics.by_epoch(run, "first_try_rate", family) for family in families}
    cells = pd.concat(tables, names=["family"]).map(_or_missing(_PERCENT))
    return Table(cells, "First-try rate by drift epoch")


def titled(run: Run, title: str) -> str:
    """Return the title of a figure, which says whose figures it shows."""
    return f"{title} ({'scripted agent' if run.scripted else run.config['parameters']['model']})"


def arm_title(arm: str) -> str:
    """Return an arm with what it stands for.

    >>> arm_title("A2")
    'A2 (governed)'
    """
    return f"{arm} ({ARMS[arm].title})" if arm in ARMS else arm


def count(value: float, thing: str = "") -> str:
    """Write a count or mean, with the thing counted in singular or plural; missing is `none`.

    >>> count(1, "attempt"), count(2.5, "attempt"), count(float("nan"))
    ('1 attempt', '2.5 attempts', 'none')
    """
    if math.isnan(value):
        return "none"
    whole = value == round(value) or round(abs(value), 1) >= 100
    plural = "" if not thing else f" {thing}" if value == 1 else f" {thing}s"
    return f"{value:,.0f}{plural}" if whole else f"{value:,.1f}{plural}"


def against(left: float, right: float, thing: str) -> str:
    """Say how one count compares with another.

    >>> against(35, 36, "attempt"), against(36, 36, "attempt")
    ('1 attempt fewer than', 'exactly as many attempts as')
    """
    if left == right:
        return f"exactly as many {thing}s as"
    return f"{count(abs(left - right), thing)} {'more' if left > right else 'fewer'} than"


def listed(values: Mapping[str, float]) -> str:
    """List a figure per arm."""
    return ", ".join(f"{arm} {count(value)}" for arm, value in values.items())


def grouped(values: Mapping[str, float]) -> str:
    """List the arms by figure, lowest first and a missing one last.

    >>> grouped({"A0": 36, "A2": 34, "LW": 36})
    '34 A2; 36 A0, LW'
    """
    groups: dict[str, list[str]] = {}
    for arm, value in sorted(values.items(), key=lambda each: (math.isnan(each[1]), each[1])):
        groups.setdefault(count(value), []).append(arm)
    return "; ".join(f"{number} {', '.join(arms)}" for number, arms in groups.items())


def joined(names: Iterable[str]) -> str:
    """Join names with commas and a last `and`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


_PERCENT: Format = "{:.0%}".format
_WHOLE: Format = "{:,.0f}".format
_FORMATS: dict[str, tuple[str, Format]] = {
    "success_rate": ("success rate", _PERCENT),
    "first_try_rate": ("first-try rate", _PERCENT),
    "tokens_per_success": ("tokens per success", _WHOLE),
    "peak_bytes": ("most bytes held", _WHOLE),
}


def _label_and_format(figure: str) -> tuple[str, Format]:
    return _FORMATS.get(figure, (figure.replace("_", " "), _plain))


def _plain(value: Any) -> str:
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def _or_missing(form: Format) -> Format:
    from pandas import isna

    return lambda value: MISSING if isna(value) else form(value)
