"""The Phase 1 notebook: how it is built, what its executed copy says, and that its figures are right.

Every figure is computed here anew from the results file, without the code that the notebook calls.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bs4 import BeautifulSoup
from running import run_phase

from crossmem import paths, streams
from crossmem.paths import RESULTS_VARIABLE
from crossmem.report.html import moment
from crossmem.report.site import publish
from crossmem.settings import Phase1

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

NOTEBOOK = paths.notebooks() / "phase1.ipynb"
ARMS = ("A0", "A1", "A2", "A3", "LW", "LWG")
Rows = list[dict[str, Any]]


# -- how it is built -----------------------------------------------------------------------------


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def cells(kind: str, notebook: Path = NOTEBOOK) -> list[dict[str, Any]]:
    return [cell for cell in read(notebook)["cells"] if cell["cell_type"] == kind]


def tags(cell: dict[str, Any]) -> list[str]:
    found: list[str] = cell["metadata"].get("tags", [])
    return found


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def test_it_is_stored_without_outputs_or_counts() -> None:
    for cell in cells("code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        assert not {"papermill", "execution"} & set(cell["metadata"])
    assert "papermill" not in read(NOTEBOOK)["metadata"]


def test_parameters_come_first_the_guard_second_and_the_sentinel_last() -> None:
    code = cells("code")
    assert tags(code[0]) == ["parameters"]
    assert tags(code[1]) == ["guard"]
    assert tags(code[-1]) == ["sentinel"]
    for tag in ("parameters", "guard", "sentinel"):
        assert sum(tag in tags(cell) for cell in code) == 1
    assert read(NOTEBOOK)["cells"][-1] == code[-1]


def test_the_parameters_cell_has_the_names_types_and_defaults_of_the_schema() -> None:
    found = {}
    for line in ast.parse(source(cells("code")[0])).body:
        assert isinstance(line, ast.AnnAssign)
        assert isinstance(line.target, ast.Name)
        assert isinstance(line.annotation, ast.Name)
        assert line.value is not None
        found[line.target.id] = (ast.literal_eval(line.value), line.annotation.id)
    assert list(found) == list(Phase1.model_fields)
    for name, (default, annotation) in found.items():
        assert default == Phase1.model_fields[name].default, name
        assert type(default).__name__ == annotation, name


def test_every_parameter_has_a_comment() -> None:
    for line in source(cells("code")[0]).splitlines():
        assert re.search(r"  # \S.{5,}", line), line


def test_prose_comes_before_code_and_cells_define_nothing() -> None:
    assert read(NOTEBOOK)["cells"][0]["cell_type"] == "markdown"
    for cell in cells("code"):
        tree = ast.parse(source(cell))
        assert not [
            each
            for each in ast.walk(tree)
            if isinstance(each, ast.FunctionDef | ast.ClassDef | ast.Lambda | ast.For | ast.While)
        ]


def test_numbers_in_the_prose_are_the_streams_and_none_is_a_result() -> None:
    stream = streams.load("phase1")
    known = {"1", str(len(stream.episodes)), *(str(event.before) for event in stream.drift_events)}
    for cell in cells("markdown"):
        assert set(re.findall(r"\d+(?:\.\d+)?", source(cell))) <= known, source(cell)


def papermill(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("papermill")), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120)


def test_papermills_help_lists_every_parameter_with_its_meaning() -> None:
    comments = {
        line.partition(":")[0]: line.partition("  # ")[2]
        for line in source(cells("code")[0]).splitlines()
    }
    answer = papermill("--help-notebook", NOTEBOOK)
    assert answer.returncode == 0, answer.stderr
    assert answer.stderr == ""
    text = " ".join(answer.stdout.split())
    for name, comment in comments.items():
        assert f" {name}: " in text, name
        assert comment in text, name


# -- executed ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What `crossmem report phase1` left and said."""

    html: Path
    stdout: str
    stderr: str
    content: dict[str, Any]

    @property
    def rows(self) -> Rows:
        found: Rows = self.content["rows"]
        return found

    @property
    def page(self) -> BeautifulSoup:
        return BeautifulSoup(self.html.read_text(encoding="utf-8"), "html.parser")


def reported(folder: Path, *parameters: str) -> Report:
    """Run the real command in a folder that is not the checkout."""
    html = folder / "out" / "phase1 report.html"
    pairs = [word for given in parameters for word in ("-p", *given.split("=", 1))]
    tool = str(Path(sys.executable).with_name("crossmem"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RESULTS_VARIABLE, str(folder / "results"))
        answer = subprocess.run(
            [tool, "report", "phase1", *pairs, "-o", str(html)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert answer.returncode == 0, answer.stderr
    (results,) = (folder / "results").glob("*.json")
    return Report(html, answer.stdout, answer.stderr, read(results))


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of a run with the defaults, made once."""
    return reported(tmp_path_factory.mktemp("phase1"), "mock=True")


@pytest.fixture(scope="session")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of results in which A0 never succeeds, whatever it tried."""
    folder = tmp_path_factory.mktemp("failing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RESULTS_VARIABLE, str(folder / "results"))

        path = run_phase("phase1", mock=True, arms="A0,A2").path
    content = read(path)
    for row in content["rows"]:
        if row["arm"] == "A0":
            row.update(success=False, first_try=False, error="refused with 422: no")
    path.write_text(json.dumps(content), encoding="utf-8")
    return reported(folder, "results=latest")


@pytest.fixture(scope="session")
def unforgiving(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of a run in which a refusal ends the episode."""
    folder = tmp_path_factory.mktemp("unforgiving")
    return reported(folder, "mock=True", "max_attempts=1", "arms=A0,A2")


def of(rows: Rows, arm: str, **wanted: Any) -> Rows:
    """Return the rows of an arm, of one drift epoch or family where named."""
    return [
        row
        for row in rows
        if row["arm"] == arm and all(row[name] == value for name, value in wanted.items())
    ]


def total(rows: Rows, column: str) -> int:
    return sum(int(row[column]) for row in rows)


def per_success(rows: Rows) -> float | None:
    successes = total(rows, "success")
    return total(rows, "total_tokens") / successes if successes else None


COLUMNS: dict[str, Callable[[Rows], str]] = {
    "episodes": lambda rows: f"{len(rows)}",
    "attempts": lambda rows: f"{total(rows, 'attempts')}",
    "tokens per success": lambda rows: "-" if (x := per_success(rows)) is None else f"{x:,.0f}",
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
    rows = report.rows
    after = [row for row in rows if row["drift_epoch"]]

    def listed(figure: Callable[[Rows], str], of_rows: Rows) -> str:
        return ", ".join(f"{arm} {figure(of(of_rows, arm))}" for arm in ARMS)

    lines = report.stdout.splitlines()
    assert f"attempts over 24 episodes: {listed(COLUMNS['attempts'], rows)}" in lines
    assert f"stale attempts after the first drift: {listed(COLUMNS['stale attempts'], after)}" in lines
    tokens = listed(COLUMNS["tokens per success"], after)
    assert f"tokens per success after the first drift: {tokens}" in lines
    assert lines[-1] == f"Report: {report.html}"
    assert "scripted agent" in lines[0]
    assert "Traceback" not in report.stderr


@pytest.mark.slow
def test_the_summary_table_is_what_the_rows_give(report: Report) -> None:
    head, lines = table(report.page, "The whole stream, per arm")
    assert {"attempts", "tokens per success", "first-try rate", "stale attempts"} <= set(head)
    assert {"poisoned attempts", "outdated uses", "most bytes held"} <= set(head)
    assert [line[0] for line in lines] == list(ARMS)
    for line in lines:
        assert_figures(head, line, of(report.rows, line[0]))


@pytest.mark.slow
def test_the_table_after_the_drift_is_what_the_rows_give(report: Report) -> None:
    head, lines = table(report.page, "All episodes after the drift")
    assert [line[0] for line in lines] == list(ARMS)
    for line in lines:
        assert_figures(head, line, of(report.rows, line[0], drift_epoch=1))


@pytest.mark.slow
def test_the_table_of_the_drifting_family_is_what_the_rows_give(report: Report) -> None:
    head, lines = table(report.page, "The celiac episodes")
    places = [(arm, epoch) for arm in ARMS for epoch in (0, 1)]
    assert len(lines) == len(places)
    for line, (arm, epoch) in zip(lines, places, strict=True):
        assert_figures(head, line, of(report.rows, arm, drift_epoch=epoch, family="celiac"))


@pytest.mark.slow
def test_the_table_of_memory_events_counts_the_events(report: Report) -> None:
    head, lines = table(report.page, "What the memories did")
    events = report.content["events"]
    assert set(head[1:]) == {event["kind"] for event in events}
    for line in lines:
        counted = [
            sum((event["arm"], event["kind"]) == (line[0], kind) for event in events)
            for kind in head[1:]
        ]
        assert [int(cell) for cell in line[1:]] == counted


@pytest.mark.slow
def test_every_figure_of_the_finding_is_what_the_rows_give(report: Report) -> None:
    rows = report.rows
    attempts = {arm: total(of(rows, arm), "attempts") for arm in ARMS}
    stale = {arm: total(of(rows, arm, drift_epoch=1), "stale_attempt") for arm in ARMS}
    poisoned = {arm: total(of(rows, arm), "poisoned") for arm in ARMS}
    fewest = min(attempts.values())
    text = finding(report)

    def take(pattern: str) -> list[tuple[str, ...]]:
        """Return what a kind of statement says, and cut it out of the text."""
        nonlocal text
        found = [match.groups() for match in re.finditer(pattern, text)]
        text = re.sub(pattern, "", text)
        return found

    ((episodes, best, number, fewer),) = take(
        r"Over (\d+) episodes (.+?) needed the fewest attempts: (\d+), (\d+) fewer than an agent "
        r"without memory"
    )
    assert int(episodes) == 24
    assert named(best) == {arm for arm, count in attempts.items() if count == fewest}
    assert (int(number), int(fewer)) == (fewest, attempts["A0"] - fewest)

    said = take(r"([A-Z][\w, ]*?) paid (\d+|none)\b")
    assert {arm: int(n.replace("none", "0")) for who, n in said for arm in named(who)} == stale

    compared = take(
        r"(\w+) \([^)]+\) needed (?:(exactly as many) attempts as|(\d+) attempts? (more|fewer) than) "
        r"(\w+)"
    )
    assert {"LW", "LWG"} <= {left for left, *_ in compared}  # beside A2, whoever wins
    for left, same, by, direction, right in compared:
        difference = attempts[left] - attempts[right]
        assert right == "A2"
        assert difference == (0 if same else int(by) * (1 if direction == "more" else -1))

    ((arm, bought),) = take(r"invalidation of (\w+) \(\w+\) ((?:bought|saved|cost) [^.]*)")
    told = re.findall(r"((?:saved|cost) \d+|bought no) ([a-z ]+?)s?(?:, | and |$)", bought)
    expected = {"attempt": "bought no"}
    for thing, column in (
        ("attempt", "attempts"),
        ("stale attempt", "stale_attempt"),
        ("outdated use", "outdated_use"),
    ):
        gap = total(of(rows, "LWG"), column) - total(of(rows, arm), column)
        if gap:
            expected[thing] = f"{'saved' if gap > 0 else 'cost'} {abs(gap)}"
    assert {thing: by for by, thing in told} == expected

    ((who, each),) = take(r"([A-Z][\w, ]*?) stored values .*? in poisoned attempts: ([\w ,]+)")
    assert named(who) == {arm for arm, count in poisoned.items() if count}
    assert dict(re.findall(r"(\w+) (\d+)", each)) == {arm: f"{poisoned[arm]}" for arm in named(who)}

    assert re.findall(r"\b\d[\d.,]*", text) == []  # no figure that was not held against the rows


def finding(report: Report) -> str:
    (box,) = report.page.select(".finding")
    return box.get_text(" ")


def named(text: str) -> set[str]:
    return set(re.findall(r"\b(A\d\w?|LWG?)\b", text))


@pytest.mark.slow
def test_where_a_baseline_does_better_the_finding_says_so(report: Report) -> None:
    attempts = {arm: total(of(report.rows, arm), "attempts") for arm in ARMS}
    assert attempts["LWG"] < attempts["A2"]
    assert re.search(r"LWG \([^)]+\) needed 1 attempt fewer than A2", finding(report))


@pytest.mark.slow
def test_the_executed_notebook_lies_beside_the_page_and_tells_no_path(report: Report) -> None:
    executed = report.html.with_suffix(".ipynb")
    assert read(executed)["metadata"]["crossmem"] == {"status": "completed"}
    for path in (executed, report.html):
        text = path.read_text(encoding="utf-8")
        assert str(report.html.parent) not in text
        assert str(paths.root()) not in text
    assert not list(report.html.parent.glob(".*"))


@pytest.mark.slow
def test_nothing_was_warned_of(report: Report) -> None:
    assert "Warning" not in report.stderr
    for cell in cells("code", report.html.with_suffix(".ipynb")):
        texts = [out["text"] for out in cell["outputs"] if out.get("name") == "stderr"]
        assert not [text for text in map("".join, texts) if "Warning" in text]


@pytest.mark.slow
def test_published_it_is_listed_as_scripted_with_what_its_results_file_holds(
    report: Report, tmp_path: Path
) -> None:
    *_, index = publish([], report.html.parent, tmp_path)
    (entry,) = BeautifulSoup(index.read_text(encoding="utf-8"), "html.parser").select("article")
    assert entry.select("p")[0].get_text() == "Scripted, not measured"
    assert entry.select("p")[1].get_text() in finding(report)
    config = report.content["config"]
    facts = {row.th.get_text(): row.td.get_text() for row in entry.select("tr") if row.th and row.td}
    assert facts.pop("Run").startswith(moment(config["started"]))
    assert facts == {
        "Agent": f"scripted (profile {config['parameters']['model']})",
        "Stream": config["stream"],
        "Drift pattern": config["pattern"],
        "Arms": ", ".join(ARMS),
    }


NOT_A_FIGURE = re.compile(r"\b(?:nan|NaN|inf|None)\b")


@pytest.mark.slow
def test_no_missing_value_shows_as_code(report: Report) -> None:
    shown = [cell.get_text() for cell in report.page.select("td, th, figcaption, p")]
    assert [text for text in shown if NOT_A_FIGURE.search(text)] == []


@pytest.mark.slow
def test_plain_papermill_runs_it_from_anywhere_to_anywhere(tmp_path: Path, results: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there" / "done.ipynb"
    here.mkdir()
    there.parent.mkdir()
    answer = papermill(
        NOTEBOOK, there, "-p", "mock", "True", "-p", "arms", "A0,A2", "--no-progress-bar", cwd=here
    )
    assert answer.returncode == 0, answer.stderr
    assert list(here.iterdir()) == []
    (file,) = results.glob("*.json")
    assert {row["arm"] for row in read(file)["rows"]} == {"A0", "A2"}
    code = cells("code", there)
    assert not [out for cell in code for out in cell["outputs"] if out["output_type"] == "error"]
    said = "".join("".join(out["text"]) for out in code[-1]["outputs"])
    assert "attempts over 24 episodes: A0 46, A2 36" in said


# -- where nothing succeeds ----------------------------------------------------------------------


@pytest.mark.slow
def test_tokens_per_success_without_a_success_are_a_dash(failing: Report) -> None:
    head, lines = table(failing.page, "The whole stream, per arm")
    by_arm = {line[0]: dict(zip(head, line, strict=True)) for line in lines}
    assert by_arm["A0"]["tokens per success"] == "-"
    assert by_arm["A0"]["success rate"] == "0%"
    assert by_arm["A2"]["tokens per success"] not in ("-", "0")
    for caption in ("All episodes after the drift", "The celiac episodes"):
        head, lines = table(failing.page, caption)
        rows = [line for line in lines if "-" in line]
        assert len(rows) == (1 if caption.startswith("All") else 2)


@pytest.mark.slow
def test_tokens_per_success_without_a_success_are_none_in_words(failing: Report) -> None:
    assert re.search(
        r"tokens per success after the first drift: A0 none, A2 [1-9][\d,]*$",
        failing.stdout,
        re.MULTILINE,
    )
    (alt,) = [
        str(image["alt"])
        for image in failing.page.select("img")
        if "tokens per success" in str(image["alt"])
    ]
    assert "A0 before none" in alt
    assert "A0 after the drift none" in alt
    everything = failing.stdout + failing.page.get_text(" ") + alt
    assert not re.search(r"\b(?:NaN|inf)\b", everything)


@pytest.mark.slow
def test_a_family_that_never_succeeds_has_dashes_where_another_does(unforgiving: Report) -> None:
    report = unforgiving
    assert total(of(report.rows, "A0"), "success") == 2  # the controls that come in right
    head, lines = table(report.page, "The celiac episodes")
    for line, epoch in zip(lines[:2], (0, 1), strict=True):
        rows = of(report.rows, "A0", family="celiac", drift_epoch=epoch)
        assert_figures(head, line, rows)
        assert "-" in line
    head, lines = table(report.page, "The whole stream, per arm")
    for line in lines:
        assert_figures(head, line, of(report.rows, line[0]))


@pytest.mark.slow
def test_memory_is_not_said_to_change_nothing_where_it_made_episodes_succeed(
    unforgiving: Report,
) -> None:
    successes = {arm: total(of(unforgiving.rows, arm), "success") for arm in ("A0", "A2")}
    assert successes["A2"] > successes["A0"]
    assert "changed nothing" not in finding(unforgiving)


@pytest.mark.slow
def test_a_study_of_no_memory_at_all_reads_as_well(tmp_path: Path) -> None:
    report = reported(tmp_path, "mock=True", "arms=A0")
    assert "Warning" not in report.stderr
    assert not [image for image in report.page.select("img") if str(image["alt"]).endswith(": .")]


# -- in a browser --------------------------------------------------------------------------------


@pytest.fixture
def opened(report: Report, visit: Callable[[Path], tuple[Page, list[str]]]) -> tuple[Page, list[str]]:
    return visit(report.html)


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_complains_of_nothing_and_asks_nothing_of_others(
    opened: tuple[Page, list[str]],
) -> None:
    page, heard = opened
    page.get_by_role("button", name="Show all code").click()
    page.evaluate("document.querySelectorAll('details').forEach(block => block.open = true)")
    assert page.title().startswith("Phase 1")
    assert heard == []


@pytest.mark.slow
@pytest.mark.browser
def test_every_figure_is_there_at_its_width_and_described(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    images = page.locator("img").evaluate_all(
        "all => all.map(i => [i.alt, i.naturalWidth, i.clientWidth])"
    )
    assert len(images) == 3
    for alt, natural, width in images:
        assert len(alt) > 40
        assert natural >= 2 * 700  # drawn for screens of twice the density
        assert 0 < width <= natural / 2


@pytest.mark.slow
@pytest.mark.browser
def test_the_notice_the_finding_and_the_strip_are_seen_first(
    opened: tuple[Page, list[str]],
) -> None:
    page, _ = opened
    notice = page.locator(".notice.scripted").first
    box = page.locator(".finding")
    assert notice.is_visible()
    assert "scripted agent" in notice.inner_text()
    assert "not from a language model" in notice.inner_text()
    assert box.is_visible()
    tops = [each.bounding_box() for each in (notice, box, page.locator("img").first)]
    heights = [each["y"] for each in tops if each]
    assert len(heights) == 3
    assert heights == sorted(heights)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.slow
@pytest.mark.browser
def test_the_parameters_of_the_run_can_all_be_read(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    page.locator("details.parameters summary").click()
    text = page.locator("details.parameters").inner_text()
    for name in Phase1.model_fields:
        assert re.search(rf"^{name}\b", text, re.MULTILINE), name
    (line,) = [line for line in text.splitlines() if line.startswith("mock")]
    assert "scripted agent" in line
