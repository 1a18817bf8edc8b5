"""What several rooms of tests share: a results folder of their own, what is made once, a Chromium."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from crossmem.paths import RESULTS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The results folder of this test; runs in this process and in its children go there."""
    folder = tmp_path / "results"
    monkeypatch.setenv(RESULTS_VARIABLE, str(folder))
    return folder


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a folder of that name, filled by `make(folder)` once for all tests and workers."""
    root = tmp_path_factory.getbasetemp()
    root = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "made-once"
    root.mkdir(exist_ok=True)

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = root / name, root / f"{name}.done"
        with FileLock(root / f"{name}.lock"):
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Start the Chromium of this machine; skip without one, unless CI insists."""
    from playwright.sync_api import sync_playwright

    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        reason = "no Chromium on this machine: the pages were not opened in a browser"
        if os.environ.get("CROSSMEM_REQUIRE_CHROMIUM") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Callable[[Path], tuple[Page, list[str]]]]:
    """Open a page; return it and a list that grows with what it complains of or asks of others."""
    tabs = []

    def go(path: Path) -> tuple[Page, list[str]]:
        tab = chromium.new_page(viewport={"width": 1280, "height": 900})
        tabs.append(tab)
        heard: list[str] = []
        tab.on("console", lambda message: heard.append(message.text))
        tab.on("pageerror", lambda error: heard.append(str(error)))
        tab.on(
            "request",
            lambda asked: None if asked.url.startswith(("file:", "data:")) else heard.append(asked.url),
        )
        tab.goto(path.as_uri())
        return tab, heard

    yield go
    for tab in tabs:
        tab.close()
