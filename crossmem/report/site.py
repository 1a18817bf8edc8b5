"""Finished reports become a folder for a web host: a page each, and an index of what lies there.

A published page carries in its head what the index says of it, and the index is made from the pages
that lie in the folder: one that was published before stays listed until its page is removed.
"""

from __future__ import annotations

import glob
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bs4 import BeautifulSoup
from filelock import FileLock
from jinja2 import Environment, FileSystemLoader
from pydantic import BaseModel, ValidationError

from crossmem import paths
from crossmem.analysis.notices import MIME, About
from crossmem.errors import CrossmemError, InputError, unknown
from crossmem.report.execute import read, sentinel_output
from crossmem.report.html import failure, moment, page

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nbformat import NotebookNode

INDEX = "index"
_ENTRY = "crossmem-report"  # the `meta` element that holds an entry

GROUPS = (
    {
        "kind": "measured",
        "title": "Measured with a language model",
        "meaning": "Every figure in these reports comes from requests that a language model wrote.",
        "mark": "Measured",
    },
    {
        "kind": "scripted",
        "title": "Scripted agent, no language model",
        "meaning": "No figure in these reports was measured with a language model: a scripted agent "
        "stands in for it, and tokens are estimated.",
        "mark": "Scripted, not measured",
    },
    {
        "kind": "unstated",
        "title": "Not stated whether scripted or measured",
        "meaning": "These reports do not say what kind of agent their figures come from.",
        "mark": "Not stated whether scripted or measured",
    },
)

# Directories at the root of a disk in which a person's or a machine's own files lie.
_TOPS = set("Users Volumes home media mnt opt private root srv tmp usr var".split())
_KEY = re.compile(r"\b(?:sk|rk)[-_](?:ant|proj|live|test)[-_][\w-]{16,}")


class Entry(BaseModel):
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
    def facts(self) -> dict[str, str]:
        """What ran, by the name of the fact."""
        agents = [
            f"scripted (profile {run.model})" if run.scripted else f"language model {run.model}"
            for run in self.runs
        ]
        times = sorted(time for run in self.runs for time in (run.started, run.ended) if time)
        return {
            "Agent": _listed(agents),
            "Stream": _listed(run.stream for run in self.runs),
            "Drift pattern": _listed(run.pattern for run in self.runs),
            "Arms": _listed(arm for run in self.runs for arm in run.arms),
            "Run": " to ".join(dict.fromkeys(map(moment, (times[0], times[-1])))) if times else "",
        }


def _listed(values: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(filter(None, values)))


def publish(names: Iterable[str], reports: Path, folder: Path) -> list[Path]:
    """Write the pages of the reports called `names` (none: all) to `folder`, and its index.

    `reports` holds them: `phase1` is the executed notebook `phase1.ipynb`, from which the page is
    made anew. Returns what was written, the index last. Each file is moved into place whole, so that
    a kill leaves the old or the new one.

    Raises InputError, before anything is written, for an unknown name, for a report that did not run
    to its end or that cannot be shown, and for a folder that cannot be used.
    """
    if folder.resolve() == reports.resolve():
        raise InputError(f"{folder} is where the reports themselves lie; name another folder")
    texts = _pages(_chosen(names, reports), reports)
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


def _pages(names: list[str], reports: Path) -> dict[str, str]:
    """Return the page of each report; raise InputError naming every one that is not good."""
    texts, bad = {}, []
    for name in names:
        try:
            texts[name] = _page(name, reports / f"{name}.ipynb")
        except CrossmemError as error:
            bad.append(f"{name}: {str(error).splitlines()[0]}")
    if bad:
        raise InputError(
            f"nothing was published. {'; '.join(bad)}. Make each anew with crossmem report, or name "
            "those to publish without it"
        )
    return texts


def _page(name: str, executed: Path) -> str:
    if name == INDEX:
        raise InputError("a report cannot have the name of the index")
    notebook = read(executed)
    if reason := failure(notebook):
        raise CrossmemError(f"this run did not finish ({reason.rstrip('.')})")
    if sentinel_output(notebook) is None:
        raise CrossmemError("this is no finished report: its last cell, the sentinel, did not run")
    soup = page(notebook, executed)
    _add(soup, _entry(soup, notebook))
    text = _without_paths(str(soup), notebook)
    if _KEY.search(text):
        raise CrossmemError("its page shows what looks like a secret key")
    return text


def _entry(soup: BeautifulSoup, notebook: NotebookNode) -> Entry:
    said = soup.select_one("main .finding p")
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    runs = [run for out in outputs for run in out.get("data", {}).get(MIME, {}).get("runs", [])]
    return Entry(
        title=soup.title.get_text() if soup.title else None,
        finding=said.get_text() if said else None,
        runs=[About.model_validate(run) for run in runs],
    )


def _add(soup: BeautifulSoup, entry: Entry) -> None:
    """Give the page what it says of itself, a link to the index and the mark that it has there."""
    if soup.head is None or soup.header is None:
        raise AssertionError("the template has both")
    data = {"name": _ENTRY, "content": entry.model_dump_json()}
    soup.head.append(soup.new_tag("meta", attrs=data))
    link = soup.new_tag("a", href=f"{INDEX}.html", string="All reports")
    mark = next(group["mark"] for group in GROUPS if group["kind"] == entry.kind)
    kind = soup.new_tag("span", attrs={"class": f"kind {entry.kind}"}, string=mark)
    soup.header.insert(0, link)
    soup.header.insert(1, kind)


def _without_paths(text: str, notebook: NotebookNode) -> str:
    """Shorten every path of the machine, as `paths.shown` does; JSON Pointers are none."""
    given = notebook.metadata.get("papermill", {}).get("parameters", {}).values()
    places = [paths.root(), paths.results(), Path.cwd(), Path.home(), Path(tempfile.gettempdir())]
    places += [Path(sys.prefix), *(Path(each) for each in given if isinstance(each, str))]
    tops = _TOPS | {place.parts[1] for place in places if place.is_absolute() and place.parts[1:]}
    # Preceded by a letter or a slash it is part of an address, of a tag or of an image's data.
    top = "|".join(map(re.escape, sorted(tops)))
    path = rf"(?<![\w+/<.])(?:file://)?(/(?:{top})(?:/[^\s\"'<>&;,:()\]]+)+)"
    return re.sub(path, lambda found: paths.shown(Path(found[1])), text)


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
    entries = {path.stem: entry for path in sorted(folder.glob("[!.]*.html")) if (entry := _read(path))}
    groups = [
        {**group, "entries": [each for each in entries.items() if each[1].kind == group["kind"]]}
        for group in GROUPS
    ]
    templates = FileSystemLoader(Path(__file__).parent / "report")
    template = Environment(loader=templates, autoescape=True).get_template("published.html.j2")
    return template.render(groups=[group for group in groups if group["entries"]])


def _read(path: Path) -> Entry | None:
    head = path.read_text(encoding="utf-8", errors="replace").partition("</head>")[0]
    data = BeautifulSoup(head, "html.parser").find("meta", attrs={"name": _ENTRY})
    if data is None:
        return None
    try:
        return Entry.model_validate_json(str(data["content"]))
    except ValidationError:  # written by another version: listed, with what it says left open
        return Entry()
