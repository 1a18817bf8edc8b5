"""Finished reports become a folder for a web host: a page each, and an index of what lies there.

A published page carries in its head what the index says of it, and the index is made from the pages
that lie in the folder: one that was published before stays listed until its page is removed.
"""

from __future__ import annotations

import glob
import re
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from bs4 import BeautifulSoup
from filelock import FileLock
from jinja2 import Environment, FileSystemLoader
from pydantic import BaseModel, ValidationError

from crossmem import paths
from crossmem.analysis.notices import MIME, About
from crossmem.errors import CrossmemError, InputError, unknown
from crossmem.report.execute import final_text, read
from crossmem.report.html import failure_reason, moment, page

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nbformat import NotebookNode

INDEX = "index"
_ENTRY = "crossmem-report"  # the `meta` element that holds an entry
_MARKS = {
    "measured": "Measured",
    "scripted": "Scripted, not measured",
    "unstated": "Not stated whether scripted or measured",
}
_KEY = re.compile(r"\b(?:sk|rk)[-_](?:ant|proj|live|test)[-_][\w-]{16,}")


class IndexEntry(BaseModel):
    """What the index says of a report; None or empty where the report does not say it."""

    title: str | None = None
    finding: str | None = None
    runs: list[About] = []

    @property
    def kind(self) -> str:
        """`measured`, `scripted`, or `unstated` if the report does not say it of every run alike."""
        kinds = {run.scripted for run in self.runs}
        return "unstated" if len(kinds) != 1 else "scripted" if kinds.pop() else "measured"

    @property
    def agents(self) -> list[str]:
        """Who wrote the requests of each run."""
        return [
            f"scripted (profile {run.model})" if run.scripted else f"language model {run.model}"
            for run in self.runs
        ]

    @property
    def period(self) -> str:
        """From when to when the runs took place."""
        times = sorted(time for run in self.runs for time in (run.started, run.ended) if time)
        return " to ".join(dict.fromkeys(map(moment, (times[0], times[-1])))) if times else ""


def publish(names: Iterable[str], reports: Path, folder: Path) -> list[Path]:
    """Write the pages of the reports called `names` (none: all) to `folder`, and its index.

    `reports` holds them: `phase1` is the executed notebook `phase1.ipynb`, from which the page is
    made anew. Returns what was written, the index last. Each file is moved into place whole, so that
    a kill leaves the old or the new one. No page names a folder of this machine that is known here.

    Raises InputError, before anything is written, for an unknown name, for a report that did not run
    to its end or that cannot be shown, and for a folder that cannot be used.
    """
    if folder.resolve() == reports.resolve():
        raise InputError(f"{folder} is where the reports themselves lie; name another folder")
    texts, bad = {}, []
    for name in _chosen(names, reports):
        try:
            texts[name] = _page(name, reports / f"{name}.ipynb")
        except CrossmemError as error:
            bad.append(f"{name}: {str(error).splitlines()[0]}")
    if bad:
        raise InputError(
            f"nothing was published. {'; '.join(bad)}. Make each anew with crossmem report, or name "
            "those to publish without it"
        )
    paths.check_writable(folder, "name another folder with --to")
    with FileLock(reports / ".publish.lock"):
        written = [_put(folder, name, text) for name, text in texts.items()]
        return [*written, _put(folder, INDEX, _index(folder))]


def _chosen(names: Iterable[str], reports: Path) -> list[str]:
    known = sorted({path.stem for kind in ("html", "ipynb") for path in reports.glob(f"[!.]*.{kind}")})
    if not known:
        raise InputError(
            f"no report in {reports}; make one first, such as: crossmem report phase1 -p mock True"
        )
    chosen = list(dict.fromkeys(names)) or known
    for name in chosen:
        if name not in known:
            raise unknown("report", name, known)
    return chosen


def _page(name: str, executed: Path) -> str:
    """Return the page of a report; raises CrossmemError where it is not fit to be published."""
    if name == INDEX:
        raise InputError("a report cannot have the name of the index")
    notebook = read(executed)
    if reason := failure_reason(notebook):
        raise CrossmemError(f"this run did not finish ({reason.rstrip('.')})")
    if final_text(notebook) is None:
        raise CrossmemError("this is no finished report: its last cell, the sentinel, did not run")
    soup = page(notebook, executed)
    finding = soup.select_one("main .finding p")
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    runs = [run for out in outputs for run in out.get("data", {}).get(MIME, {}).get("runs", [])]
    entry = IndexEntry(
        title=soup.title.get_text() if soup.title else None,
        finding=finding.get_text() if finding else None,
        runs=[About.model_validate(run) for run in runs],
    )
    said = f'<meta name="{_ENTRY}" content="{escape(entry.model_dump_json())}">'
    mark = f'<span class="kind {entry.kind}">{_MARKS[entry.kind]}</span>'
    header = f'<header>\n<a href="{INDEX}.html">All reports</a>\n{mark}'
    text = str(soup).replace("</head>", f"{said}\n</head>", 1).replace("<header>", header, 1)
    text = _without_places(text, executed.parent, notebook)
    if _KEY.search(text):
        raise CrossmemError("its page shows what looks like a secret key")
    return text


def _without_places(text: str, reports: Path, notebook: NotebookNode) -> str:
    """Write `.` for the checkout and `~` for the home in every path, the name for another place."""
    given = notebook.metadata.get("papermill", {}).get("parameters", {}).values()
    folders = [reports, paths.results(), Path.cwd(), Path(tempfile.gettempdir()), Path(sys.prefix)]
    folders += [Path(value).parent for value in given if isinstance(value, str)]
    names = {folder: folder.name for folder in folders} | {Path.home(): "~", paths.root(): "."}
    known = {
        escape(str(place), quote=False): name
        for folder, name in names.items()
        for place in (folder, folder.resolve())
        if place.is_absolute() and place.name
    }
    longest_first = "|".join(map(re.escape, sorted(known, key=len, reverse=True)))
    # After a letter, a slash or the like it is part of an address or of an image's data.
    place = rf"(?<![\w+/.])(?:file://)?({longest_first})(?![\w-])"
    return re.sub(place, lambda found: known[found[1]], text)


def _put(folder: Path, name: str, text: str) -> Path:
    """Write a page whole; remove what a killed process has left of the same page."""
    path = folder / f"{name}.html"
    for left in folder.glob(f".{glob.escape(name)}-????????.html"):
        left.unlink(missing_ok=True)
    with paths.whole(path) as draft:
        draft.write_text(text, encoding="utf-8")
    return path


def _index(folder: Path) -> str:
    """Return the index of the pages in `folder` that were published; other files are left out."""
    pages = sorted(folder.glob("[!.]*.html"))
    entries = [(path.stem, entry) for path in pages if (entry := _read(path))]
    templates = Environment(loader=FileSystemLoader(Path(__file__).parent / "report"), autoescape=True)
    return templates.get_template("published.html.j2").render(entries=entries, marks=_MARKS)


def _read(path: Path) -> IndexEntry | None:
    head = path.read_text(encoding="utf-8", errors="replace").partition("</head>")[0]
    data = BeautifulSoup(head, "html.parser").find("meta", attrs={"name": _ENTRY})
    try:
        return IndexEntry.model_validate_json(str(data["content"])) if data else None
    except ValidationError:  # written by another version: listed, with what it says left open
        return IndexEntry()
