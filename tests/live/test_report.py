"""The Phase 1 report of a live run, and of one in which nothing ever succeeds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from bs4 import BeautifulSoup

from crossmem.paths import RESULTS_VARIABLE

from .fakes import Answer, Asked, competent, providing, stubborn
from .helpers import KEY, report

if TYPE_CHECKING:
    from pathlib import Path

    from .fakes import Script

pytestmark = pytest.mark.slow


def page_of(script: Script, folder: Path, *parameters: str) -> BeautifulSoup:
    """Run the real command against a provider of that script and return its page."""
    html = folder / "page.html"
    with providing(script) as provider:
        settings = {
            "ANTHROPIC_BASE_URL": provider.url,
            "ANTHROPIC_API_KEY": KEY,
            RESULTS_VARIABLE: str(folder / "results"),
        }
        answer = report(html, *parameters, **settings)
    assert answer.returncode == 0, answer.stderr
    return BeautifulSoup(html.read_text(encoding="utf-8"), "html.parser")


def words(page: BeautifulSoup) -> str:
    for each in page(["style", "script"]):
        each.decompose()
    return " ".join(page.get_text(" ").split())


def cell(page: BeautifulSoup, caption: str, arm: str, column: str) -> str:
    table = next(t for t in page("table") if t.caption and caption in t.caption.get_text())
    heads = [head.get_text(strip=True) for head in table("tr")[0](["th", "td"])]
    row = next(r for r in table("tr") if (h := r.find("th")) and h.get_text(strip=True) == arm)
    return str(row(["th", "td"])[heads.index(column)].get_text(strip=True))


def test_a_live_run_is_reported_as_measured_with_its_model(tmp_path: Path) -> None:
    def served_as_another(asked: Asked) -> Answer:
        answer = competent(asked)
        return Answer(answer.request, served="claude-tiny-1")

    page = page_of(served_as_another, tmp_path)
    text = words(page)
    assert "Measured with the model haiku." in text
    assert "asked for claude-haiku-4-5, served claude-tiny-1" in text
    assert "scripted agent (profile" not in text
    assert "Done: " not in text
    assert re.search(r"tokens per success after the first drift: A0 [\d,]+", text)
    assert float(cell(page, "whole stream", "A2", "success rate").rstrip("%")) == 100
    assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)


def test_a_model_that_never_succeeds_is_reported_without_a_figure_that_is_not_there(
    tmp_path: Path,
) -> None:
    page = page_of(stubborn, tmp_path, "max_attempts=2", "arms=A0,A2")
    text = words(page)
    assert "Measured with the model haiku." in text
    assert "tokens per success after the first drift: A0 none, A2 none" in text
    assert not re.search(r"\b(nan|inf|infinity)\b", text, re.IGNORECASE)
    for arm in ("A0", "A2"):
        assert cell(page, "whole stream", arm, "tokens per success") == "-"
        assert cell(page, "whole stream", arm, "success rate") == "0%"
    assert "Error" not in text
    assert all(image.get("alt") for image in page("img"))
