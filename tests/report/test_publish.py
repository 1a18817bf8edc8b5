"""Publishing: good reports only, each page whole, an index that says of each what it says of itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bs4 import BeautifulSoup
from click.testing import CliRunner

from crossmem import paths
from crossmem.analysis.notices import MIME
from crossmem.cli import main
from crossmem.errors import InputError
from crossmem.report.site import publish

from .conftest import PIXEL, read, save, v4

if TYPE_CHECKING:
    from playwright.sync_api import Page

ABOUT = {
    "scripted": True,
    "model": "haiku",
    "phase": "phase1",
    "stream": "the_stream",
    "pattern": "the_pattern",
    "arms": ["A0", "A2D"],
    "started": "2026-03-01T09:05:00+00:00",
    "ended": "2026-03-01T09:05:30+00:00",
}


def shown(data: dict[str, Any]) -> Any:
    return v4.new_output("display_data", data=data, metadata={"image/png": {"alt": "A dot"}})


def finished(
    folder: Path,
    name: str = "phase1",
    *,
    title: str = "A <world>",
    finding: str = "A2D pays 1.",
    **run: Any,
) -> Path:
    """Write the executed notebook of a report, as `crossmem report` leaves it."""
    box = f'<p>Who wrote.</p><div class="finding"><p>{finding}</p><p>And more.</p></div>'
    outputs = [
        shown({"text/html": box if finding else "<p>Who wrote.</p>", MIME: {"runs": [ABOUT | run]}})
    ]
    end = v4.new_output("stream", text="the end")
    cells = [
        v4.new_markdown_cell(f"# {title.replace('<', '&lt;')}"),
        v4.new_code_cell("notice", outputs=outputs),
        v4.new_code_cell("figure", outputs=[shown({"image/png": PIXEL})]),
        v4.new_code_cell("end", outputs=[end], metadata={"tags": ["sentinel"]}),
    ]
    notebook = v4.new_notebook(cells=cells, metadata={"crossmem": {"status": "completed"}})
    path = folder / f"{name}.ipynb"
    return save(notebook, path)


def changed(path: Path, change: Callable[[Any], object]) -> None:
    notebook = read(path)
    change(notebook)
    save(notebook, path)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    folder = tmp_path / "reports"
    folder.mkdir()
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Where to publish; nothing is there yet."""
    return tmp_path / "site"


def soup(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


def entries(site: Path) -> dict[str, dict[str, str]]:
    """Return what the index says, by the page that an entry leads to."""
    found = {}
    for entry in soup(site / "index.html").select("article"):
        section, link = entry.find_parent("section"), entry.select_one("h3 a")
        assert section
        assert section.h2
        assert link
        said = {"section": section.h2.get_text(), "mark": entry.select("p")[0].get_text()}
        said |= {"title": link.get_text(), "finding": entry.select("p")[1].get_text()}
        for row in entry.select("tr"):
            head, value = row.find_all(["th", "td"])
            assert head["scope"] == "row"
            said[head.get_text()] = value.get_text()
        found[str(link["href"])] = said
    return found


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# -- what is written -------------------------------------------------------------------------------


def test_every_report_gets_a_page_and_an_entry_with_what_it_says_of_itself(
    reports: Path, site: Path
) -> None:
    finished(reports)
    finished(
        reports, "live", title="Live", scripted=False, model="some-model", ended="2026-03-02T00:00:00Z"
    )
    written = publish([], reports, site)
    assert [path.name for path in written] == ["live.html", "phase1.html", "index.html"]
    assert files(site) == {"live.html", "phase1.html", "index.html"}
    both = {
        "finding": "A2D pays 1.",
        "Stream": "the_stream",
        "Drift pattern": "the_pattern",
        "Arms": "A0, A2D",
    }
    assert entries(site) == {
        "live.html": {
            "section": "Measured with a language model",
            "mark": "Measured",
            "title": "Live live",
            "Agent": "language model some-model",
            "Run": "1 March 2026, 09:05 UTC to 2 March 2026, 00:00 UTC",
            **both,
        },
        "phase1.html": {
            "section": "Scripted agent, no language model",
            "mark": "Scripted, not measured",
            "title": "A <world> phase1",
            "Agent": "scripted (profile haiku)",
            "Run": "1 March 2026, 09:05 UTC",
            **both,
        },
    }


def test_what_a_report_does_not_say_is_shown_as_missing_and_never_as_measured(
    reports: Path, site: Path
) -> None:
    changed(finished(reports, finding=""), lambda made: made.cells[1].outputs.clear())
    finished(reports, "mixed")
    changed(
        reports / "mixed.ipynb",
        lambda made: made.cells[1].outputs[0].data[MIME]["runs"].append({**ABOUT, "scripted": False}),
    )
    publish([], reports, site)
    said = entries(site)
    assert {each["section"] for each in said.values()} == {"Not stated whether scripted or measured"}
    for fact in ("Agent", "Stream", "Drift pattern", "Arms", "Run"):
        assert said["phase1.html"][fact] == "not stated"
    assert "no finding" in said["phase1.html"]["finding"]
    assert said["mixed.html"]["Agent"] == "scripted (profile haiku), language model haiku"


def test_publishing_again_updates_and_keeps_what_is_gone_from_the_reports(
    reports: Path, site: Path
) -> None:
    finished(reports, finding="Old.")
    gone = finished(reports, "gone")
    publish([], reports, site)
    gone.unlink()
    finished(reports, finding="New.")
    (site / "notes.html").write_text("<title>not ours</title>")
    publish([], reports, site)
    said = entries(site)
    assert list(said) == ["gone.html", "phase1.html"]
    assert said["phase1.html"]["finding"] == "New."
    assert "not ours" in (site / "notes.html").read_text()
    (site / "gone.html").unlink()
    publish([], reports, site)
    assert list(entries(site)) == ["phase1.html"]


def test_a_page_of_another_version_stays_listed_and_a_draft_is_neither_report_nor_page(
    reports: Path, site: Path
) -> None:
    finished(reports)
    finished(reports, "other")
    (reports / ".phase2-abcdefgh.ipynb").write_text("half")
    site.mkdir()
    (site / "later.html").write_text('<head><meta name="crossmem-report" content="[]"></head>')
    (site / ".drafted-abcdefgh.html").write_text('<head><meta name="crossmem-report" content="{}">')
    written = publish(["other", "other"], reports, site)
    assert [path.name for path in written] == ["other.html", "index.html"]
    said = entries(site)
    assert list(said) == ["other.html", "later.html"]
    assert said["later.html"]["section"] == "Not stated whether scripted or measured"
    assert [path.name for path in publish([], reports, site)][:-1] == ["other.html", "phase1.html"]


def test_a_published_page_names_no_known_folder_of_the_machine(
    reports: Path, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, working, results = (tmp_path / name for name in ("home & hearth", "work", "deep/results"))
    for folder in (home, working):
        folder.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv(paths.RESULTS_VARIABLE, str(results))
    monkeypatch.chdir(working)
    places = [paths.root(), home, working, results, reports, Path("/elsewhere/given")]
    mentions = [f"{place}/x.py:12 file://{place}/y '{place}'" for place in places]
    untouched = "/ingredients/0/name https://a.example/tmp/z iVBO/tmp/z+/tmp/z /tmpfs"
    path = finished(reports, model=str(home / "my-model"), finding=f"In {working}.")

    def add(made: Any) -> None:
        text = "\n".join([*mentions, untouched])
        made.cells[1].outputs.append(v4.new_output("stream", name="stderr", text=text))
        parameters = {"results": "/elsewhere/given/run.json", "mock": True}
        made.metadata["papermill"] = {"input_path": str(path), "parameters": parameters}

    changed(path, add)
    publish([], reports, site)
    for page in site.iterdir():
        text = page.read_text(encoding="utf-8").replace("&amp;", "&")
        for place in (*places, tmp_path):
            assert str(place) not in text
    text = soup(site / "phase1.html").get_text()
    for name in (".", "~", "work", "results", "reports", "given"):
        assert f"{name}/x.py:12 {name}/y '{name}'" in text
    assert untouched in text
    said = entries(site)["phase1.html"]
    assert (said["Agent"], said["finding"]) == ("scripted (profile ~/my-model)", "In work.")


# -- what is refused -------------------------------------------------------------------------------


ERROR = v4.new_output("error", ename="ValueError", evalue="no such thing")
FAILED = {"status": "failed", "reason": "A9 is\nno arm"}
HARMS: dict[str, Callable[[Any], object]] = {
    "this run did not finish (A9 is": lambda made: made.metadata.update(crossmem=FAILED),
    "this run did not finish (The last cell of the notebook did not run)": lambda made: made.cells[
        -1
    ].outputs.clear(),
    "this is no finished report: its last cell, the sentinel, did not run": lambda made: made.cells[
        -1
    ].metadata.clear(),
    "this run did not finish (ValueError: no such thing)": lambda made: made.cells[1].outputs.append(
        ERROR
    ),
    "an image in code cell 2 has no alternative text": lambda made: (
        made.cells[2].outputs[0].metadata.clear()
    ),
    "its page shows what looks like a secret key": lambda made: (
        made.cells[-1].outputs[0].update(text="sk-ant-api03-" + "x" * 24)
    ),
}
"""What spoils a report, by why it is not published."""


@pytest.mark.parametrize("why", HARMS)
def test_one_bad_report_is_named_and_nothing_is_written(why: str, reports: Path, site: Path) -> None:
    finished(reports)
    changed(finished(reports, "bad"), HARMS[why])
    with pytest.raises(InputError) as caught:
        publish([], reports, site)
    assert str(caught.value).startswith(f"nothing was published. bad: {why}")
    assert "\n" not in str(caught.value)
    assert "phase1:" not in str(caught.value)
    assert not site.exists()
    publish(["phase1"], reports, site)
    assert list(entries(site)) == ["phase1.html"]


def test_every_bad_report_is_named(reports: Path, site: Path) -> None:
    finished(reports, "index")
    (reports / "page.html").write_text("without its notebook")
    (reports / "torn.ipynb").write_text('{"cells": [')
    with pytest.raises(InputError) as caught:
        publish([], reports, site)
    for why in ("index: a report cannot have the name", "page: cannot read ", "torn: "):
        assert why in str(caught.value)


def crossmem(*arguments: object) -> tuple[int, str]:
    """Type `crossmem publish ...`; return its exit code and its last line."""
    answer = CliRunner().invoke(main, ["publish", *map(str, arguments)])
    return answer.exit_code, (answer.output.splitlines() or [""])[-1]


def test_the_command_says_what_it_wrote_and_what_it_cannot_use(
    reports: Path, site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "reports", lambda: reports)
    nothing = f"crossmem: no report in {reports}; make one first, such as: "
    assert crossmem() == (2, f"{nothing}crossmem report phase1 -p mock True")
    finished(reports)
    unknown = "crossmem: unknown report 'phse1'; did you mean 'phase1'? Choices: phase1"
    assert crossmem("phse1") == (2, unknown)
    same = f"crossmem: {reports} is where the reports themselves lie; name another folder"
    assert crossmem("--to", reports) == (2, same)
    (reports.parent / "file").write_text("")
    code, said = crossmem("--to", reports.parent / "file")
    assert code == 2
    assert said.endswith("or name another folder with --to")
    assert files(reports) == {"phase1.ipynb"}
    assert crossmem("--to", site) == (0, str(site / "index.html"))
    assert crossmem("phase1") == (0, str(reports / "published" / "index.html"))
    code, said = crossmem("published")
    assert code == 2  # the folder of published pages is no report


@pytest.mark.skipif(not (paths.root() / ".git").exists(), reason="this is no checkout")
def test_git_ignores_what_is_published_by_default() -> None:
    page = str(paths.published() / "phase1.html")
    asked = subprocess.run(["git", "check-ignore", page], cwd=paths.root(), check=False, timeout=30)
    assert asked.returncode == 0


# -- a kill ----------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from pathlib import Path
from crossmem.report.site import publish
countdown, replace = int(sys.argv[1]), Path.replace
def deadly(self, target):
    global countdown
    countdown -= 1
    if countdown == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)
Path.replace = deadly
publish([], Path(sys.argv[2]), Path(sys.argv[3]))
"""


@pytest.mark.slow
def test_a_kill_leaves_each_page_old_or_new_and_the_next_time_mends_all(
    reports: Path, site: Path, tmp_path: Path
) -> None:
    names = ("a", "b", "index")

    def contents(folder: Path) -> list[bytes]:
        return [(folder / f"{name}.html").read_bytes() for name in names]

    for finding, folder in (("Old.", site), ("New.", tmp_path / "after")):
        for name in names[:2]:
            finished(reports, name, finding=finding)
        publish([], reports, folder)
    old, new = contents(site), contents(tmp_path / "after")
    assert all(before != after for before, after in zip(old, new, strict=True))
    for moved in range(3):  # how many files were moved into place before the kill
        command = [sys.executable, "-c", KILLED, str(moved + 1), str(reports), str(site)]
        assert subprocess.run(command, check=False, timeout=60).returncode == -9
        assert contents(site) == new[:moved] + old[moved:]
        assert len(files(site)) == 4  # a draft, which no index lists
    publish([], reports, site)
    assert contents(site) == new
    assert files(site) == {f"{name}.html" for name in names}


# -- in a browser ----------------------------------------------------------------------------------


RATIO = """
all => all.map(each => {
  const light = colour => {
    const [r, g, b] = colour.match(/\\d+/g).map(v => v / 255).map(
      v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  return 1.05 / (light(getComputedStyle(each).color) + .05);
})
"""


@pytest.mark.browser
@pytest.mark.slow
def test_index_and_pages_open_link_to_each_other_are_legible_and_complain_of_nothing(
    reports: Path, site: Path, visit: Callable[[Path], tuple[Page, list[str]]]
) -> None:
    finished(reports, "a b#c?d")
    finished(reports, "live", scripted=False, arms=[f"a_component.variant.{i}" for i in range(40)])
    changed(finished(reports, "old"), lambda made: made.cells[1].outputs.clear())
    publish([], reports, site)
    assert not soup(site / "index.html").select("script")
    tab, heard = visit(site / "index.html")
    assert tab.title() == "crossmem: published reports"
    assert tab.get_attribute("html", "lang") == "en"
    for width in (1280, 400):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    sections = tab.get_by_role("heading", level=2).all_inner_texts()
    assert [section.partition(" ")[0] for section in sections] == ["Measured", "Scripted", "Not"]
    assert all(mark.is_visible() for mark in tab.locator(".kind").all())
    ratios = tab.locator("main :is(p, a, th, td, h1, h2, h3, small, span)").evaluate_all(RATIO)
    assert len(ratios) > 30
    assert min(ratios) >= 4.5, "dark text ..."
    light = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert light == "rgb(255, 255, 255)", "... on a light page"
    for place in range(2):
        tab.locator("article h3 a").nth(place).click()
        tab.wait_for_selector("main h1")
        assert tab.title() == "A <world>"
        mark = tab.locator("header .kind").inner_text()
        assert mark == ("Measured", "Scripted, not measured")[place]
        assert tab.locator("img").evaluate("image => image.naturalWidth") == 1
        tab.get_by_role("link", name="All reports").click()
        tab.wait_for_selector("article")
    assert heard == []
