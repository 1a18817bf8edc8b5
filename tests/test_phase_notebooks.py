"""The notebooks: how they are built; those of Phases 2 and 3 executed as typed, and read as pages."""

from __future__ import annotations

import ast
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
from running import rows_of

from crossmem import paths
from crossmem.analysis import slots
from crossmem.cli import notebook_settings
from crossmem.errors import InputError
from crossmem.harness.results import Run, load
from crossmem.paths import RESULTS_VARIABLE
from crossmem.report.execute import execute, sentinel_text
from crossmem.report.html import render
from crossmem.settings import parameters_cell

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Page

    Cell = dict[str, Any]

ARMS = ("A0", "A1", "A2", "A2D", "A1F", "LW", "LWG", "oracle", "bound")
NOTEBOOKS = notebook_settings()


def path_of(notebook: str) -> Path:
    return paths.notebooks() / f"{notebook}.ipynb"


def cells(notebook: Path, kind: str = "code") -> list[Cell]:
    content: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    return [cell for cell in content["cells"] if cell["cell_type"] == kind]


def source(cell: Cell) -> str:
    return "".join(cell["source"])


def tags(cell: Cell) -> list[str]:
    return list(cell["metadata"].get("tags", []))


# -- how they are built ----------------------------------------------------------------------------


def test_every_notebook_has_a_schema_and_every_schema_a_notebook() -> None:
    stored = {path.stem for path in paths.notebooks().glob("*.ipynb")}
    assert stored == set(NOTEBOOKS)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_it_is_stored_without_outputs_or_counts_and_its_cells_define_and_loop_over_nothing(
    notebook: str,
) -> None:
    forbidden = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While)
    assert "papermill" not in json.loads(path_of(notebook).read_text(encoding="utf-8"))["metadata"]
    for cell in cells(path_of(notebook)):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        assert not {"papermill", "execution"} & set(cell["metadata"])
        assert not [each for each in ast.walk(ast.parse(source(cell))) if isinstance(each, forbidden)]


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_prose_opens_it_then_come_parameters_and_guard_and_the_sentinel_ends_it(notebook: str) -> None:
    everything = json.loads(path_of(notebook).read_text(encoding="utf-8"))["cells"]
    code = cells(path_of(notebook))
    assert everything[0]["cell_type"] == "markdown"
    assert everything[-1] == code[-1]
    assert [tags(code[0]), tags(code[1]), tags(code[-1])] == [["parameters"], ["guard"], ["sentinel"]]
    assert not {"parameters", "guard", "sentinel"} & {tag for cell in code[2:-1] for tag in tags(cell)}
    assert f".{NOTEBOOKS[notebook].__name__}, globals())" in source(code[1])


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_the_parameters_cell_is_the_schema_and_says_what_each_means(notebook: str) -> None:
    text = source(cells(path_of(notebook))[0])
    assert text == parameters_cell(NOTEBOOKS[notebook])
    for written in text.splitlines():
        assert re.search(r"^\w+: (str|bool|int|float) = .+  # \S.{4,}", written), written


# -- every cell, in this process -------------------------------------------------------------------


@dataclass
class Shown:
    """What a cell displayed."""

    code: str
    html: str
    alt: str


def walk(notebook: str, **given: Any) -> list[Shown]:
    """Run the cells of a notebook one after the other, without a kernel; return what they show."""
    names: dict[str, Any] = {}
    shown = []
    for cell in cells(path_of(notebook)):
        code = source(cell)
        parsed = ast.parse(code)
        last = parsed.body.pop() if isinstance(parsed.body[-1], ast.Expr) else None
        exec(compile(parsed, notebook, "exec"), names)
        if "parameters" in tags(cell):
            assert set(given) <= set(names)
            names.update(given)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), notebook, "eval"), names)
            shown.append(Shown(code, *displayed(value)))
    return shown


def displayed(value: Any) -> tuple[str, str]:
    """Return the HTML of what a notebook would show, and the alternative text of an image."""
    if hasattr(value, "alt"):
        data, metadata = value._repr_mimebundle_()
        assert data["image/png"].startswith(b"\x89PNG")
        alt: str = metadata["image/png"]["alt"]
        assert alt.strip()
        return "", alt
    return (str(value._repr_html_()) if hasattr(value, "_repr_html_") else ""), ""


FEW = {"mock": True, "arms": "A0,A2,A2D,LWG"}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "phase2 churn": ("phase2", {**FEW, "pattern": "churn"}),
    "phase2 silent": ("phase2", {**FEW, "pattern": "silent", "keying": "request"}),
    "phase2 one attempt": ("phase2", {**FEW, "max_attempts": 1}),
    "phase2 two replicates": ("phase2", {**FEW, "replicates": 2}),
    "phase2 unheeded": ("phase2", {**FEW, "model": "sonnet", "hint_style": "append"}),
    "phase3 two arms": ("phase3", {"mock": True, "arms": "A2,A2D"}),
    "acme rotations": ("acme", {"mock": True, "arms": "A0,A1F,A2,A2D,LWG"}),
    "acme without the dividend": ("acme", {"mock": True, "arms": "LWG", "stream": "acme_sanity"}),
    "acme refunds": ("acme", {**FEW, "stream": "acme_refunds"}),
    "phase3 all arms": ("phase3", {"mock": True, "arms": "A0,A1F,A1,LW,LWG,A2,A2C,A2D,A2V,A3"}),
}


@pytest.mark.slow
@pytest.mark.usefixtures("results")
@pytest.mark.parametrize("case", SETTINGS)
def test_every_cell_shows_something_sound(case: str) -> None:
    notebook, given = SETTINGS[case]
    shown = walk(notebook, **given)
    has_dividend = case != "acme without the dividend"
    assert sum(bool(each.alt) for each in shown) == (3 if notebook == "acme" else 4) + has_dividend
    assert sum("<table" in each.html for each in shown) >= 9
    intervals, rest = (
        [each for each in shown if (each.code == "cm.findings.intervals(run)") is wanted]
        for wanted in (True, False)
    )
    assert [each.html for each in intervals] == [""], "the notice says why there are none"
    assert "No interval is given" in "".join(each.html for each in rest)
    without_drift = given.get("stream") == "acme_refunds"
    for each in rest:
        if each.code == "cm.slots.folds(run)" and without_drift:
            assert "there is no slot" in each.html
            continue
        assert each.html or each.alt or each.code.startswith("print("), each.code
        assert not re.search(r"\b(nan|inf|None|NaT)\b", re.sub(r"<[^>]*>", " ", each.html)), each.code
        assert not re.search(r"\b(nan|inf|None)\b", each.alt), each.alt


@pytest.mark.usefixtures("results")
def test_a_study_of_no_memory_at_all_reads_as_well() -> None:
    shown = walk("phase1", mock=True, arms="A0")
    assert not [each.alt for each in shown if each.alt.endswith(": .")]


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize("arms", ["A0,A2", "LWG"])
def test_arms_without_a_dividend_are_no_error(arms: str) -> None:
    shown = walk("phase2", mock=True, arms=arms)
    (figure,) = [each for each in shown if each.code == "cm.figures.dividend(run)"]
    assert "needs both A2 and A2D" in figure.html


@pytest.mark.slow
@pytest.mark.usefixtures("results")
def test_all_cells_may_be_run_twice_in_one_kernel(tmp_path: Path) -> None:
    content = json.loads(path_of("phase1").read_text(encoding="utf-8"))
    code = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    code[0]["source"] += ["\nmock = True\narms = 'A0,A2'"]
    content["cells"] = [*code, *({**cell, "id": f"again-{n}"} for n, cell in enumerate(code))]
    twice = tmp_path / "twice.ipynb"
    twice.write_text(json.dumps(content), encoding="utf-8")
    assert sentinel_text(execute(twice, tmp_path / "out.ipynb", {}))
    assert len(list(paths.results().glob("*.jsonl"))) == 2


# -- as typed --------------------------------------------------------------------------------------


def papermill(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Type `papermill ...` in `folder`, with a results folder of its own."""
    environment = {**os.environ, RESULTS_VARIABLE: str(folder / "results")}
    environment.pop("PILOT_MODEL", None)
    command = [str(Path(sys.executable).with_name("papermill")), *map(str, arguments)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@dataclass(frozen=True)
class Typed:
    """What a papermill command left in a folder: its output notebook, the run."""

    folder: Path

    @property
    def notebook(self) -> Path:
        return self.folder / "elsewhere" / "out.ipynb"

    @cached_property
    def run(self) -> Run:
        (file,) = (self.folder / "results").glob("*.jsonl")
        return load(file)

    def attempts(self) -> dict[str, int]:
        rows = rows_of(self.run)
        return {arm: sum(row.attempts for row in rows if row.arm == arm) for arm in self.run.arms}


def typed(folder: Path, notebook: str, arguments: str) -> Typed:
    (folder / "elsewhere").mkdir()
    answer = papermill(folder, path_of(notebook), "elsewhere/out.ipynb", *arguments.split())
    assert answer.returncode == 0, answer.stderr
    assert not re.search("Traceback|Warning", answer.stderr)
    assert {path.name for path in folder.iterdir()} == {"elsewhere", "results"}
    return Typed(folder)


@pytest.fixture(scope="session")
def phase3(made_once: Callable[..., Path]) -> Typed:
    """`papermill notebooks/phase3.ipynb out.ipynb -p model sonnet -p mock True`, from elsewhere."""
    return Typed(made_once("phase3", lambda at: typed(at, "phase3", "-p model sonnet -p mock True")))


@pytest.fixture(scope="module")
def page(phase3: Typed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return render(phase3.notebook, tmp_path_factory.mktemp("phase3") / "page.html")


@pytest.mark.slow
def test_phase3_works_as_typed_from_another_directory(phase3: Typed) -> None:
    run = phase3.run
    assert run.path.name.startswith("phase3_m1_mock-sonnet_")
    assert run.arms == [*ARMS]
    attempts = phase3.attempts()
    assert [*attempts.values()] == [92, 68, 67, 64, 76, 68, 64, 64, 59]
    said = sentinel_text(phase3.notebook)
    assert said is not None
    assert said.startswith("phase3, stream phase3_m1, scripted agent sonnet\n")
    for arm, number in attempts.items():
        assert f"{arm} {number}" in said.splitlines()[1]
    assert said.endswith(run.path.name)


@pytest.mark.slow
def test_the_phase3_notebook_holds_its_figures_tables_and_slots(phase3: Typed) -> None:
    outputs = [output for cell in cells(phase3.notebook) for output in cell["outputs"]]
    shown = [each for each in outputs if "data" in each]
    alts = [each["metadata"]["image/png"]["alt"] for each in shown if "image/png" in each["data"]]
    assert len(alts) == 5
    assert len(set(alts)) == 5
    html = ["".join(each["data"].get("text/html", "")) for each in shown]
    (folds,) = [each for each in html if "<details" in each]
    assert folds == slots.folds(phase3.run)._repr_html_()
    assert not [each for each in outputs if each["output_type"] == "error"]


@pytest.mark.slow
def test_phase2_works_as_typed_for_another_pattern(tmp_path: Path) -> None:
    done = typed(tmp_path, "phase2", "-p mock True -p pattern rollback -p arms A0,A2,A2D")
    assert done.run.path.name.startswith("phase2_rollback_mock-haiku_")
    assert done.attempts() == {"A0": 46, "A2": 37, "A2D": 34}


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_unknown_pattern_stops_the_notebook_in_one_line(tmp_path: Path) -> None:
    answer = papermill(tmp_path, path_of("phase2"), "out.ipynb", *"-p mock True -p pattern v9".split())
    assert answer.returncode != 0
    said = (
        "InputError: unknown pattern 'v9'; did you mean 'v4'? Choices: v2, v4, churn, silent, rollback"
    )
    assert said in answer.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.usefixtures("results")
def test_a_results_file_of_another_phase_or_pattern_is_refused() -> None:
    walk("phase2", mock=True, arms="A2,A2D")
    (file,) = paths.results().glob("*.jsonl")
    given = {"mock": True, "results": str(file)}
    of = r"is of phase2 on stream phase2_v2, not of"
    with pytest.raises(InputError, match=rf"{of} phase3"):
        walk("phase3", **given)
    with pytest.raises(InputError, match=rf"{of} phase2 on stream churn"):
        walk("phase2", pattern="churn", **given)
    assert walk("phase2", **given)


@pytest.mark.usefixtures("results")
@pytest.mark.parametrize("notebook", ["phase2", "phase3"])
def test_a_misspelt_pattern_names_the_choices(notebook: str) -> None:
    with pytest.raises(InputError, match=r"unknown pattern 'm2'; did you mean '(v2|m1)'\? Choices"):
        walk(notebook, mock=True, pattern="m2")
    assert not paths.results().exists()


# -- the page --------------------------------------------------------------------------------------


@pytest.mark.browser
@pytest.mark.slow
def test_the_page_loads_nothing_fits_the_window_and_describes_its_images(
    page: Path, visit: Callable[[Path], tuple[Page, list[str]]]
) -> None:
    tab, heard = visit(page)
    assert tab.get_by_text("not from a language model").first.is_visible()
    images = tab.locator("img").evaluate_all("all => all.map(i => [i.alt, i.naturalWidth])")
    assert len(images) == 5
    for alt, width in images:
        assert len(alt) > 40
        assert width > 0
    for unfold in ("", "document.querySelectorAll('details').forEach(block => block.open = true)"):
        tab.evaluate(unfold)
        for wide in (1280, 400):
            tab.set_viewport_size({"width": wide, "height": 900})
            assert tab.evaluate("document.documentElement.scrollWidth") <= wide
    tab.set_viewport_size({"width": 672, "height": 1000})  # a sheet of A4 within its margins
    tab.emulate_media(media="print")
    cut = "[...document.querySelectorAll('.table')].filter(each => each.scrollWidth > each.clientWidth)"
    assert tab.evaluate(f"{cut}.map(each => each.ariaLabel)") == []
    assert heard == []


@pytest.mark.browser
@pytest.mark.slow
def test_slots_unfold_without_script(page: Path, phase3: Typed, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(page.as_uri())
    folds = tab.locator("details.slot")
    titles = [slot.title for slot in slots.folds(phase3.run).slots]
    assert folds.locator("summary").all_inner_texts() == titles
    assert len(titles) == 4 * len(ARMS)
    one = folds.nth(titles.index("Epoch 2, A2D: stale attempt at episode 18 (oats), 2 attempts"))
    held, sent = one.get_by_text("What memory held"), one.locator("pre").first
    assert not held.is_visible()
    one.locator("summary").click()
    assert held.is_visible()
    assert sent.is_visible()
    assert '"name": "oats"' in sent.inner_text()
    (fixed,) = one.locator("li ins").all_inner_texts()
    assert fixed in one.locator("pre").nth(1).inner_text()
    assert not folds.nth(0).locator("h4").first.is_visible(), "the others stay folded"
    one.locator("summary").click()
    assert not held.is_visible()
    context.close()
