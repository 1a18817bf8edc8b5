"""An application that runs: uvicorn in a thread of its own, on loopback, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time

import uvicorn
from fastapi import FastAPI

from crossmem.errors import CrossmemError, InputError

HOST = "127.0.0.1"
# An agent that thinks for minutes must not find its pooled connection closed under it.
KEEP_ALIVE_SECONDS = 3600
# A request still running at this point of a stop is cancelled.
GRACE_SECONDS = 5


class _Uvicorn(uvicorn.Server):
    """uvicorn that ends when told to; its own sleeps 0.17 s first, and an arm has up to two servers."""

    loop: asyncio.AbstractEventLoop | None = None
    ending: asyncio.Event

    async def main_loop(self) -> None:
        self.ending = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        if not self.should_exit:  # told before it had a loop
            await self.ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listening in sockets or []:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()  # at once where it is idle, else after the answer
        with contextlib.suppress(TimeoutError):  # what then still runs is cancelled as the loop ends
            async with asyncio.timeout(GRACE_SECONDS):
                while self.server_state.connections or self.server_state.tasks:
                    await asyncio.sleep(0.005)


class AppThread:
    """One running application; shares nothing with others.

    Its thread is a daemon: whatever happens, it ends with the process.
    """

    def __init__(self, app: FastAPI, name: str, port: int = 0) -> None:
        """Start it, and return when it answers; `port` 0 takes a free one.

        Raises InputError if the port cannot be had, and CrossmemError, which says `name`, with the
        reason if it does not start.
        """
        self._name = name
        self._socket = _bound_socket(port)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}"
        """Where it answers, as `http://127.0.0.1:PORT`."""
        self._failure: BaseException | None = None
        self._uvicorn = _Uvicorn(
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
            )
        )
        self._thread = threading.Thread(target=self._run, name=f"{name} {self.url}", daemon=True)
        self._thread.start()
        try:
            while self.alive and not self._uvicorn.started:
                time.sleep(0.001)
        except BaseException:  # Ctrl-C while it starts must not leave it behind
            self.stop()
            raise
        if not self._uvicorn.started:
            self._socket.close()
            raise CrossmemError(f"the {name} did not start: {self._failure!r}")

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
        if self._uvicorn.loop is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                self._uvicorn.loop.call_soon_threadsafe(self._uvicorn.ending.set)
        self._thread.join(2 * GRACE_SECONDS)
        self._socket.close()
        if self.alive:
            raise CrossmemError(f"the {self._name} at {self.url} does not stop")

    def _run(self) -> None:
        # uvicorn ends a failed start-up with SystemExit, which a thread would swallow.
        try:
            self._uvicorn.run(sockets=[self._socket])
        except BaseException as error:  # handed to the thread that waits for the start
            self._failure = error


def _bound_socket(port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise InputError(f"port {port} cannot be used: must be 0-65535")
    try:
        # It listens: a port that another server bound at the same moment shows here, not in the thread.
        bound = socket.create_server((HOST, port))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise InputError(f"port {port} cannot be used: {reason}") from None
    # asyncio turns Nagle's algorithm off only for sockets that say IPPROTO_TCP: 45 ms a request.
    return socket.socket(bound.family, bound.type, socket.IPPROTO_TCP, bound.detach())
