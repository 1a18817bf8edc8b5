"""Which page a report writes: its own, also with others at work, or an error before anything runs."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from crossmem import paths
from crossmem.errors import InputError
from crossmem.report.execute import claimed_page

if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import sys
from pathlib import Path
from crossmem.report.execute import claimed_page
with claimed_page(Path(sys.argv[1]), "phase1"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "reports", lambda: tmp_path)


def test_reports_at_once_write_a_page_each_and_the_next_one_the_first(tmp_path: Path) -> None:
    with claimed_page(None, "phase1") as first, claimed_page(None, "phase1") as second:
        assert (first, second) == (tmp_path / "phase1.html", tmp_path / "phase1-2.html")
        with claimed_page(None, "phase2") as other:
            assert other == tmp_path / "phase2.html"
    with claimed_page(None, "phase1") as again:
        assert again == first


def test_a_page_that_another_process_writes_is_refused_by_name_and_left_free_when_it_is_killed(
    tmp_path: Path,
) -> None:
    page = tmp_path / "mine.html"
    command = [sys.executable, "-c", HOLD, str(page)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(InputError, match=r"mine\.html is being written by another report"),
            claimed_page(page, "phase1"),
        ):
            pytest.fail("the page was claimed twice")
        holder.kill()
    with claimed_page(page, "phase1") as claimed:
        assert claimed == page


@pytest.mark.parametrize(
    ("name", "made", "said"),
    [
        ("folder", "folder", r"cannot write .*folder: it is a folder"),
        ("page.html", "page.ipynb", r"cannot write .*page\.ipynb: it is a folder"),
        ("page.ipynb", "", r"page\.ipynb is the name of a notebook"),
        ("file/page.html", "", r"cannot write to .*file: "),
    ],
)
def test_an_output_that_cannot_be_used_is_said_first(
    name: str, made: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    if made:
        (tmp_path / made).mkdir()
    with pytest.raises(InputError, match=said), claimed_page(tmp_path / name, "phase1"):
        pytest.fail("it was claimed")
