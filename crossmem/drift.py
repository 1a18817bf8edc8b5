"""The table files under a server: swap one for a snapshot, have it reloaded, read what is live.

A `World` works on a private copy of the tables that belongs to one server; the files it was copied
from are never written.
"""

from __future__ import annotations

import json
import shutil
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


class World:
    """The tables behind one server; `live` is what the server has in force since the last reload."""

    def __init__(self, source: Path, folder: Path) -> None:
        """Copy the tables of `source` with their snapshots into `folder`, which must not exist."""
        shutil.copytree(source, folder)
        self.folder = folder
        self.live = {path.stem: read_table(path) for path in sorted(folder.glob("*.json"))}
        if not self.live:
            raise InputError(f"{source} holds no table files")

    def snapshots(self, table: str) -> list[str]:
        """Return the names of the snapshots of `table`."""
        return sorted(path.stem for path in (self.folder / f"{table}.snapshots").glob("*.json"))

    def swap(self, table: str, snapshot: str, api: ApiClient) -> tuple[TableDiff, ...]:
        """Put `snapshot` in the place of `table` and have the server reload; return the diffs.

        The file is swapped atomically. Raises InputError for an unknown table or snapshot and
        CrossmemError where the server does not take the file; the old one is put back then.
        """
        for thing, name, choices in (
            ("table", table, list(self.live)),
            (f"snapshot of {table}", snapshot, self.snapshots(table)),
        ):
            if name not in choices:
                raise unknown(thing, name, choices)
        target = self.folder / f"{table}.json"
        before = target.read_bytes()
        self._write(target, (self.folder / f"{table}.snapshots" / f"{snapshot}.json").read_bytes())
        try:
            diffs = api.reload()
        except CrossmemError:
            self._write(target, before)
            raise
        self.live[table] = read_table(target)
        return diffs

    @staticmethod
    def _write(target: Path, content: bytes) -> None:
        with whole(target) as draft:
            draft.write_bytes(content)


def read_table(path: Path) -> Table:
    """Read a table file; raises InputError where it is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Table(str(content["table"]), str(content["version"]), dict(content["rows"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no table file: {error!r}") from None
