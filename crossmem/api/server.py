"""A reference API that runs: in a thread for the study, in the foreground for a person."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import click
import uvicorn

from crossmem.api import tables_of
from crossmem.api.app import create_app
from crossmem.errors import CrossmemError, InputError

HOST = "127.0.0.1"
# An agent that thinks for minutes must not find its pooled connection closed under it.
KEEP_ALIVE_SECONDS = 3600
# A request still running at this point of a stop is cancelled.
GRACE_SECONDS = 5


class Server:
    """One running reference API. Made by `serving`; shares nothing with other servers.

    Its thread is a daemon: whatever happens, it ends with the process.
    """

    def __init__(self, domain: str, tables: Path, port: int = 0) -> None:
        """Start it, and return when it answers; `port` 0 takes a free one."""
        self.admin_token = secrets.token_urlsafe(24)
        """What `/admin/reload` wants in X-Admin-Token: fresh, and in no repr."""
        app = create_app(domain, tables, self.admin_token)
        self._socket = _bound_socket(port)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        """Where it answers, as `http://127.0.0.1:PORT`."""
        self._failure: BaseException | None = None
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                app,
                # What is installed beside crossmem must not change what a run measures.
                http="h11",
                loop="asyncio",
                ws="none",
                lifespan="off",
                # Logging is the process's matter: a server in a thread leaves it alone.
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
        )
        self._thread = threading.Thread(target=self._run, name=f"api {self.url}", daemon=True)
        self._thread.start()
        try:
            self._wait_until_ready()
        except BaseException:  # Ctrl-C while it starts must not leave it behind
            self.stop()
            raise

    def __repr__(self) -> str:
        return f"<Server {self.url} {'running' if self.alive else 'stopped'}>"

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """Return when it has stopped, or after `seconds`."""
        self._thread.join(seconds)

    def stop(self) -> None:
        """Stop it for good: finish the requests in flight, free the port. Idempotent.

        Raises CrossmemError if it does not end in time, which a hung request cannot cause.
        """
        self._uvicorn.should_exit = True
        self._thread.join(2 * GRACE_SECONDS)
        self._socket.close()
        if self.alive:
            raise CrossmemError(f"the API server at {self.url} does not stop")

    def _run(self) -> None:
        # uvicorn ends a failed start-up with SystemExit, which a thread would swallow.
        try:
            self._uvicorn.run(sockets=[self._socket])
        except BaseException as error:  # handed to the thread that waits for the start
            self._failure = error

    def _wait_until_ready(self) -> None:
        while not self._uvicorn.started:
            if not self.alive:
                raise CrossmemError(f"the API server did not start: {self._failure!r}")
            time.sleep(0.001)


@contextlib.contextmanager
def serving(domain: str, tables: Path) -> Iterator[Server]:
    """Run a server for `domain` over the table folder `tables` while the block runs.

    `tables` holds the `<table>.json` files of the domain and is this server's own: the caller
    copies the packaged folder (`tables_of`), swaps files in it and asks for a reload. The server
    has stopped when the block is left, by an exception too.

    Raises InputError for an unknown domain, and CrossmemError with the reason if it cannot start.
    """
    server = Server(domain, tables)
    try:
        yield server
    finally:
        server.stop()


def serve(domain: str, port: int, tables: Path | None = None) -> None:
    """Run a server in the foreground for a person to explore, until Ctrl-C.

    It serves a temporary copy of the packaged tables, or the folder `tables` itself; `port` 0
    takes a free port.

    Raises InputError if the port cannot be had or the domain is unknown.
    """
    with contextlib.ExitStack() as stack:
        if tables is None:
            temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="crossmem-"))
            tables = Path(shutil.copytree(tables_of(domain), Path(temporary) / domain))
        server = Server(domain, tables, port)
        stack.callback(server.stop)
        click.echo(_greeting(server, tables))
        # Ctrl-C is how this ends, not an error.
        with contextlib.suppress(KeyboardInterrupt):
            while server.alive:
                server.wait(0.5)
        click.echo("stopped")


def _greeting(server: Server, tables: Path) -> str:
    drifting = next(iter(sorted(tables.glob("*.snapshots/2.0.0.json"))), None)
    lines = [
        f"serving      {server.url}",
        f"docs         {server.url}/docs",
        f"tables       {tables}",
        f"admin token  {server.admin_token}",
        "",
        "Swap a table file, then have it read:",
        "",
    ]
    if drifting is not None:
        table = drifting.parent.name.removesuffix(".snapshots")
        lines.append("  " + shlex.join(["cp", str(drifting), str(tables / f"{table}.json")]))
    lines += [
        f"  curl -X POST -H 'X-Admin-Token: {server.admin_token}' {server.url}/admin/reload",
        "",
        "Ctrl-C stops it.",
    ]
    return "\n".join(lines)


def _bound_socket(port: int) -> socket.socket:
    # asyncio turns Nagle's algorithm off only for sockets that say IPPROTO_TCP: 45 ms a request.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    if os.name == "posix":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
        # A port that another server bound at the same moment shows here, not later in the thread.
        bound.listen()
    except (OSError, OverflowError) as error:
        bound.close()
        reason = error.strerror if isinstance(error, OSError) else "must be 0-65535"
        raise InputError(f"port {port} cannot be used: {reason}") from None
    return bound
