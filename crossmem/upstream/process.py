"""The process that serves a private copy: started, waited for, and ended on every way out."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import httpx

from crossmem import paths
from crossmem.agents.retry import StoppedError
from crossmem.client import NotServedError, ServerGoneError
from crossmem.errors import InputError

if TYPE_CHECKING:
    from crossmem.upstream.profile import Server

START_S = 60.0
END_S = 3.0
_SHOWN_LINES = 15
_SECRET_NAME = re.compile(r"_(API_KEY|AUTH_TOKEN|SECRET_KEY)$")
_LIVE_STRIPE_KEY = re.compile(r"(sk|rk)_live_")


@dataclass(frozen=True)
class Serving:
    """How copies are served: by which Python, with what on its path after the copy, which keys."""

    server: Server
    python: str
    after: tuple[Path, ...] = ()
    keys: frozenset[str] = frozenset()
    """Variables of the environment that the app is given although they look like secrets."""
    stop: Event = field(default_factory=Event)
    """Ends the wait for an app that takes its time."""


def interpreter(given: str) -> str:
    """Return the Python to serve with, "" meaning this one.

    Raises InputError where it cannot be run or lacks uvicorn.
    """
    if not given:
        return sys.executable
    # Not resolved: in a virtual environment it is a link, and the link is what counts.
    named = str(paths.given(given).absolute()) if os.sep in given else shutil.which(given) or given
    try:
        asked = subprocess.run(  # noqa: S603
            [named, "-c", "import uvicorn"], capture_output=True, check=False, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"api_python: cannot run {given}: {_reason(error)}") from None
    if asked.returncode:
        last = (asked.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        raise InputError(f"api_python: {given} cannot import uvicorn, which serves the API ({last})")
    return named


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


@contextmanager
def running(how: Serving, copy: Path, log: Path) -> Iterator[tuple[str, str]]:
    """Serve the app from `copy` and yield its address and admin token; it has ended after the block.

    What it prints is appended to `log`. Raises NotServedError with the last lines of the log where the
    app does not start, and adds them to a ServerGoneError of the block.
    """
    server = how.server
    check_port(server.port)
    token = secrets.token_urlsafe(24)
    folder = copy / server.path
    log.parent.mkdir(parents=True, exist_ok=True)
    port_file = log.with_suffix(".port")
    launcher = Path(__file__).with_name("launcher.py")
    arguments = [launcher, server.app, folder, server.port, port_file]
    command = [how.python, *map(str, arguments)]
    with log.open("ab") as output, contextlib.ExitStack() as ending:
        ending.callback(port_file.unlink, missing_ok=True)
        port_file.unlink(missing_ok=True)
        process = subprocess.Popen(  # noqa: S603
            command,
            cwd=copy / server.cwd,
            env=_environment(how, token, folder),
            stdin=subprocess.PIPE,  # the launcher ends with it
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        ending.callback(_end, process)
        try:
            yield _ready(process, port_file, how, log), token
        except ServerGoneError as error:
            raise ServerGoneError(f"{error}; {_tail(log)}") from error


def _environment(how: Serving, token: str, folder: Path) -> dict[str, str]:
    """The caller's environment without what looks like a secret; the copy comes first on the path."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if (name in how.keys or not _SECRET_NAME.search(name)) and not _LIVE_STRIPE_KEY.match(value)
    }
    places = [*map(str, (folder, *how.after)), *filter(None, [kept.get("PYTHONPATH")])]
    written = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(places),
        how.server.token_variable: token,
    }
    return {**kept, **how.server.env, **written}


def check_port(port: int) -> None:
    """Raise InputError where a port that is not 0 is taken."""
    if port == 0:
        return
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise InputError(f"port {port} of the profile is taken; leave it out for a free one")


def _ready(process: subprocess.Popen[bytes], port_file: Path, how: Serving, log: Path) -> str:
    """Poll until the app answers anything at all; return its address."""
    deadline = time.monotonic() + START_S
    with httpx.Client(trust_env=False, timeout=2.0) as http:
        while time.monotonic() < deadline:
            if how.stop.is_set():
                raise StoppedError("stopped while the API was starting")
            if process.poll() is not None:
                raise NotServedError(f"the API did not start (exit {process.returncode}); {_tail(log)}")
            if port_file.exists():
                url = f"http://127.0.0.1:{port_file.read_text()}"
                with contextlib.suppress(httpx.TransportError):
                    http.get(f"{url}{how.server.health}")
                    return url
            time.sleep(0.05)
    raise NotServedError(f"the API did not answer within {START_S:.0f} s; {_tail(log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN_LINES:]
    said = "\n  ".join(lines) or "(it logged nothing)"
    return f"the last lines of {paths.shown(log)}:\n  {said}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole process group: its leader gently, what that leaves behind for good."""
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
    _signal(process, signal.SIGKILL)
    process.wait()
    if process.stdin:
        process.stdin.close()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS has the latter for zombies
        os.killpg(process.pid, number)
