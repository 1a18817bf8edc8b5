"""The table files under a server: swap one for a snapshot, have it reloaded, read what is live.

A `World` works on a private copy of the tables that belongs to one server; the files it was copied
from are never written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossmem.errors import CrossmemError, InputError, unknown
from crossmem.paths import whole

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from crossmem.client import ApiClient
    from crossmem.contract import Json, TableDiff


@dataclass(frozen=True)
class Table:
    """A table file, read: `rows` maps a category to its values, or a row key to its value."""

    name: str
    version: str
    rows: Mapping[str, Json]


Companions = Callable[["Mapping[str, Mapping[str, Json]]"], "Mapping[str, Mapping[str, Json]]"]


def no_companions(_: Mapping[str, Mapping[str, Json]]) -> Mapping[str, Mapping[str, Json]]:
    """Let every table but the drifting one be."""
    return {}


class World:
    """The tables behind one server; `live` is what the server has in force since the last reload.

    `companions` names the rows of tables that must change with a drifting one (`Domain.companions`);
    they are written at the start and at each swap, under a version of their own.
    """

    def __init__(self, source: Path, folder: Path, companions: Companions = no_companions) -> None:
        """Copy the tables of `source` with their snapshots into `folder`, which must not exist."""
        shutil.copytree(source, folder)
        self.folder = folder
        self._companions = companions
        self._swaps = 0
        self._base = {path.stem: read_table(path) for path in sorted(folder.glob("*.json"))}
        if not self._base:
            raise InputError(f"{source} holds no table files")
        self.live = dict(self._base)
        self._put(self._derived(self._base))

    def snapshots(self, table: str) -> list[str]:
        """Return the names of the snapshots of `table`."""
        return sorted(path.stem for path in (self.folder / f"{table}.snapshots").glob("*.json"))

    def swap(self, table: str, snapshot: str, api: ApiClient) -> tuple[TableDiff, ...]:
        """Put `snapshot` in the place of `table` and have the server reload; return the diffs.

        Every file is swapped atomically, companions before the one reload. Raises InputError for an
        unknown table or snapshot and CrossmemError where the server does not take the files; the old
        ones are put back then.
        """
        for thing, name, choices in (
            ("table", table, list(self.live)),
            (f"snapshot of {table}", snapshot, self.snapshots(table)),
        ):
            if name not in choices:
                raise unknown(thing, name, choices)
        self._swaps += 1
        new = read_table(self.folder / f"{table}.snapshots" / f"{snapshot}.json")
        before = dict(self.live)
        self._put({table: new, **self._derived({**self._base, table: new})})
        try:
            return api.reload()
        except CrossmemError:
            self._put({name: before[name] for name in self.live if self.live[name] != before[name]})
            raise

    def _derived(self, tables: Mapping[str, Table]) -> dict[str, Table]:
        """Return the companion tables; their versions count the swaps."""
        rows = self._companions({name: table.rows for name, table in tables.items()})
        return {
            name: Table(name, f"{self._base[name].version}+{self._swaps}", changed)
            for name, changed in rows.items()
        }

    def _put(self, tables: Mapping[str, Table]) -> None:
        for name, table in tables.items():
            content = {"table": table.name, "version": table.version, "rows": table.rows}
            with whole(self.folder / f"{name}.json") as draft:
                draft.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
            self.live[name] = table


def read_table(path: Path) -> Table:
    """Read a table file; raises InputError where it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Table(str(content["table"]), str(content["version"]), dict(content["rows"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no table file: {error!r}") from None
