"""The import walls of pyproject.toml hold, and each of them would be hit if it were crossed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

CLIENT = "What the client knows of the server, it read from a response"
SERVER = "The server knows nothing of its clients"
EXPERIENCE = "Nobody outside knows the experience memories"
CORE = "The core does not know the rooms around it"
ARROWS = "Arrows run one way: contract <- memory, domains <- harness <- study"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A folder with a copy of the package, free to be broken."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "crossmem", tmp_path / "crossmem", ignore=ignore)
    return tmp_path


def lint(folder: Path) -> str:
    """Hold the project's contracts against the package in `folder`; return the unwrapped report."""
    tool = Path(sys.executable).with_name("lint-imports")
    command = [str(tool), "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    report = " ".join(run.stdout.split())
    assert (run.returncode == 0) == (" 0 broken." in report), run.stdout + run.stderr
    return report


def add_import(folder: Path, importer: str, imported: str) -> None:
    """Append the import of another module to a copied one (`crossmem.a.b`)."""
    path = folder.joinpath(*importer.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\nimport {imported}\n")


def test_the_package_keeps_every_wall(copy: Path) -> None:
    report = lint(copy)

    assert "Contracts: 5 kept, 0 broken." in report, report
    for wall in [CLIENT, SERVER, CORE, EXPERIENCE, ARROWS]:
        assert f"{wall} KEPT" in report


@pytest.mark.parametrize(
    ("importer", "imported", "wall"),
    [
        ("crossmem.agents", "crossmem.api", CLIENT),
        ("crossmem.client", "crossmem.api", CLIENT),
        ("crossmem.run.table_files", "crossmem.api", CLIENT),
        ("crossmem.run.episode", "crossmem.api", CLIENT),
        ("crossmem.memory", "crossmem.api", CLIENT),
        ("crossmem.api", "crossmem.memory", SERVER),
        ("crossmem.domains", "crossmem.api", CORE),
        ("crossmem.run.episode", "crossmem.analysis.figures", CORE),
        ("crossmem.run.table_files", "crossmem.upstream", CORE),
        ("crossmem.api", "crossmem.upstream", SERVER),
        ("crossmem.memory", "crossmem.experience", EXPERIENCE),
        ("crossmem.study", "crossmem.experience", EXPERIENCE),
        ("crossmem.contract", "crossmem.memory", ARROWS),
        ("crossmem.domains", "crossmem.run.episode", ARROWS),
    ],
)
def test_an_import_across_a_wall_is_reported(
    copy: Path, importer: str, imported: str, wall: str
) -> None:
    add_import(copy, importer, imported)

    assert f"{wall} BROKEN" in lint(copy)


def test_a_wall_crossed_by_a_detour_is_reported(copy: Path) -> None:
    (copy / "crossmem" / "detour.py").write_text("import crossmem.api\n", encoding="utf-8")
    add_import(copy, "crossmem.memory", "crossmem.detour")

    assert f"{CLIENT} BROKEN" in lint(copy)
