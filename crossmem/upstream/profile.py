"""Where things are in a checkout, as its profile says; nothing is guessed from the app's source.

A profile says how the app is started, where table files and snapshots lie, and which paths stand for
ours. It lies in the checkout or, since that may not be the user's to write, beside it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from string import Formatter
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from crossmem.client import Routes
from crossmem.errors import InputError
from crossmem.harness.table_files import Layout

NAME = "upstream.toml"
_EXPECTED = {
    "phase1": "feature/versionable-tables",
    "phase2": "feature/drift-snapshots-and-table-diff",
    "phase3": "feature/drift-snapshots-and-table-diff",
    "acme": "v0.2.0",
}


def _within(path: str) -> str:
    """Refuse a path that could lead out of the private copy."""
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError("must lie in the checkout: no absolute path, no ..")
    return path


def _pattern(*names: str) -> AfterValidator:
    """Take a path that holds each of the placeholders `names` and no other."""

    def checked(path: str) -> str:
        found = [name for _, name, *_ in Formatter().parse(path) if name is not None]
        if set(found) != set(names) or found.count("name") > 1:
            wanted = " and ".join(f"{{{name}}}" for name in names)
            raise ValueError(f"must hold {wanted} and no other placeholder")
        return _within(path)

    return AfterValidator(checked)


_Inside = Annotated[str, Field(min_length=1), AfterValidator(_within)]
_Route = Annotated[str, Field(pattern="^/")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Server(_Part):
    """How the app is started: an ASGI app `module:name`, importable from `path` inside the checkout."""

    app: str = Field(pattern=r"^\w+(\.\w+)*:\w+$")
    path: _Inside = "."
    cwd: _Inside = "."
    """The folder inside the checkout that the app is started in."""
    health: _Route = "/healthz"
    port: int = Field(0, ge=0, le=65535)
    token_variable: str = "ADMIN_TOKEN"  # noqa: S105
    """Environment variable in which the app takes its admin token."""
    env: dict[str, str] = Field(default_factory=dict)


class Tables(_Part):
    """Where table files and snapshots lie; `{table}` and `{name}` stand for the table and snapshot."""

    file: Annotated[str, _pattern("table")] = "tables/{table}.json"
    snapshot: Annotated[str, _pattern("table", "name")] = "tables/{table}.snapshots/{name}.json"
    version: str = "version"
    rows: str = "rows"
    """Members of a table file that hold its version and its rows."""

    def layout(self, folder: Path) -> Layout:
        """Return the layout of these tables in a checkout or a copy of it."""
        return Layout(folder, self.file, self.snapshot, self.version, self.rows)


class Paths(_Part):
    """Paths of theirs: `endpoints` maps ours to theirs; without `versions` none can be read."""

    endpoints: dict[_Route, _Route] = Field(default_factory=dict)
    reload: _Route = "/admin/reload"
    token_header: str = "X-Admin-Token"  # noqa: S105
    versions: _Route | None = None

    def routes(self) -> Routes:
        """Return them as the client takes them."""
        return Routes(**self.model_dump())


class Profile(_Part):
    """A whole profile. `ref` is the branch or tag expected; `include` names ignored files to copy."""

    server: Server
    tables: Tables = Tables()
    paths: Paths = Paths()
    ref: str | None = None
    include: list[_Inside] = Field(default_factory=list)

    def describe(self) -> dict[str, Any]:
        """Return the profile for the config block; of the app's environment the names alone."""
        told = self.model_dump()
        told["server"]["env"] = sorted(self.server.env)
        return told

    def expected_ref(self, phase: str) -> str | None:
        """Return the branch or tag that a phase is meant to run against."""
        return self.ref or _EXPECTED.get(phase)


def load(checkout: Path) -> Profile:
    """Return the profile of a checkout.

    Raises InputError where there is none, where it is wrong, and where it names what is not there.
    """
    places = (checkout / NAME, checkout.with_name(f"{checkout.name}.toml"))
    path = next(filter(Path.is_file, places), None)
    if path is None:
        raise InputError(
            f"{checkout} has no profile: write {places[1]}, or {NAME} in it, with at least its ASGI app"
            f', as in `server.app = "app.main:app"`; `crossmem doctor --api {checkout}` checks it'
        )
    profile = _read(path)
    if missing := list(_missing(profile.server, checkout)):
        raise InputError(f"{path} names what {checkout} does not have: {', '.join(missing)}")
    return profile


def _read(path: Path) -> Profile:
    try:
        return Profile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is no TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}: {where}: {first['msg']}") from None


def _missing(server: Server, checkout: Path) -> Iterator[str]:
    """Yield the folders and the module that a checkout lacks."""
    yield from (place for place in {server.path, server.cwd} if not (checkout / place).is_dir())
    module = server.app.partition(":")[0].replace(".", "/")
    places = [PurePosixPath(server.path, f"{module}{ending}") for ending in (".py", "/__init__.py")]
    if not any((checkout / place).is_file() for place in places):
        yield " or ".join(map(str, places))
