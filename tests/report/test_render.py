"""The page of a report: one file that loads nothing, reads without script, hides no failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from bs4 import BeautifulSoup

from crossmem.analysis.display import Table
from crossmem.errors import CrossmemError
from crossmem.report.execute import report
from crossmem.report.html import render

from .conftest import END, PIXEL, save, v4, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Browser, Page

FIGURE = f"""
from base64 import b64decode
from IPython.display import Image
Image(b64decode("{PIXEL}"), alt="A line over three episodes", width=1100)
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


@pytest.fixture(scope="session")
def world(made_once: Callable[..., Path]) -> Path:
    """Report a notebook with one of everything, once for all tests that only look at it."""

    def make(folder: Path) -> None:
        report(write(folder / "world.ipynb", *WORLD), folder / "page.html", {"arms": "A2"})

    return made_once("world", make) / "page.html"


def shown(data: dict[str, str], folder: Path, **metadata: Any) -> str:
    """Render a cell that has displayed `data`; return the page."""
    output = v4.new_output("display_data", data=data, metadata=metadata)
    cell = v4.new_code_cell("1", outputs=[output])
    path = save(v4.new_notebook(cells=[cell]), folder / "made.ipynb")
    return render(path, folder / "made.html").read_text()


@pytest.mark.slow
@pytest.mark.browser
def test_the_page_loads_nothing_fits_the_window_and_folds_its_code(
    world: Path, visit: Callable[[Path], tuple[Page, list[str]]]
) -> None:
    page, heard = visit(world)
    assert page.title() == "The world & its"  # as a tag, <drift> is no text
    assert page.get_attribute("html", "lang") == "en"
    images = page.locator("img").evaluate_all("all => all.map(i => [i.alt, i.naturalWidth > 0])")
    assert images == [["A line over three episodes", True]]

    code = page.locator("details.code")
    assert code.count() == 3  # neither parameters nor guard nor sentinel
    is_open = "all => all.map(block => block.open)"
    assert code.evaluate_all(is_open) == [False] * 3
    page.get_by_role("button", name="Show all code").click()
    assert code.evaluate_all(is_open) == [True] * 3
    page.get_by_role("button", name="Hide all code").click()
    assert code.evaluate_all(is_open) == [False] * 3

    page.evaluate("document.querySelectorAll('details').forEach(block => block.open = true)")
    for width in (1280, 400):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert heard == []


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_page_holds_parameters_contents_and_warnings_and_leaves_out_progress(world: Path) -> None:
    text = world.read_text()
    assert "Parameters of this run" in text
    assert "<code>'A2'</code> <span class=\"set\">set for this run</span>" in text
    assert "which arms to replay" in text
    assert '<a href="#A-figure">A figure</a>' in text
    assert "2/2 [" not in text
    assert ">beware of this</pre>" in text


@pytest.mark.slow
def test_a_pandas_table_is_shown_as_ours_is(world: Path, tmp_path: Path) -> None:
    (theirs,) = BeautifulSoup(world.read_text(), "html.parser").select("table.dataframe")
    cells = pd.DataFrame({f"tokens {i}": ["1.5", "NaN"] for i in range(20)}, index=["A0", "A2"])
    made = Table(cells.rename_axis("arm"), "<Words>")
    (ours,) = BeautifulSoup(shown({"text/html": made._repr_html_()}, tmp_path), "html.parser").select(
        "table.dataframe"
    )
    for table, label in ((theirs, "Table"), (ours, "<Words>")):
        (region,) = table.find_parents(class_="table")
        assert (region["role"], region["tabindex"], region["aria-label"]) == ("region", "0", label)
        rows = [[str(cell) for cell in row(["th", "td"])] for row in table("tr")]
        assert rows == [
            ["<th>arm</th>", *(f'<th class="num">tokens {i}</th>' for i in range(20))],
            ["<th>A0</th>", *['<td class="num">1.5</td>'] * 20],
            ["<th>A2</th>", *['<td class="missing num">NaN</td>'] * 20],
        ]


def test_a_table_of_ours_spans_shared_labels_and_aligns_numbers_alone(tmp_path: Path) -> None:
    index = pd.MultiIndex.from_product([["v2", "v4"], ["A0", "A2"]], names=["run", "arm"])
    words = {"cost": ["1,234", "-", "5%", "-6.5"], "why": ["<b>", "2.0.0", "7", "-"]}
    html = Table(pd.DataFrame(words, index=index), "c")._repr_html_()
    assert '<tr><th>run</th><th>arm</th><th class="num">cost</th><th>why</th></tr>' in html
    assert '<th rowspan="2">v2</th><th>A0</th><td class="num">1,234</td><td>&lt;b&gt;</td>' in html
    assert '<tr><th>A2</th><td class="missing num">-</td><td>2.0.0</td></tr>' in html
    assert '<tr><th>A2</th><td class="num">-6.5</td><td class="missing">-</td></tr>' in html


def test_tables_of_others_keep_their_style_and_their_heads(tmp_path: Path) -> None:
    heads = "<thead><tr><th rowspan=2>a</th><th>b</th></tr><tr><th>c</th></tr></thead>"
    html = (
        f"<style>#T {{color: red}}</style><table id=T>{heads}<tbody><tr><td>1</td></tr></tbody></table>"
    )
    page = BeautifulSoup(shown({"text/html": html}, tmp_path), "html.parser")
    assert [head.get_text() for head in page.select(".html > style + .table > table th")] == [*"abc"]
    two = pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_product([["a"], ["x", "y"]]))
    page = BeautifulSoup(shown({"text/html": two._repr_html_()}, tmp_path), "html.parser")  # type: ignore[operator]
    assert len(page.select(".html > .table > table > thead > tr")) == 2


@pytest.mark.parametrize("metadata", [{}, {"image/png": {"alt": " "}}])
def test_an_image_without_alternative_text_is_an_error_and_the_previous_page_stays(
    metadata: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "made.html").write_text("the previous one")
    with pytest.raises(CrossmemError, match="image in code cell 1 has no alternative text"):
        shown({"image/png": "aGVsbG8="}, tmp_path, **metadata)
    with pytest.raises(CrossmemError, match="code cell 1 has no alternative text"):
        shown({"text/html": '<img src="data:,">'}, tmp_path)
    assert (tmp_path / "made.html").read_text() == "the previous one"
    assert {path.name for path in tmp_path.iterdir()} == {"made.ipynb", "made.html"}


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


def test_a_link_may_lead_elsewhere_and_a_widget_is_not_shown(tmp_path: Path) -> None:
    link = '<a href="https://example.org">there</a>'
    assert link in shown({"text/html": link}, tmp_path)
    widget = {"application/vnd.jupyter.widget-view+json": "{}", "text/plain": "  0%| | 0/9"}
    assert "0/9" not in shown(widget, tmp_path)


@pytest.mark.slow
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
