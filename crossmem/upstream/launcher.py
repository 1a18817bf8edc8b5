"""Run in the user's Python, by path: serve an ASGI app, and end when the study that started it is gone.

Standard library and the user's uvicorn only. Arguments: `module:app`, the folder to import it from, a
port (0 = a free one), a file to write the port to. Standard input is a pipe from the study; its end
means that the study is no more, however it went, and the whole process group is killed.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main() -> None:
    """Serve until the pipe ends."""
    app, folder, port, port_file = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    sys.path[0] = folder  # in place of this script's own: the copy comes first
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import uvicorn

    # Without IPPROTO_TCP uvicorn leaves Nagle's algorithm on, at 45 ms a request.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    draft = port_file.with_suffix(".draft")
    draft.write_text(str(bound.getsockname()[1]))
    draft.replace(port_file)
    uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="info")).run(sockets=[bound])


if __name__ == "__main__":
    main()
