"""Where things are in a checkout: read from `upstream.toml`, or discovered.

A profile says how the app is started, where table files and snapshots lie, and which paths stand for
ours. It is looked for in the checkout and, since that may not be the user's to write, may also be named
beside it as `<checkout>.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crossmem.client import Routes
from crossmem.errors import InputError

NAME = "upstream.toml"
_EXPECTED = {
    "phase1": "feature/versionable-tables",
    "phase2": "feature/drift-snapshots-and-table-diff",
    "phase3": "feature/drift-snapshots-and-table-diff",
    "acme": "v0.2.0",
}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Server(_Part):
    """How the app is started: an ASGI app `module:name`, importable from `path` inside the checkout."""

    app: str = Field(pattern=r"^[\w.]+:\w+$")
    path: str = "."
    health: str = "/healthz"
    port: int = Field(0, ge=0, le=65535)
    token_variable: str = "ADMIN_TOKEN"  # noqa: S105
    """Environment variable in which the app takes its admin token."""
    env: dict[str, str] = Field(default_factory=dict)


class Tables(_Part):
    """Where table files and snapshots lie; `{table}` and `{name}` stand for the table and snapshot."""

    file: str = "tables/{table}.json"
    snapshot: str = "tables/{table}.snapshots/{name}.json"
    version: str = "version"
    rows: str = "rows"
    """Members of a table file that hold its version and its rows."""


class Paths(_Part):
    """Paths of theirs: `endpoints` maps ours to theirs; without `versions` none can be read."""

    endpoints: dict[str, str] = Field(default_factory=dict)
    reload: str = "/admin/reload"
    token_header: str = "X-Admin-Token"  # noqa: S105
    versions: str | None = None

    def routes(self) -> Routes:
        """Return them as the client takes them."""
        return Routes(**self.model_dump())


class Profile(_Part):
    """A whole profile. `ref` is the branch or tag expected; `include` names ignored files to copy."""

    server: Server
    tables: Tables = Tables()
    paths: Paths = Paths()
    ref: str | None = None
    include: list[str] = Field(default_factory=list)

    def expected_ref(self, phase: str) -> str | None:
        """Return the branch or tag that a phase is meant to run against."""
        return self.ref or _EXPECTED.get(phase)


def load(checkout: Path, tables: Iterable[str]) -> Profile:
    """Return the profile of a checkout that holds `tables`, from its file or by discovery.

    Raises InputError where the file is wrong or names what is not there, and where discovery fails,
    listing what was looked for.
    """
    for path in (checkout / NAME, checkout.with_name(f"{checkout.name}.toml")):
        if path.is_file():
            profile = _read(path)
            _check(profile, checkout, tables, path)
            return profile
    return _discover(checkout, list(tables))


def _read(path: Path) -> Profile:
    try:
        return Profile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {where}: {first['msg']}") from None


def _check(profile: Profile, checkout: Path, tables: Iterable[str], path: Path) -> None:
    missing = [
        place
        for table in tables
        if not (checkout / (place := profile.tables.file.format(table=table))).is_file()
    ]
    module = profile.server.app.partition(":")[0].replace(".", "/")
    places = [f"{profile.server.path}/{module}{ending}" for ending in (".py", "/__init__.py")]
    if not any((checkout / place).is_file() for place in places):
        missing.append(places[0])
    if missing:
        raise InputError(f"{path} names what {checkout} does not have: {', '.join(missing)}")


_APP = re.compile(r"^(\w+)(?:\s*:[^=]+)?\s*=\s*(?:\w+\.)?(?:FastAPI|Starlette)\(", re.MULTILINE)
_SKIPPED = {"tests", "test", "node_modules", ".git", ".venv", "venv"}


def _discover(checkout: Path, tables: list[str]) -> Profile:
    """Look for one ASGI app and for the table files, in the usual manner of such repositories."""
    python = [
        path
        for path in sorted(checkout.rglob("*.py"))
        if not _SKIPPED & set(path.relative_to(checkout).parts)
    ]
    apps = [
        (path, found[1])
        for path in python
        if (found := _APP.search(path.read_text(encoding="utf-8", errors="replace")))
    ]
    files = {table: sorted(checkout.rglob(f"{table}.json")) for table in tables}
    looked = [
        f"a profile ({NAME} in it, or {checkout.name}.toml beside it)",
        f"one module that makes a FastAPI app at its top level (found {len(apps)})",
        *(f"{table}.json (found {len(found)})" for table, found in files.items()),
    ]
    if len(apps) != 1 or any(len(found) != 1 for found in files.values()):
        raise InputError(f"{checkout}: cannot tell how to run it. Looked for: {'; '.join(looked)}")
    path, name = apps[0]
    top, module = _module(path, checkout)
    where = {found[0].parent.relative_to(checkout) for found in files.values()}
    if len(where) != 1:
        raise InputError(f"{checkout}: its tables lie in several folders; write {NAME}")
    folder = where.pop()
    return Profile(
        server=Server(app=f"{module}:{name}", path=str(top.relative_to(checkout)) or "."),
        tables=Tables(
            file=f"{folder}/{{table}}.json", snapshot=_snapshots(checkout / folder, checkout, tables)
        ),
    )


def _module(path: Path, checkout: Path) -> tuple[Path, str]:
    """Return the folder to import from and the dotted name of a module, by its packages."""
    top = path.parent
    while (top / "__init__.py").is_file() and top != checkout:
        top = top.parent
    parts = path.relative_to(top).with_suffix("").parts
    return top, ".".join(parts)


def _snapshots(folder: Path, checkout: Path, tables: list[str]) -> str:
    """Return the pattern of the snapshots: beside the tables, in one of the usual ways."""
    base = folder.relative_to(checkout)
    patterns = [
        "{table}.snapshots/{name}.json",
        "snapshots/{table}/{name}.json",
        "snapshots/{table}.{name}.json",
        "snapshots/{table}_{name}.json",
        "{table}.{name}.json",
    ]
    for pattern in patterns:
        if any(list(folder.glob(pattern.format(table=table, name="*"))) for table in tables):
            return f"{base}/{pattern}"
    tried = ", ".join(f"{base}/{pattern}" for pattern in patterns)
    raise InputError(f"{checkout}: no snapshots of a table; looked for {tried}")
