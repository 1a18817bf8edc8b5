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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from crossmem import paths
from crossmem.agents.retry import StoppedError
from crossmem.api.payments.access import KEY_VARIABLE
from crossmem.client import NotServedError, ServerGoneError
from crossmem.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from threading import Event

    from crossmem.upstream.profile import Server

START_S = 60.0
END_S = 3.0
_SHOWN_LINES = 15
_SECRET_NAME = re.compile(r"_(API_KEY|AUTH_TOKEN|SECRET_KEY)$")
_LIVE_STRIPE_KEY = re.compile(r"(sk|rk)_live_")


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
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InputError(f"api_python: cannot run {given}: {reason}") from None
    if asked.returncode:
        last = (asked.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        raise InputError(f"api_python: {given} cannot import uvicorn, which serves the API ({last})")
    return named


@contextmanager
def running(
    server: Server, python: str, copy: Path, log: Path, stop: Event, *, stripe: bool
) -> Iterator[tuple[str, str]]:
    """Serve the app from `copy` and yield its address and admin token; it has ended after the block.

    What it prints is appended to `log`; `stop` ends the wait for its start. With `stripe` it is given
    the key of Stripe's test mode and our stand-in for the package that it takes the sandbox from.

    Raises NotServedError with the last lines of the log where the app does not start, and adds them to
    a ServerGoneError of the block.
    """
    token = secrets.token_urlsafe(24)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output, contextlib.ExitStack() as ending:
        # Bound here: the address is known, and nobody else can take it in between.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as bound:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(("127.0.0.1", server.port))
            port = bound.getsockname()[1]
            launcher = Path(__file__).with_name("launcher.py")
            process = subprocess.Popen(  # noqa: S603
                [python, launcher, server.app, copy / server.path, str(bound.fileno())],
                cwd=copy / server.cwd,
                env=_environment(server, token, copy, stripe=stripe),
                stdin=subprocess.PIPE,  # the launcher ends with it
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[bound.fileno()],
                start_new_session=True,
            )
        ending.callback(_end, process)
        url = f"http://127.0.0.1:{port}"
        _wait_until_up(process, f"{url}{server.health}", stop, log)
        try:
            yield url, token
        except ServerGoneError as error:
            raise ServerGoneError(f"{error}; {_tail(log)}") from error


def _environment(server: Server, token: str, copy: Path, *, stripe: bool) -> dict[str, str]:
    """The caller's environment without what looks like a secret; the copy comes first on the path."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not (_SECRET_NAME.search(name) or _LIVE_STRIPE_KEY.match(value))
        or (stripe and name == KEY_VARIABLE)
    }
    places = [str(copy / server.path), kept.get("PYTHONPATH", "")]
    if stripe:
        places.insert(1, str(paths.root() / "acme_compat"))
    written = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        server.token_variable: token,
    }
    return {**kept, **server.env, **written}


def check_port(port: int) -> None:
    """Raise InputError where a port that is not 0 is taken."""
    with socket.socket() as probe:
        if port and probe.connect_ex(("127.0.0.1", port)) == 0:
            raise InputError(f"port {port} of the profile is taken; leave it out for a free one")


def _wait_until_up(process: subprocess.Popen[bytes], url: str, stop: Event, log: Path) -> None:
    """Poll until the app answers anything at all."""
    deadline = time.monotonic() + START_S
    with httpx.Client(trust_env=False, timeout=2.0) as http:
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise NotServedError(f"the API did not start (exit {process.returncode}); {_tail(log)}")
            with contextlib.suppress(httpx.TransportError):
                http.get(url)
                return
            if stop.wait(0.05):
                raise StoppedError("stopped while the API was starting")
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
