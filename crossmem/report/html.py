"""An executed notebook as one self-contained page; the template and its style lie in report/."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bs4 import BeautifulSoup
from nbconvert.exporters import HTMLExporter
from papermill.translators import papermill_translators  # type: ignore[import-untyped]

from crossmem.errors import CrossmemError
from crossmem.report import tables
from crossmem.report.execute import sentinel_output

if TYPE_CHECKING:
    from bs4 import Tag
    from nbformat import NotebookNode

# What a cell shows of an output that comes in several forms. Widgets and scripts are not shown.
_TYPES = (
    "text/html",
    "text/markdown",
    "image/svg+xml",
    "image/png",
    "image/jpeg",
    "text/plain",
)
_WIDGET = "application/vnd.jupyter.widget-view+json"
_PARAMETERS = ("parameters", "injected-parameters")
_PLUMBING = (*_PARAMETERS, "guard", "sentinel")  # cells whose code no reader needs
_PROGRESS = re.compile(r"\d+%\||\d+(?:it|/\d+) \[\d+:\d+|\d+it \[")
_NO_ALT = {"", "No description has been provided for this image"}  # the latter is nbconvert's
_LOADING = ("src", "srcset", "poster", "data", "background")
_LOADING_LINKS = {"link", "image", "use"}
_CSS_URL = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""")


def page(notebook: NotebookNode, path: Path) -> BeautifulSoup:
    """Return the page of the executed `notebook`, read from `path`.

    Raises `CrossmemError` for an image without alternative text or a part loaded from elsewhere.
    """
    exporter = HTMLExporter(  # type: ignore[no-untyped-call]
        template_name="report",
        extra_template_basedirs=[str(Path(__file__).parent)],
        embed_images=True,
        filters={"best_type": best_type, "without_progress": without_progress},
    )
    resources = {
        "metadata": {"path": str(path.parent), "name": path.stem},
        "facts": _facts(notebook, path),
    }
    html, _ = exporter.from_notebook_node(notebook, resources)
    soup = BeautifulSoup(html, "html.parser")
    _check_images(soup)
    _check_self_contained(soup)
    tables.tidy(soup)
    _give_title(soup)
    _give_contents(soup)
    return soup


def best_type(data: dict[str, Any]) -> str | None:
    """Return the MIME type under which an output is shown, None if it is not."""
    if _WIDGET in data:  # its text is a stale progress bar or a mere repr
        return None
    return next((kind for kind in _TYPES if kind in data), None)


def without_progress(text: str) -> str:
    r"""Return what a progress bar has not written of the `text` on stderr.

    >>> without_progress("  0%|   | 0/9\r100%|###| 9/9\nbeware\n")
    'beware'
    """
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", text)]
    return "\n".join(line for line in lines if line and not _PROGRESS.search(line))


def _facts(notebook: NotebookNode, path: Path) -> dict[str, Any]:
    """Number the code cells, as Jupyter does in `In [3]`, and say what the page has to know."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, start=1):
        cell.metadata["number"] = number
        cell.metadata["folds"] = bool(cell.source.strip()) and not any(_has(cell, t) for t in _PLUMBING)
    stopped = [c for c in code if any(out.output_type == "error" for out in c.outputs)]
    tagged = {tag: c for tag in reversed(_PARAMETERS) for c in code if _has(c, tag)}
    shown = tagged.get("parameters") or tagged.get("injected-parameters")
    return {
        "stem": path.stem,
        "provenance": _provenance(notebook, path),
        "failure": failure(notebook),
        "failed_cell": stopped[0].metadata.number if stopped else None,
        "parameters": _parameters(notebook, tagged.get("parameters")),
        "parameters_cell": shown.metadata.number if shown else None,
    }


def _has(cell: NotebookNode, tag: str) -> bool:
    return tag in cell.metadata.get("tags", [])


def _provenance(notebook: NotebookNode, path: Path) -> str:
    run = notebook.metadata.get("papermill", {})
    name = run.get("input_path") or path.name
    if not run.get("end_time"):
        return str(name)
    return f"{name}, executed {moment(run['end_time'])}, in {run['duration']:.0f} s"


def moment(iso: str) -> str:
    """Write a time for people.

    >>> moment("2026-03-01T09:05:00+00:00")
    '1 March 2026, 09:05 UTC'
    """
    when = datetime.fromisoformat(iso).astimezone(UTC)
    return when.strftime("%d %B %Y, %H:%M UTC").lstrip("0")


def failure(notebook: NotebookNode) -> str | None:
    """Return why the run is not to be trusted; the status of a cell is no evidence that it is."""
    mark = notebook.metadata.get("crossmem", {})
    if mark.get("status") == "failed":
        return str(mark.get("reason", ""))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for out in (out for cell in code for out in cell.outputs if out.output_type == "error"):
        return f"{out.ename}: {out.evalue}"
    if any(_has(cell, "sentinel") for cell in notebook.cells) and sentinel_output(notebook) is None:
        return "The last cell of the notebook did not run."
    return None


def _parameters(notebook: NotebookNode, cell: NotebookNode | None) -> list[dict[str, Any]]:
    """Return a row a parameter: the defaults of the notebook, overlaid with what the run set."""
    given = dict(notebook.metadata.get("papermill", {}).get("parameters", {}))
    inspect = papermill_translators.find_translator("python3", "python").inspect
    rows = []
    for known in inspect(cell) if cell else []:
        was_set = known.name in given
        value = repr(given.pop(known.name)) if was_set else known.default
        rows.append({"name": known.name, "value": value, "set": was_set, "help": known.help})
    others = [{"name": k, "value": repr(v), "set": True, "help": ""} for k, v in given.items()]
    return rows + others


def _place(tag: Tag) -> str:
    cell = tag.find_parent(attrs={"data-cell": True})
    return str(cell["data-cell"]) if cell else "the page"


def _check_images(soup: BeautifulSoup) -> None:
    for image in soup.find_all("img"):
        if str(image.get("alt", "")).strip() in _NO_ALT:
            raise CrossmemError(f"an image in {_place(image)} has no alternative text")


def _check_self_contained(soup: BeautifulSoup) -> None:
    for tag in soup.select("*"):
        sources = [str(tag[name]) for name in _LOADING if tag.has_attr(name)]
        if tag.name in _LOADING_LINKS and tag.has_attr("href"):
            sources.append(str(tag["href"]))
        sources += _CSS_URL.findall(tag.get_text() if tag.name == "style" else _style(tag))
        for source in sources:
            if not source.startswith(("data:", "#")):
                raise CrossmemError(f"{_place(tag)} would load {source!r} from outside the page")


def _style(tag: Tag) -> str:
    return str(tag.get("style", ""))


def _give_title(soup: BeautifulSoup) -> None:
    heading = soup.select_one("main h1") or soup.select_one("main :is(h2, h3)")
    if heading is not None and soup.title is not None:
        soup.title.string = _words(heading)


def _give_contents(soup: BeautifulSoup) -> None:
    """List the sections of a longer report below its opening."""
    for anchor in soup.select("a.anchor-link"):
        anchor["aria-label"] = "Link to this section"
    opening = soup.select_one("main .cell:has(h1)")
    sections = soup.select("main .prose h2[id]")
    if opening is None or len(sections) < 3:
        return
    nav = soup.new_tag("nav", attrs={"class": "contents", "aria-label": "Contents"})
    listed = soup.new_tag("ol")
    for section in sections:
        link = soup.new_tag("a", href=f"#{section['id']}")
        link.string = _words(section)
        item = soup.new_tag("li")
        item.append(link)
        listed.append(item)
    nav.append(listed)
    opening.insert_after(nav)


def _words(heading: Tag) -> str:
    return "".join(
        text for text in heading.strings if not text.find_parent("a", class_="anchor-link")
    ).strip()
