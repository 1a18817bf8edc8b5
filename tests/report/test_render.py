"""The page of a report: one file that loads nothing, reads without script, hides no failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nbformat
import pytest

from crossmem.errors import CrossmemError
from crossmem.report.execute import report
from crossmem.report.html import render

from .conftest import END

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

FIGURE = """
import io
import matplotlib.pyplot as plt
from IPython.display import Image, display
fig, ax = plt.subplots(figsize=(12, 3))
ax.plot([1, 3, 2])
held = io.BytesIO()
fig.savefig(held, format="png")
plt.close(fig)
display(Image(held.getvalue(), alt="A line over three episodes", width=1100))
"""
TABLE = """
import pandas as pd
pd.DataFrame({"arm": ["A0", "A2"], **{f"tokens {i}": [1.5, None] for i in range(20)}}).set_index("arm")
"""
HTML = """
import sys
from IPython.display import HTML, display
from tqdm import tqdm
for _ in tqdm(range(2)):
    pass
print("beware of this", file=sys.stderr)
display(HTML('<p class="finding">A2 pays one.</p><details><summary>Slot</summary>Opened</details>'))
"""
PARAMETERS = ("parameters", "arms = 'A0'  # which arms to replay\nkeying = 'task'  # what is keyed")
WORLD = (
    "# The world & its <drift>\n\nSome prose.",
    PARAMETERS,
    ("guard", "assert arms"),
    HTML,
    "## A figure",
    FIGURE,
    "## A table",
    TABLE,
    "## The last words",
    END,
)


def made(cell: Any, folder: Path) -> Path:
    """Write a notebook, as if executed, of one cell."""
    path = folder / "made.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)  # type: ignore[no-untyped-call]
    return path


def shown(data: dict[str, str], folder: Path, **metadata: Any) -> str:
    """Render a cell that has displayed `data`; return the page."""
    v4: Any = nbformat.v4
    output = v4.new_output("display_data", data=data, metadata=metadata)
    html = render(made(v4.new_code_cell("1", outputs=[output]), folder), folder / "made.html")
    return html.read_text()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Report a notebook with one of everything, once for all tests that only look at it."""
    from .conftest import _cell

    folder = tmp_path_factory.mktemp("world")
    path = folder / "world.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[_cell(cell) for cell in WORLD]), path)  # type: ignore[no-untyped-call]
    return report(path, folder / "page.html", {"arms": "A2"})


@pytest.fixture
def opened(world: Path, visit: Callable[[Path], tuple[Page, list[str]]]) -> tuple[Page, list[str]]:
    return visit(world)


@pytest.mark.browser
def test_the_page_loads_nothing_and_complains_of_nothing(opened: tuple[Page, list[str]]) -> None:
    page, heard = opened
    assert page.title() == "The world & its"  # as a tag, <drift> is no text
    assert page.get_attribute("html", "lang") == "en"
    assert heard == []


@pytest.mark.browser
def test_every_image_is_there_and_described(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    images = page.locator("img").evaluate_all("all => all.map(i => [i.alt, i.naturalWidth])")
    assert [alt for alt, _ in images] == ["A line over three episodes"]
    assert all(width > 0 for _, width in images)


@pytest.mark.browser
def test_code_is_folded_until_asked_for(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    code = page.locator("details.code")
    assert code.count() == 3  # neither parameters nor guard nor sentinel
    is_open = "all => all.map(block => block.open)"
    assert code.evaluate_all(is_open) == [False] * 3
    page.get_by_role("button", name="Show all code").click()
    assert code.evaluate_all(is_open) == [True] * 3
    page.get_by_role("button", name="Hide all code").click()
    assert code.evaluate_all(is_open) == [False] * 3


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_window(width: int, opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate("document.querySelectorAll('details').forEach(block => block.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_the_page_reads_without_script(world: Path, chromium: Browser) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(world.as_uri())
    assert page.locator(".finding").is_visible()
    assert not page.locator("#toggle-code").is_visible()
    page.get_by_text("Show the code").first.click()
    assert page.locator("details.code .source").first.is_visible()
    context.close()


def test_parameters_show_their_value_origin_and_meaning(world: Path) -> None:
    text = world.read_text()
    assert "Parameters of this run" in text
    assert "<code>'A2'</code> <span class=\"set\">set for this run</span>" in text
    assert "which arms to replay" in text


def test_progress_bars_are_left_out_and_warnings_folded(world: Path) -> None:
    text = world.read_text()
    assert "2/2 [" not in text
    assert ">beware of this</pre>" in text


def test_a_pandas_table_is_aligned_has_one_head_and_marks_what_is_missing(world: Path) -> None:
    text = world.read_text()
    assert '<th class="num">tokens 0</th>' in text
    assert "<th>arm</th>" in text
    assert text.count("<tr") - text.count('<tr><th scope="row">') == 4  # two heads, two rows
    assert 'class="missing num">NaN</td>' in text


def test_longer_reports_have_contents(world: Path) -> None:
    assert '<a href="#A-figure">A figure</a>' in world.read_text()


@pytest.mark.parametrize("metadata", [{}, {"image/png": {"alt": " "}}])
def test_an_image_without_alternative_text_is_an_error(
    metadata: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(CrossmemError, match="image in code cell 1 has no alternative text"):
        shown({"image/png": "aGVsbG8="}, tmp_path, **metadata)
    with pytest.raises(CrossmemError, match="code cell 1 has no alternative text"):
        shown({"text/html": '<img src="data:,">'}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["made.ipynb"]


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//cdn.example/x.css">',
        '<style>@import "https://cdn.example/x.css";</style>',
        '<p style="background: url(http://cdn.example/x.png)">x</p>',
        '<img alt="x" src="figure.png">',
    ],
)
def test_a_part_loaded_from_elsewhere_is_an_error(html: str, tmp_path: Path) -> None:
    with pytest.raises(CrossmemError, match="code cell 1 would load"):
        shown({"text/html": html}, tmp_path)


def test_a_link_may_lead_elsewhere(tmp_path: Path) -> None:
    link = '<a href="https://example.org">there</a>'
    assert link in shown({"text/html": link}, tmp_path)


def test_a_widget_is_not_shown(tmp_path: Path) -> None:
    widget = {"application/vnd.jupyter.widget-view+json": "{}", "text/plain": "  0%| | 0/9"}
    assert "0/9" not in shown(widget, tmp_path)


def test_a_failed_run_says_so_first(notebook: Callable[..., Path], tmp_path: Path) -> None:
    html = tmp_path / "page.html"
    with pytest.raises(CrossmemError, match="no such arm"):
        report(notebook("# Title", "1", "raise ValueError('no such arm <A9>')", END), html, {})
    text = html.read_text()
    assert text.index("This run did not finish") < text.index("<h1")
    assert '<a href="#cell-2">code cell 2</a>' in text
    assert "no such arm &lt;A9&gt;" in text
    assert "papermill-error-cell" not in text


def test_a_notebook_whose_sentinel_is_silent_says_so(
    notebook: Callable[..., Path], tmp_path: Path
) -> None:
    html = render(notebook("# Title", END), tmp_path / "page.html")
    assert "The last cell of the notebook did not run." in html.read_text()


def test_the_previous_page_survives_one_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "made.html").write_text("the previous one")
    with pytest.raises(CrossmemError):
        shown({"image/png": "aGVsbG8="}, tmp_path)
    assert (tmp_path / "made.html").read_text() == "the previous one"
