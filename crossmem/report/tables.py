"""Tables of a page: wide ones scroll by themselves, columns of numbers align to the right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag

_NUMBER = re.compile(
    r"[-+\u2212\u00b1]?\s?[$€]?\d[\d,\u202f ]*(\.\d+)?([eE][-+]?\d+)?\s?(%|x|\u00d7|k|M|s|ms|B|kB|MB)?"
)
_MISSING = {"nan", "NaN", "NaT", "None", "<NA>", "n/a", "undefined"}
_NOTHING = {"", "-", "\u2013", "\u2014", *_MISSING}


def tidy(soup: BeautifulSoup) -> None:
    """Wrap, align and clean every table of the page, in place."""
    for table in soup.find_all("table"):
        _clean(table)
        _join_heads(table)
        _align(table)
        _wrap(soup, table)


def _clean(table: Tag) -> None:
    """Take off what pandas puts on: a frame, a style sheet of its own, a `div` around it."""
    del table["border"]
    for row in table.find_all("tr"):
        del row["style"]
    around = table.parent
    if around is not None and around.name == "div" and not around.attrs:
        for style in around.find_all("style", attrs={"scoped": True}, recursive=False):
            style.decompose()
        around.unwrap()


def _join_heads(table: Tag) -> None:
    """Lift the names of the index, to which pandas gives a row of their own, into the first."""
    rows = table.select("thead > tr")
    heads = [row.find_all("th") for row in rows]
    if len(heads) != 2 or any(cell.has_attr("colspan") for row in heads for cell in row):
        return
    pairs = [[cell.get_text().strip() for cell in pair] for pair in zip(*heads, strict=False)]
    if len(heads[0]) == len(heads[1]) and all(not upper or not lower for upper, lower in pairs):
        for head, (upper, lower) in zip(heads[0], pairs, strict=True):
            head.string = upper or lower
        rows[1].decompose()


def _align(table: Tag) -> None:
    """Mark the numeric columns; counted from the right, as row labels may span several rows."""
    rows = [row.find_all(["td", "th"]) for row in table.find_all("tr")]
    rows = [cells for cells in rows if not any(cell.has_attr("colspan") for cell in cells)]
    columns: dict[int, list[Tag]] = {}
    for cells in rows:
        for place, cell in enumerate(reversed(cells)):
            columns.setdefault(place, []).append(cell)
    for column in columns.values():
        texts = [cell.get_text().strip() for cell in column if cell.name == "td"]
        numbers = [text for text in texts if text not in _NOTHING]
        for cell in column:
            if cell.get_text().strip() in _MISSING:
                _mark(cell, "missing")
        if numbers and all(_NUMBER.fullmatch(text) for text in numbers):
            for cell in column:
                _mark(cell, "num")


def _mark(cell: Tag, name: str) -> None:
    classes = [str(each) for each in cell.get_attribute_list("class") if each]
    cell["class"] = " ".join([*" ".join(classes).split(), name])


def _wrap(soup: BeautifulSoup, table: Tag) -> None:
    caption = table.caption.get_text().strip() if table.caption else "Table"
    frame = soup.new_tag(
        "div", attrs={"class": "table", "tabindex": "0", "role": "region", "aria-label": caption}
    )
    table.wrap(frame)
