"""The table files under a server: swap one for a snapshot, have it reloaded, read what is live.

A `TableFiles` works on a private copy of the tables that belongs to one server; the files it was copied
from are never written.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from crossmem import contract
from crossmem.contract import Json, TableDiff
from crossmem.errors import CrossmemError, InputError, unknown
from crossmem.paths import whole

if TYPE_CHECKING:
    from pathlib import Path

    from crossmem.client import ApiClient


@dataclass(frozen=True)
class LiveTable:
    """A table file, read: `rows` maps a category to its values, or a row key to its value.

    `content` is the file as it was, members included that nobody here knows.
    """

    name: str
    version: str
    rows: Mapping[str, Json]
    content: Mapping[str, Json] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class Layout:
    """Where table files and snapshots lie in `folder`, and which members hold version and rows.

    `{table}` and `{name}` stand for the names of a table and a snapshot.
    """

    folder: Path
    file: str = "{table}.json"
    snapshot_file: str = "{table}.snapshots/{name}.json"
    version: str = "version"
    rows: str = "rows"

    def table(self, name: str) -> Path:
        """Return the file of a table."""
        return self.folder / self.file.format(table=name)

    def snapshot(self, table: str, name: str) -> Path:
        """Return the file of a snapshot."""
        return self.folder / self.snapshot_file.format(table=table, name=name)

    def snapshots(self, table: str) -> list[str]:
        """Return the names of the snapshots of `table`."""
        before, _, after = self.snapshot_file.format(table=table, name="\0").partition("\0")
        found = self.folder.glob(f"{before}*{after}")
        names = [str(path.relative_to(self.folder)) for path in found]
        return sorted(name[len(before) : len(name) - len(after)] for name in names)

    def read(self, path: Path) -> LiveTable:
        """Read a table file; raises InputError where it is none."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            name = str(content.get("table") or path.stem)
            return LiveTable(name, str(content[self.version]), dict(content[self.rows]), content)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is no table file: {error!r}") from None

    def write(self, name: str, table: LiveTable) -> None:
        """Put a table into place, atomically; members that nobody here knows stay.

        So does a version that is a number there; a link stays one, and its file is written.
        """
        content = {**table.content, self.rows: table.rows}
        if str(content.get(self.version)) != table.version:
            content[self.version] = table.version
        with whole(self.table(name).resolve()) as draft:
            draft.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


Companions = Callable[[Mapping[str, Mapping[str, Json]]], Mapping[str, Mapping[str, Json]]]


def no_companions(_: Mapping[str, Mapping[str, Json]]) -> Mapping[str, Mapping[str, Json]]:
    """Let every table but the drifting one be."""
    return {}


class TableFiles:
    """The tables behind one server; `live` is what the server has in force since the last reload.

    `companions` names the rows of tables that must change with a drifting one (`Domain.companions`);
    they are written at the start and at each swap, under a version of their own.
    """

    def __init__(
        self, layout: Layout, names: Sequence[str], companions: Companions = no_companions
    ) -> None:
        """Take charge of the tables `names` in a folder that belongs to one server."""
        self.layout = layout
        self._companions = companions
        self._swaps = 0
        self._base = {name: replace(layout.read(layout.table(name)), name=name) for name in names}
        self.live = dict(self._base)
        self._put(self._derived(self._base))

    def swap(self, table: str, snapshot: str, api: ApiClient) -> tuple[TableDiff, ...]:
        """Put `snapshot` in the place of `table` and have the server reload; return the diffs.

        Every file is swapped atomically, companions before the one reload. Where the server gives no
        diff of a table that was swapped, or not its versions, it is computed here. Raises InputError
        for an unknown table or snapshot and CrossmemError where the server does not take the files;
        the old ones are put back.
        """
        for thing, name, choices in (
            ("table", table, list(self.live)),
            (f"snapshot of {table}", snapshot, self.layout.snapshots(table)),
        ):
            if name not in choices:
                raise unknown(thing, name, choices)
        self._swaps += 1
        new = replace(self.layout.read(self.layout.snapshot(table, snapshot)), name=table)
        before = dict(self.live)
        self._put({table: new, **self._derived({**self._base, table: new})})
        changed = [name for name in self.live if self.live[name] != before[name]]
        try:
            given = {diff.table: diff for diff in api.reload()}
        except CrossmemError:
            self._put({name: before[name] for name in changed})
            raise
        return tuple(
            given[name]
            if name in given and _complete(given[name])
            else difference(before[name], self.live[name])
            for name in changed
        )

    def _derived(self, tables: Mapping[str, LiveTable]) -> dict[str, LiveTable]:
        """Return the companion tables; their versions count the swaps."""
        rows = self._companions({name: table.rows for name, table in tables.items()})
        return {
            name: replace(
                self._base[name], version=f"{self._base[name].version}+{self._swaps}", rows=changed
            )
            for name, changed in rows.items()
        }

    def _put(self, tables: Mapping[str, LiveTable]) -> None:
        for name, table in tables.items():
            self.layout.write(name, table)
            self.live[name] = table


def private_copy(source: Path, folder: Path, companions: Companions = no_companions) -> TableFiles:
    """Copy the tables of `source` with their snapshots into `folder`, which must not exist."""
    shutil.copytree(source, folder)
    names = sorted(path.stem for path in folder.glob("*.json"))
    if not names:
        raise InputError(f"{source} holds no table files")
    return TableFiles(Layout(folder), names, companions)


def difference(old: LiveTable, new: LiveTable) -> TableDiff:
    """Return what changed between two states of a table, marked as computed by the harness."""
    return TableDiff(
        table=new.name,
        from_version=old.version,
        to_version=new.version,
        diff=contract.difference(old.rows, new.rows),
        source="harness",
    )


def _complete(told: TableDiff) -> bool:
    return told.diff is not None and None not in {told.from_version, told.to_version}


def read_table(path: Path) -> LiveTable:
    """Read a table file of ours; raises InputError where it is none."""
    return Layout(path.parent).read(path)
