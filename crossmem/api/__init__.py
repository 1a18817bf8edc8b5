"""The embedded reference API, a real HTTP server on loopback: which domains it has and their data.

A domain is one module, one folder of tables under `data/` and one row here. Importing this package
loads neither FastAPI nor uvicorn: `crossmem.api.server` does, when a server is wanted.

Nothing in here knows of a memory, an agent or a harness. What a client learns of this server, it
reads from an HTTP response.
"""

from __future__ import annotations

from pathlib import Path

from crossmem.errors import unknown

DOMAINS = {"recipe": "crossmem.api.recipe", "acme": "crossmem.api.acme"}
"""Name of each domain -> the module that holds its request models, rules and routes."""


def tables_of(domain: str) -> Path:
    """Return the packaged table folder of `domain`; read-only for callers, who serve a copy.

    Each table is `<table>.json`; its snapshots are `<table>.snapshots/<name>.json`.

    Raises InputError for an unknown domain.

    >>> tables_of("recipe").name
    'recipe'
    """
    if domain not in DOMAINS:
        raise unknown("domain", domain, DOMAINS)
    return Path(__file__).parent / "data" / domain
