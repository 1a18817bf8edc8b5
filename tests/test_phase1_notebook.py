"""The Phase 1 notebook: what its executed copy says, and that its figures are right.

Every figure is computed here anew from the results file, without the code that the notebook calls.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bs4 import BeautifulSoup
from running import log_of
from test_phase_notebooks import cells, path_of, source

from crossmem import paths, streams
from crossmem.analysis import figures
from crossmem.harness.results import load
from crossmem.paths import RESULTS_VARIABLE
from crossmem.report.html import moment
from crossmem.report.site import publish
from crossmem.settings import Phase1Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

NOTEBOOK = path_of("phase1")
ARMS = ("A0", "A1", "A2", "A3", "A1F", "LW", "LWG", "oracle", "bound")
LINES = ("oracle", "bound")
Rows = list[dict[str, Any]]


# -- how it is built -----------------------------------------------------------------------------


def test_numbers_in_the_prose_are_the_streams_and_none_is_a_result() -> None:
    stream = streams.load("phase1")
    known = {"1", str(len(stream.episodes)), *(str(event.before) for event in stream.drift_events)}
    for cell in cells(NOTEBOOK, "markdown"):
        assert set(re.findall(r"\d+(?:\.\d+)?", source(cell))) <= known, source(cell)


@pytest.mark.parametrize("notebook", ["phase1", "acme", "experience"])
def test_papermills_help_lists_every_parameter_with_its_meaning(notebook: str) -> None:
    tool = str(Path(sys.executable).with_name("papermill"))
    answer = subprocess.run(
        [tool, "--help-notebook", path_of(notebook)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert answer.stderr == ""
    text = " ".join(answer.stdout.split())
    for line in source(cells(path_of(notebook))[0]).splitlines():
        assert f" {line.partition(':')[0]}: " in text, line
        assert line.partition("  # ")[2] in text, line


# -- executed ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What `crossmem report` left in a folder that is not the checkout, and what it printed."""

    folder: Path

    @property
    def html(self) -> Path:
        return self.folder / "out" / "the report.html"

    def said(self, stream: str) -> str:
        return (self.folder / stream).read_text(encoding="utf-8")

    @property
    def results(self) -> Path:
        (file,) = (self.folder / "results").glob("*.jsonl")
        return file

    @cached_property
    def content(self) -> dict[str, Any]:
        first, episodes = log_of(self.results)
        return {**first, "episodes": episodes}

    @property
    def rows(self) -> Rows:
        return [each["row"] for each in self.content["episodes"]]

    @cached_property
    def page(self) -> BeautifulSoup:
        return BeautifulSoup(self.html.read_text(encoding="utf-8"), "html.parser")

    def finding(self) -> str:
        (box,) = self.page.select(".finding")
        return box.get_text(" ")


def reported(folder: Path, notebook: str, *given: str) -> None:
    """Run the real command in `folder`."""
    tool = str(Path(sys.executable).with_name("crossmem"))
    pairs = [word for pair in given for word in ("-p", *pair.split("="))]
    answer = subprocess.run(
        [tool, "report", notebook, *pairs, "-o", str(Report(folder).html)],
        cwd=folder,
        env={**os.environ, RESULTS_VARIABLE: str(folder / "results")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    for name in ("stdout", "stderr"):
        (folder / name).write_text(getattr(answer, name), encoding="utf-8")


@pytest.fixture(scope="session")
def report(made_once: Callable[..., Path]) -> Report:
    """The report of a run with the defaults."""
    return Report(made_once("phase1", lambda folder: reported(folder, "phase1", "mock=True")))


@pytest.fixture(scope="session")
def hopeless(made_once: Callable[..., Path]) -> Report:
    """The report of a run in which A0 never succeeds: every task of Acme is refused at first."""
    given = ("mock=True", "max_attempts=1", "arms=A0,A2")
    return Report(made_once("hopeless", lambda folder: reported(folder, "acme", *given)))


def of(rows: Rows, arm: str, **wanted: Any) -> Rows:
    """Return the rows of an arm, of one drift epoch or family where named."""
    wanted = {"arm": arm, **wanted}
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def total(rows: Rows, column: str) -> int:
    return sum(int(row[column]) for row in rows)


def per_success(rows: Rows, missing: str = "-") -> str:
    successes = total(rows, "success")
    return f"{total(rows, 'total_tokens') / successes:,.0f}" if successes else missing


COLUMNS: dict[str, Callable[[Rows], str]] = {
    "episodes": lambda rows: f"{len(rows)}",
    "attempts": lambda rows: f"{total(rows, 'attempts')}",
    "tokens per success": per_success,
    "first-try rate": lambda rows: f"{total(rows, 'first_try') / len(rows):.0%}",
    "success rate": lambda rows: f"{total(rows, 'success') / len(rows):.0%}",
    "cold retries": lambda rows: f"{total(rows, 'cold_retry')}",
    "stale attempts": lambda rows: f"{total(rows, 'stale_attempt')}",
    "outdated uses": lambda rows: f"{total(rows, 'outdated_use')}",
    "poisoned attempts": lambda rows: f"{total(rows, 'poisoned')}",
    "most bytes held": lambda rows: f"{max(row['bytes'] for row in rows):,}",
}
"""How each figure of a table comes from the rows of its line, and how it is written."""


def table(page: BeautifulSoup, caption: str) -> tuple[list[str], list[list[str]]]:
    """Return the head and the lines of a table."""
    for found in page.select("table"):
        if found.caption and found.caption.get_text().startswith(caption):
            lines = [
                [cell.get_text(strip=True) for cell in row("th") + row("td")] for row in found("tr")
            ]
            return lines[0], lines[1:]
    pytest.fail(f"no table {caption!r}")


def assert_figures(head: list[str], line: list[str], rows: Rows) -> None:
    """Every column of a line that is a figure must be that of its rows; the line may lack a rowspan."""
    figures = [name for name in head if name in COLUMNS]
    assert figures
    assert line[-len(figures) :] == [COLUMNS[name](rows) for name in figures]


@pytest.mark.slow
def test_the_command_prints_the_three_numbers_and_where_the_report_lies(report: Report) -> None:
    after = [row for row in report.rows if row["drift_epoch"]]

    def listed(figure: str, of_rows: Rows) -> str:
        return ", ".join(f"{arm} {COLUMNS[figure](of(of_rows, arm))}" for arm in ARMS)

    lines = report.said("stdout").splitlines()
    assert f"attempts over 24 episodes: {listed('attempts', report.rows)}" in lines
    assert f"stale attempts after the first drift: {listed('stale attempts', after)}" in lines
    assert f"tokens per success after the first drift: {listed('tokens per success', after)}" in lines
    assert lines[-1] == f"Report: {report.html}"
    assert "scripted agent" in lines[0]


PLACES: dict[str, list[dict[str, Any]]] = {
    "The whole stream, per arm": [{"arm": arm} for arm in ARMS],
    "All episodes after the drift": [{"arm": arm, "drift_epoch": 1} for arm in ARMS],
    "The celiac episodes": [
        {"arm": arm, "drift_epoch": epoch, "family": "celiac"} for arm in ARMS for epoch in (0, 1)
    ],
}
"""Which rows the lines of each table are made of."""


@pytest.mark.slow
@pytest.mark.parametrize("caption", PLACES)
def test_a_table_is_what_the_rows_give(caption: str, report: Report) -> None:
    head, lines = table(report.page, caption)
    shown = {"attempts", "tokens per success", "first-try rate", "stale attempts"}
    if caption == "The whole stream, per arm":
        shown |= {"poisoned attempts", "outdated uses", "most bytes held"}
        assert [line[0] for line in lines] == list(ARMS)
    assert shown <= set(head)
    for line, place in zip(lines, PLACES[caption], strict=True):
        assert_figures(head, line, of(report.rows, **place))


@pytest.mark.slow
def test_the_table_of_memory_events_counts_the_events(report: Report) -> None:
    head, lines = table(report.page, "What the memories did")
    events = [
        (each["row"]["arm"], event["kind"])
        for each in report.content["episodes"]
        for event in each["events"]
    ]
    assert set(head[1:]) == {kind for _, kind in events}
    for arm, *counted in lines:
        assert counted == [str(events.count((arm, kind))) for kind in head[1:]]


@pytest.mark.slow
def test_the_finding_says_what_the_rows_give_also_where_a_baseline_does_better(report: Report) -> None:
    text = report.finding()
    attempts = {arm: total(of(report.rows, arm), "attempts") for arm in ARMS}
    fewest = min(number for arm, number in attempts.items() if arm not in LINES)
    assert "Over 24 episodes " in text
    assert f" attempts: {fewest} " in text
    assert f", {attempts['A0'] - fewest} fewer than an agent without memory" in text
    for baseline in ("LW", "LWG"):
        assert abs(attempts[baseline] - attempts["A2"]) == 1
        near = rf"\b{baseline} {attempts[baseline]}\b[^;.]* within one attempt of A2"
        assert re.search(near, text)
    for arm in (arm for arm in ARMS if arm not in LINES):
        stale = total(of(report.rows, arm, drift_epoch=1), "stale_attempt")
        assert re.search(rf"\b{arm}\b[\w, ]*? paid {stale or 'none'}\b", text), arm
        poisoned = total(of(report.rows, arm), "poisoned")
        assert bool(poisoned) == bool(re.search(rf"poisoned attempts:.*\b{arm} {poisoned}\b", text)), (
            arm
        )


@pytest.mark.slow
def test_the_executed_notebook_lies_beside_the_page_and_tells_no_path(report: Report) -> None:
    executed = report.html.with_suffix(".ipynb")
    metadata = json.loads(executed.read_text(encoding="utf-8"))["metadata"]
    assert metadata["crossmem"] == {"status": "completed"}
    for path in (executed, report.html):
        text = path.read_text(encoding="utf-8")
        assert str(report.folder) not in text
        assert str(paths.root()) not in text
    assert {path.name for path in executed.parent.iterdir()} == {executed.name, report.html.name}


@pytest.mark.slow
def test_published_it_is_listed_as_scripted_with_what_its_results_file_holds(
    report: Report, tmp_path: Path
) -> None:
    *_, index = publish([], report.html.parent, tmp_path)
    (entry,) = BeautifulSoup(index.read_text(encoding="utf-8"), "html.parser").select("article")
    assert entry.select("p")[0].get_text() == "Scripted, not measured"
    assert entry.select("p")[1].get_text() in report.finding()
    config = report.content["config"]
    facts = {row.th.get_text(): row.td.get_text() for row in entry.select("tr") if row.th and row.td}
    assert facts.pop("Run").startswith(moment(config["started"]))
    assert facts == {
        "Agent": f"scripted (profile {config['parameters']['model']})",
        "Stream": config["stream"],
        "Drift pattern": config["pattern"],
        "Arms": ", ".join(arm for arm in ARMS if arm not in LINES),
    }


@pytest.mark.slow
def test_a_report_of_a_results_file_shows_that_runs_parameters(report: Report, tmp_path: Path) -> None:
    again = Report(tmp_path)
    reported(tmp_path, "phase1", f"results={report.results}")
    assert not (tmp_path / "results").exists()
    assert again.finding() == report.finding()
    config = report.content["config"]["parameters"]
    for name, value in parameters_shown(again.page).items():
        if name in config:
            assert value == repr(config[name]), name


def parameters_shown(page: BeautifulSoup) -> dict[str, str]:
    lines = page.select("details.parameters tr")
    return {
        line.th.get_text(): line.td.code.get_text()
        for line in lines
        if line.th and line.td and line.td.code
    }


@pytest.mark.slow
@pytest.mark.parametrize("which", ["report", "hopeless"])
def test_nothing_is_warned_of_and_no_missing_value_shows_as_code(
    which: str, request: pytest.FixtureRequest
) -> None:
    report: Report = request.getfixturevalue(which)
    assert not re.search("Warning|Traceback", report.said("stderr"))
    for cell in cells(report.html.with_suffix(".ipynb")):
        texts = [out["text"] for out in cell["outputs"] if out.get("name") == "stderr"]
        assert not [text for text in map("".join, texts) if "Warning" in text]
    alts = [str(image["alt"]) for image in report.page.select("img")]
    words = [cell.get_text() for cell in report.page.select("td, th, figcaption, p:not(.reason)")]
    texts = [report.said("stdout"), *alts, *words]
    assert [text for text in texts if re.search(r"\b(?:nan|NaN|inf|None)\b", text)] == []


# -- where nothing succeeds ----------------------------------------------------------------------


@pytest.mark.slow
def test_tokens_per_success_without_a_success_are_a_dash_and_none_in_words(hopeless: Report) -> None:
    assert total(of(hopeless.rows, "A0"), "success") == 0
    head, lines = table(hopeless.page, "The whole stream, per arm")
    by_arm = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    assert by_arm["A0"]["tokens per success"] == "-"
    assert by_arm["A0"]["success rate"] == "0%"
    _, lines = table(hopeless.page, "Tokens per success, by drift epoch")
    assert lines[0] == ["A0", "-", "-", "-", "-"]
    after = [row for row in of(hopeless.rows, "A2") if row["drift_epoch"]]
    said = f"tokens per success after the first drift: A0 none, A2 {per_success(after)}"
    assert said in hopeless.said("stdout")
    assert any("A0 epoch 0 none tokens" in str(image["alt"]) for image in hopeless.page.select("img"))
    alt = figures.tokens(load(hopeless.results)).alt
    assert "A0 after the drift none; A0 before none" in alt, alt


# -- in a browser --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_shows_who_wrote_first_its_figures_at_their_width_and_every_parameter(
    report: Report, visit: Callable[[Path], tuple[Page, list[str]]]
) -> None:
    page, heard = visit(report.html)
    assert page.title().startswith("Phase 1")
    notice, box = page.locator(".notice.scripted").first, page.locator(".finding")
    assert "scripted agent" in notice.inner_text()
    assert "not from a language model" in notice.inner_text()
    tops = [each.bounding_box() for each in (notice, box, page.locator("img").first)]
    heights = [each["y"] for each in tops if each]
    assert len(heights) == 3
    assert heights == sorted(heights)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280

    images = page.locator("img").evaluate_all(
        "all => all.map(i => [i.alt, i.naturalWidth, i.clientWidth])"
    )
    assert len(images) == 3
    for alt, natural, width in images:
        assert len(alt) > 40
        assert natural >= 2 * 700  # drawn for screens of twice the density
        assert 0 < width <= natural / 2

    page.locator("details.parameters summary").click()
    text = page.locator("details.parameters").inner_text()
    for name in Phase1Settings.model_fields:
        assert re.search(rf"^{name}\b", text, re.MULTILINE), name
    (line,) = [line for line in text.splitlines() if line.startswith("mock")]
    assert "scripted agent" in line

    page.get_by_role("button", name="Show all code").click()
    page.evaluate("document.querySelectorAll('details').forEach(block => block.open = true)")
    assert heard == []
