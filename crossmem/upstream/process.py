"""The process that serves a private copy: started, waited for, and ended on every way out."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from crossmem import paths
from crossmem.errors import CrossmemError, InputError

if TYPE_CHECKING:
    from crossmem.upstream.profile import Server

START_S = 60.0
_SHOWN_LINES = 15


@contextmanager
def running(
    server: Server, copy: Path, python: str, log: Path, extra_path: list[Path]
) -> Iterator[tuple[str, str]]:
    """Serve the app from `copy` and yield its address and admin token; it has ended after the block.

    `python` is the user's interpreter ("" = this one). The copy is first on its path, then
    `extra_path`. Raises CrossmemError with the last lines of its log where it does not start.
    """
    _check_port(server.port)
    token = secrets.token_urlsafe(24)
    folder = copy / server.path
    port_file = log.with_suffix(".port")
    port_file.unlink(missing_ok=True)
    environment = _environment(server, token, [folder, *extra_path])
    launcher = Path(__file__).with_name("launcher.py")
    command = [python or sys.executable, str(launcher), server.app, str(server.port), str(port_file)]
    with log.open("wb") as output, contextlib.ExitStack() as ending:
        try:
            process = subprocess.Popen(  # noqa: S603
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,  # the launcher ends with it
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise InputError(f"api_python: cannot run {command[0]}: {error.strerror}") from None
        ending.callback(_end, process)
        yield _ready(process, port_file, server.health, log), token


def _environment(server: Server, token: str, first: list[Path]) -> dict[str, str]:
    """The caller's environment, without provider keys; the copy comes first on the path."""
    hidden = {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"}
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    path = os.pathsep.join([*map(str, first), *filter(None, [kept.get("PYTHONPATH")])])
    written = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    return {**kept, **server.env, **written, "PYTHONPATH": path, server.token_variable: token}


def _check_port(port: int) -> None:
    if port == 0:
        return
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise InputError(f"upstream.toml: port {port} is taken; leave it out for a free one")


def _ready(process: subprocess.Popen[bytes], port_file: Path, health: str, log: Path) -> str:
    """Poll until the app answers anything at all; return its address."""
    deadline = time.monotonic() + START_S
    with httpx.Client(trust_env=False, timeout=2.0) as http:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise CrossmemError(f"the API did not start (exit {process.returncode}): {_tail(log)}")
            if port_file.exists():
                url = f"http://127.0.0.1:{port_file.read_text()}"
                with contextlib.suppress(httpx.TransportError):
                    http.get(f"{url}{health}")
                    return url
            time.sleep(0.05)
    raise CrossmemError(f"the API did not answer within {START_S:.0f} s: {_tail(log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:]
    said = "\n  ".join(lines) or "(it logged nothing)"
    return f"the last lines of {paths.shown(log)}:\n  {said}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group, gently first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=3.0)
            break
    if process.stdin:
        process.stdin.close()
