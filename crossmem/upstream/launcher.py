"""Run in the user's Python, by path: serve an ASGI app, and end when the study that started it is gone.

Standard library and the user's uvicorn only. Arguments: `module:app`, the folder to import it from,
the descriptor of a bound socket. Standard input is a pipe from the study; its end means that the study
is no more, however it went, and the whole process group is killed.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main() -> None:
    """Serve until the pipe ends."""
    app, folder, bound = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.path[0] = folder  # in place of this script's own: the copy comes first
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import uvicorn

    # Without IPPROTO_TCP uvicorn leaves Nagle's algorithm on, at 45 ms a request.
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=bound)
    server.set_inheritable(False)
    uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="info")).run(sockets=[server])


if __name__ == "__main__":
    main()
