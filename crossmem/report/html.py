"""An executed notebook becomes one self-contained page; its template and style lie in report/."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bs4 import BeautifulSoup
from nbconvert.exporters import HTMLExporter
from papermill.translators import papermill_translators  # type: ignore[import-untyped]

from crossmem.analysis.display import cell_classes, is_numeric
from crossmem.analysis.notices import MIME
from crossmem.errors import CrossmemError
from crossmem.paths import whole
from crossmem.report.execute import final_text, read

if TYPE_CHECKING:
    from bs4 import Tag
    from nbformat import NotebookNode

# What a cell shows of an output that comes in several forms. Widgets and scripts are not shown.
_TYPES = ("text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "text/plain")
_NO_CODE = {"parameters", "injected-parameters", "guard", "sentinel"}  # tags of code no reader needs
_PROGRESS = re.compile(r"\d+%\||\d+(?:it|/\d+) \[\d+:\d+|\d+it \[")
_NO_ALT = {"", "No description has been provided for this image"}  # the latter is nbconvert's
_LOADING = ("src", "srcset", "poster", "data", "background")
_LOADING_LINKS = {"link", "image", "use"}
_CSS_URL = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""")


def render(notebook: Path, html: Path) -> Path:
    """Write the executed `notebook` as one self-contained page, whole or not at all.

    Raises `CrossmemError`, naming the cell, for an image without alternative text and for
    anything that the page would have to load from elsewhere.
    """
    text = str(page(read(notebook), notebook))
    with whole(html) as draft:
        draft.write_text(text, encoding="utf-8")
    return html


def page(notebook: NotebookNode, path: Path) -> BeautifulSoup:
    """Return the page of the executed `notebook`, which was read from `path`; raises as `render`."""
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="report",
        extra_template_basedirs=[str(Path(__file__).parent)],
        embed_images=True,
        anchor_link_text="",  # the style sheet draws it, so that a heading is its words alone
        filters={"best_type": best_type, "without_progress": without_progress},
    )
    resources = {"metadata": {"path": str(path.parent)}, "facts": _facts(notebook, path)}
    html, _ = exporter.from_notebook_node(notebook, resources)
    soup = BeautifulSoup(html, "html.parser")
    for tag in soup.select("*"):
        _check(tag)
    for table in soup.select("table.dataframe[border]"):
        _dress(table)
    for table in soup.select("table:not(.table > table)"):  # those that bring no region of their own
        label = table.caption.get_text().strip() if table.caption else "Table"
        region = {"class": "table", "role": "region", "tabindex": "0", "aria-label": label}
        table.wrap(soup.new_tag("div", attrs=region))
    _add_title_and_contents(soup)
    return soup


def best_type(data: dict[str, Any]) -> str | None:
    """Return the MIME type under which an output is shown, None if it is not."""
    if "application/vnd.jupyter.widget-view+json" in data:
        return None  # its text is a stale progress bar or a mere repr
    return next((kind for kind in _TYPES if kind in data), None)


def without_progress(text: str) -> str:
    r"""Return what a progress bar has not written of the `text` on stderr.

    >>> without_progress("  0%|   | 0/9\r100%|###| 9/9\nbeware\n")
    'beware'
    """
    lines = map(str.rstrip, re.split(r"[\r\n]+", text))
    return "\n".join(line for line in lines if line and not _PROGRESS.search(line))


def moment(iso: str) -> str:
    """Write a time for people.

    >>> moment("2026-03-01T09:05:00+00:00")
    '1 March 2026, 09:05 UTC'
    """
    when = datetime.fromisoformat(iso).astimezone(UTC)
    return when.strftime("%d %B %Y, %H:%M UTC").lstrip("0")


def failure_reason(notebook: NotebookNode) -> str | None:
    """Return why the run is not to be trusted; the status of a cell is no evidence that it is."""
    mark = notebook.metadata.get("crossmem", {})
    if mark.get("status") == "failed":
        return str(mark.get("reason", ""))
    for out in (out for cell in notebook.cells for out in cell.get("outputs", [])):
        if out.output_type == "error":
            return f"{out.ename}: {out.evalue}"
    if any("sentinel" in _tags(cell) for cell in notebook.cells) and final_text(notebook) is None:
        return "The last cell of the notebook did not run."
    return None


def _tags(cell: NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


def _facts(notebook: NotebookNode, path: Path) -> dict[str, Any]:
    """Number the code cells, as Jupyter does in `In [3]`, and say what the page has to know."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        cell.metadata["number"] = number
        cell.metadata["folds"] = bool(cell.source.strip()) and _NO_CODE.isdisjoint(_tags(cell))
    stopped = [c for c in code if any(out.output_type == "error" for out in c.outputs)]
    tagged = {tag: cell for cell in reversed(code) for tag in _tags(cell)}
    shown = tagged.get("parameters") or tagged.get("injected-parameters")
    run = notebook.metadata.get("papermill", {})
    provenance = run.get("input_path") or path.name
    if run.get("end_time"):
        provenance += f", executed {moment(run['end_time'])}, in {run['duration']:.0f} s"
    return {
        "stem": path.stem,
        "provenance": provenance,
        "failure": failure_reason(notebook),
        "failed_cell": stopped[0].metadata.number if stopped else None,
        "parameters": _parameters(run.get("parameters", {}), tagged.get("parameters"), _own(code)),
        "parameters_cell": shown.metadata.number if shown else None,
    }


def _own(code: list[NotebookNode]) -> dict[str, Any]:
    """Return the parameters of the run that the notebook shows, empty unless it shows exactly one."""
    said = [out.data[MIME] for cell in code for out in cell.outputs if MIME in out.get("data", {})]
    runs = said[0]["runs"] if said else []
    return dict(runs[0].get("parameters", {})) if len(runs) == 1 else {}


def _parameters(
    given: dict[str, Any], defaults: NotebookNode | None, own: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return a row a parameter: the `defaults` of the notebook, overlaid with what the run set.

    A notebook that shows a run which a results file holds shows that run's `own` parameters.
    """
    inspect = papermill_translators.find_translator("python3", "python").inspect
    known = {each.name: each for each in (inspect(defaults) if defaults else [])}
    values = {name: each.default for name, each in known.items()}
    values |= {name: repr(value) for name, value in {**own, **given}.items()}
    loaded = {name for name in own if given.get("results")}
    return [
        {
            "name": name,
            "value": values[name],
            "set": name in given or name in loaded,
            "help": known[name].help if name in known else "",
        }
        for name in values
    ]


def _check(tag: Tag) -> None:
    """Raise for an image that nobody described and for what is not in the page itself."""
    cell = tag.find_parent(attrs={"data-cell": True})
    place = cell["data-cell"] if cell else "the page"
    if tag.name == "img" and str(tag.get("alt", "")).strip() in _NO_ALT:
        raise CrossmemError(f"an image in {place} has no alternative text")
    sources = [str(tag[name]) for name in _LOADING if tag.has_attr(name)]
    if tag.name in _LOADING_LINKS and tag.has_attr("href"):
        sources.append(str(tag["href"]))
    style = tag.get_text() if tag.name == "style" else str(tag.get("style", ""))
    for source in sources + _CSS_URL.findall(style):
        if not source.startswith(("data:", "#")):
            raise CrossmemError(f"{place} would load {source!r} from outside the page")


def _dress(table: Tag) -> None:
    """Give a DataFrame's own table one head row and the classes of ours; take off its frame."""
    del table["border"]
    box = table.parent
    if box is not None and (style := box.select_one("style[scoped]")):
        style.decompose()
        box.unwrap()
    if table.select("[colspan]"):
        return
    head, *others = table.select("thead tr")
    for names in others:  # those of the index, to which pandas gives a row of their own
        for upper, lower in zip(head("th"), names("th"), strict=True):
            upper.string = f"{upper.get_text()} {lower.get_text()}".strip()
        names.decompose()
    # From the right, as row labels may span several rows.
    rows = [head("th")[::-1], *(row("td")[::-1] for row in table.select("tbody tr"))]
    for cells in zip(*rows, strict=False):
        numeric = is_numeric(cell.get_text() for cell in cells[1:])
        for cell in cells:
            if classes := cell_classes(cell.get_text(), numeric=numeric):
                cell["class"] = classes


def _add_title_and_contents(soup: BeautifulSoup) -> None:
    """Name the page after its first heading; list the sections of a longer one below its opening."""
    heading = soup.select_one("main h1") or soup.select_one("main :is(h2, h3)")
    if heading is not None and soup.title is not None:
        soup.title.string = heading.get_text().strip()
    for anchor in soup.select("a.anchor-link"):
        anchor["aria-label"] = "Link to this section"
    opening = soup.select_one("main .cell:has(h1)")
    sections = soup.select("main .prose h2[id]")
    if opening is not None and len(sections) >= 3:
        listed = "".join(
            f'<li><a href="#{escape(str(section["id"]))}">{escape(section.get_text().strip())}</a></li>'
            for section in sections
        )
        nav = f'<nav class="contents" aria-label="Contents"><ol>{listed}</ol></nav>'
        opening.insert_after(BeautifulSoup(nav, "html.parser"))
