"""The command line: what it says of itself, and that its errors are one line."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner

import crossmem as package
from crossmem import paths
from crossmem.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

TOOL = str(Path(sys.executable).with_name("crossmem"))
COMMANDS = ("streams", "audit", "serve", "report", "publish")


def crossmem(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def one_line(answer: Result) -> str:
    """Return the single line of a refusal."""
    assert answer.exit_code == 2
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    return line


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command_with_what_it_does(flag: str) -> None:
    answer = crossmem(flag)
    assert answer.exit_code == 0
    described = {
        line.split()[0]: line.split()[1:]
        for line in answer.stdout.partition("Commands:")[2].splitlines()
        if line.strip()
    }
    assert set(COMMANDS) <= set(described)
    assert all(described.values())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    answer = crossmem(command, "--help")
    assert answer.exit_code == 0
    assert answer.stdout.startswith(f"Usage: main {command}")
    assert "Options:" in answer.stdout


def test_the_version_is_the_packages() -> None:
    assert package.__version__ in crossmem("--version").stdout


def test_without_a_command_the_help_is_shown() -> None:
    assert "Commands:" in crossmem().output


def test_an_unknown_command_is_refused() -> None:
    answer = crossmem("repot")
    assert answer.exit_code == 2
    assert "No such command 'repot'" in answer.stderr


def test_help_loads_neither_pandas_nor_a_web_framework() -> None:
    code = (
        "import sys; from crossmem.cli import main; main(['--help'], standalone_mode=False); "
        "sys.exit(str({'pandas', 'fastapi', 'matplotlib', 'papermill'} & set(sys.modules) or ''))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.stderr.strip() == ""


# -- serve ---------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `crossmem serve recipe` on a free port; yield the process and its address."""
    command = [TOOL, "serve", "recipe", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("serving"), first
        yield process, first.split()[-1]
    finally:
        process.kill()
        process.communicate(timeout=30)


def test_serve_answers_and_stops_on_ctrl_c(served: tuple[subprocess.Popen[str], str]) -> None:
    process, url = served
    health = httpx.get(f"{url}/healthz")
    assert health.is_success
    assert health.json()["domain"] == "recipe"
    assert httpx.get(f"{url}/openapi.json").is_success
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert rest.endswith("stopped\n")
    assert errors == ""
    assert time.monotonic() - started < 10
    with socket.socket() as probe:
        assert probe.connect_ex((urlsplit(url).hostname, urlsplit(url).port)) != 0


def test_a_port_in_use_is_one_line(served: tuple[subprocess.Popen[str], str]) -> None:
    port = str(urlsplit(served[1]).port)
    said = one_line(crossmem("serve", "recipe", "--port", port))
    assert said == f"crossmem: port {port} cannot be used: Address already in use"


def test_an_unknown_domain_is_one_line_with_the_choices() -> None:
    said = one_line(crossmem("serve", "recipee"))
    assert said.startswith(
        "crossmem: unknown domain 'recipee'; did you mean 'recipe'? Choices: acme, recipe"
    )


@pytest.mark.parametrize("port", ["70000", "-1"])
def test_a_port_that_does_not_exist_is_one_line(port: str) -> None:
    assert f"port {port} cannot be used" in one_line(crossmem("serve", "recipe", "--port", port))


def test_a_port_that_is_no_number_is_refused() -> None:
    answer = crossmem("serve", "recipe", "--port", "http")
    assert answer.exit_code == 2
    assert "'http' is not a valid integer" in answer.stderr


# -- report --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["phase11", "phase11.ipynb", "notebooks/phase11.ipynb", "phase1.txt"])
def test_an_unknown_notebook_is_one_line_with_the_choices(name: str) -> None:
    said = one_line(crossmem("report", name))
    assert said.startswith(f"crossmem: unknown notebook {name!r};")
    assert "phase1" in said.partition("Choices: ")[2]


def test_a_path_to_something_else_is_no_notebook(tmp_path: Path) -> None:
    (tmp_path / "phase1.txt").write_text("x")
    assert "unknown notebook" in one_line(crossmem("report", str(tmp_path / "phase1.txt")))


def test_a_parameter_without_a_value_is_refused() -> None:
    answer = crossmem("report", "phase1", "-p", "mock")
    assert answer.exit_code == 2
    assert "requires 2 arguments" in answer.stderr


def test_a_report_that_cannot_be_written_is_said_before_anything_runs(
    tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossmem.report.execute.report", lambda *_: pytest.fail("it ran"))
    (tmp_path / "file").write_text("in the way")
    html = tmp_path / "file" / "page.html"
    said = one_line(crossmem("report", "phase1", "-p", "mock", "True", "-o", str(html)))
    assert f"cannot write to {html.parent}: " in said
    assert not results.exists()


def test_a_report_that_cannot_be_written_is_not_blamed_on_the_results_folder(
    tmp_path: Path, results: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    html = tmp_path / "file" / "page.html"
    said = one_line(crossmem("report", "phase1", "-p", "mock", "True", "-o", str(html)))
    assert paths.RESULTS_VARIABLE not in said
