"""The embedded reference API, a real HTTP server on loopback: which domains it has and their data.

A domain is a module or package of this one that exports `DOMAIN`, and a folder of tables of the same
name under `data/`. Importing this package loads neither FastAPI nor uvicorn: `crossmem.api.server`
does, when a server is wanted.

Nothing in here knows of a memory, an agent or a harness. What a client learns of this server, it
reads from an HTTP response.
"""

from __future__ import annotations

from pathlib import Path

from crossmem.errors import unknown

_DATA = Path(__file__).parent / "data"


def domain_names() -> list[str]:
    """Return the names of the domains in order: those of the folders of tables.

    >>> domain_names()
    ['acme', 'recipe']
    """
    return sorted(folder.name for folder in _DATA.iterdir() if folder.is_dir())


def tables_of(domain: str) -> Path:
    """Return the packaged table folder of `domain`; read-only for callers, who serve a copy.

    Each table is `<table>.json`; its snapshots are `<table>.snapshots/<name>.json`.

    Raises InputError for an unknown domain.

    >>> tables_of("recipe").name
    'recipe'
    """
    names = domain_names()
    if domain not in names:
        raise unknown("domain", domain, names)
    return _DATA / domain
