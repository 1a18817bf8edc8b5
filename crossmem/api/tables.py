"""Lookup tables: reading and checking their files, swapping them whole.

What the rows mean is the domains' matter. Two shapes exist: `list` (category -> list of values) and
`dict` (row key -> value).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from crossmem.contract import DictDiff, ListDiff, difference
from crossmem.errors import CrossmemError


class TableError(CrossmemError):
    """A table file that cannot be read or does not have its table's shape."""


@dataclass(frozen=True)
class TableSpec:
    """What a domain expects of one table: its name, shape and the type of its rows."""

    name: str
    shape: Literal["list", "dict"]
    rows: TypeAdapter[Any]


@dataclass(frozen=True)
class ServedTable:
    """One edition of a table as read from its file. Never changed after it was read."""

    name: str
    shape: Literal["list", "dict"]
    version: str
    rows: Mapping[str, Any]


ServedTables = Mapping[str, ServedTable]
"""All tables of a domain, by name: what a request is validated against, as one consistent whole."""


class TableChange(BaseModel):
    """One table that a reload found changed, in content or in version."""

    table: str
    from_version: str
    to_version: str
    diff: Annotated[ListDiff | DictDiff, Field(discriminator="shape")]


class _TableFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    table: str
    version: Annotated[str, Field(min_length=1, max_length=64)]
    rows: dict[str, JsonValue]


def read_table(path: Path, spec: TableSpec) -> ServedTable:
    """Read one table file `{"table", "version", "rows"}`.

    Raises TableError, which names the file but not the folder: the message goes out over HTTP.
    """
    try:
        content = _TableFile.model_validate(json.loads(path.read_text(encoding="utf-8")))
        rows = spec.rows.validate_python(content.rows, strict=True)
    except ValidationError as error:
        raise TableError(f"{path.name}: {_first(error)}") from None
    except OSError as error:
        raise TableError(f"{path.name}: {error.strerror or 'cannot be read'}") from None
    except (ValueError, RecursionError) as error:
        raise TableError(f"{path.name}: not a JSON document ({error})") from None
    if content.table != spec.name:
        raise TableError(f"{path.name}: holds table {content.table!r}, not {spec.name!r}")
    return ServedTable(spec.name, spec.shape, content.version, rows)


def read_tables(folder: Path, specs: tuple[TableSpec, ...]) -> ServedTables:
    """Read every table of `specs` from `folder`, or raise TableError for the first bad one."""
    read = {spec.name: read_table(folder / f"{spec.name}.json", spec) for spec in specs}
    return MappingProxyType(read)


def versions_of(tables: ServedTables, names: Iterable[str]) -> dict[str, str]:
    """Return the version of each table in `names`, as an answer stamps them."""
    return {name: tables[name].version for name in names}


class TableStore:
    """The tables in force for one server, over a folder that others may write to.

    `tables` hands out all of them at once, and a reload replaces all of them in one assignment: a
    request that holds on to what it got is judged by one consistent edition from start to end.
    """

    def __init__(self, folder: Path, specs: tuple[TableSpec, ...]) -> None:
        self._folder = folder
        self._specs = specs
        self._reloading = threading.Lock()
        self._tables = read_tables(folder, specs)

    @property
    def tables(self) -> ServedTables:
        """The tables in force now."""
        return self._tables

    def reload(self) -> list[TableChange]:
        """Read the files again and return the tables whose content or version changed.

        All or nothing: when any file is bad, TableError is raised and the old tables stay in force.
        Reloads wait for each other, so that every change is reported exactly once.
        """
        with self._reloading:
            old, new = self._tables, read_tables(self._folder, self._specs)
            self._tables = new
        return [_change(old[name], new[name]) for name in new if old[name] != new[name]]


def _change(old: ServedTable, new: ServedTable) -> TableChange:
    return TableChange(
        table=new.name,
        from_version=old.version,
        to_version=new.version,
        diff=difference(old.rows, new.rows, new.shape),
    )


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    place = "/".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}" if place else problem["msg"]
