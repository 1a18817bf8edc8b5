"""Packaging: pyproject.toml, the lock, environment.yml, the Makefile and the wheel say the same.

Run as a script (`make lock` does) this writes environment.yml from the other two.
"""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
RUNTIME = [Requirement(line) for line in PROJECT["dependencies"]]
DEV = [Requirement(line) for line in PROJECT["optional-dependencies"]["dev"]]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
PYTHONS = ["3.11.0", "3.11.9", "3.12.0", "3.12.9", "3.13.0", "3.13.9"]

ENVIRONMENT = """\
# For conda users; written by `make lock` from pyproject.toml and requirements.lock.
name: crossmem
channels:
  - conda-forge
dependencies:
  - python=3.12
  - pip
  - pip:
      # conda runs pip on these lines in this folder: both paths start here.
      - -c requirements.lock
      - -e .
"""


def version_of(pin: Requirement) -> Version:
    (specifier,) = pin.specifier
    assert specifier.operator == "=="
    return Version(specifier.version)


def locked(python: str = "") -> dict[str, Version]:
    """Return the version of each package that the lock names here, or for a CPython on Linux."""
    environment: dict[str, str] = {}
    if python:
        environment = {
            "python_version": python.rpartition(".")[0],
            "python_full_version": python,
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "sys_platform": "linux",
        }
    pins: dict[str, Version] = {}
    for pin in map(Requirement, LOCK):
        if pin.marker is None or pin.marker.evaluate(dict(environment)):
            name = canonicalize_name(pin.name)
            assert name not in pins, f"{name} is pinned twice for Python {python}"
            pins[name] = version_of(pin)
    return pins


def environment_yml() -> str:
    """Return the text of environment.yml as pyproject.toml and the lock would have it."""
    pins = locked("3.12.0")
    names = sorted(canonicalize_name(requirement.name) for requirement in RUNTIME)
    return ENVIRONMENT + "".join(f"      - {name}=={pins[name]}\n" for name in names)


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_holds_an_admitted_version_of_each_dependency(python: str) -> None:
    pins = locked(python)
    for requirement in RUNTIME + DEV:
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} against {version}"


def test_each_line_of_the_lock_is_one_exact_version_and_no_address() -> None:
    for line in LOCK:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.+]*( ; [^/@]+)?", line), line


def test_pyproject_and_the_makefile_ask_for_the_same_pythons() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert PROJECT["requires-python"] == ">=3.11,<3.14"
    assert "(3, 11) <= sys.version_info[:2] <= (3, 13)" in makefile
    assert "--python-version 3.11 " in makefile


def test_what_is_installed_is_what_the_lock_says() -> None:
    pins = locked()
    seen = {("crossmem", frozenset({"dev"}))}
    todo = list(seen)
    wrong = []
    while todo:
        name, extras = todo.pop()
        for needed in map(Requirement, importlib.metadata.requires(name) or []):
            applies = needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in extras | {""}
            )
            node = (canonicalize_name(needed.name), frozenset(needed.extras))
            if applies and node not in seen:
                seen.add(node)
                todo.append(node)
                installed = Version(importlib.metadata.version(node[0]))
                if pins.get(node[0]) != installed:
                    wrong.append(f"{node[0]} {installed}, locked: {pins.get(node[0])}")

    assert not wrong
    assert len(seen) > len(RUNTIME) + len(DEV)


def test_environment_yml_pins_the_runtime_dependencies_as_locked() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    python, pip, section = environment["dependencies"]
    options = [line for line in section["pip"] if line.startswith("-")]
    pins = [Requirement(line) for line in section["pip"] if not line.startswith("-")]
    pinned = {canonicalize_name(pin.name): version_of(pin) for pin in pins}

    assert (environment["name"], python, pip) == ("crossmem", "python=3.12", "pip")
    assert options == ["-c requirements.lock", "-e ."]
    assert pinned.keys() == {canonicalize_name(requirement.name) for requirement in RUNTIME}
    assert pinned.items() <= locked("3.12.0").items()


def test_environment_yml_is_as_make_lock_writes_it() -> None:
    assert (ROOT / "environment.yml").read_text(encoding="utf-8") == environment_yml()


def test_the_version_stands_in_one_place_and_is_the_one_to_cite() -> None:
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    assert PYPROJECT["tool"]["hatch"]["version"]["path"] == "crossmem/__init__.py"

    module = ast.parse((ROOT / "crossmem" / "__init__.py").read_text(encoding="utf-8"))
    (version,) = [
        ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    ]
    assert str(Version(version)) == version
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == version


def test_importing_crossmem_imports_nothing_heavy() -> None:
    command = [sys.executable, "-c", "import sys, crossmem; print(*sys.modules)"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(run.stdout.split())

    assert "crossmem" in loaded
    heavy = {"fastapi", "httpx", "matplotlib", "numpy", "pandas", "papermill", "scipy", "seaborn"}
    assert not heavy & loaded


@pytest.mark.parametrize(
    "target", ["study", "test", "lint", "picture", "local", "bench", "lock", "clean"]
)
def test_make_knows_and_lists_the_target(target: str) -> None:
    subprocess.run(["make", "--dry-run", target], cwd=ROOT, capture_output=True, check=True)
    listing = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search(rf"^make {target} +\w", listing.stdout, re.MULTILINE)


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(tmp_path)]
    subprocess.run([*pip_wheel, str(ROOT)], check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("crossmem-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("crossmem/")}

    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "crossmem").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == files


if __name__ == "__main__":
    (ROOT / "environment.yml").write_text(environment_yml(), encoding="utf-8")
