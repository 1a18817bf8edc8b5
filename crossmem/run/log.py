"""The durable record a run leaves as it goes: one file per arm and replicate, one line per episode.

A line is its CRC-32 in hex, a space, and JSON; the first line is a header that says what the journal
belongs to. An episode is appended whole and synced once. A torn last line, left by a killed process, is
cut on opening; damage before the last line is an error, since what follows it cannot be trusted.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from crossmem.errors import CrossmemError
from crossmem.run.records import EpisodeRecord

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class JournalError(CrossmemError):
    """A journal that is damaged or belongs to another run."""


class Journal:
    """An open journal. `records` are the episodes it held when opened, in order, from index 0."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        """Open `path` for appending, made with `header` if it is missing or holds nothing whole.

        Raises JournalError where it is damaged, has another header, or skips an episode.
        """
        lines, size = _read(path) if path.exists() else ([], 0)
        if lines and lines[0] != header:
            raise JournalError(f"{path} belongs to another run: {_difference(lines[0], header)}")
        self.records = [_record(path, line) for line in lines[1:]]
        if [record.index for record in self.records] != list(range(len(self.records))):
            raise JournalError(f"{path} skips or repeats an episode")
        self._file = path.open("ab")
        try:
            self._file.truncate(size)
            if not lines:
                self._append(header)
        except OSError:
            self._file.close()
            raise

    def append(self, record: EpisodeRecord) -> None:
        """Add one episode; on return it is on disk."""
        self._append(record.model_dump())

    def _append(self, content: dict[str, Any]) -> None:
        self._file.write(_line(content))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _line(content: dict[str, Any]) -> bytes:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _read(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the lines of a journal that are whole, and how many bytes these are."""
    found: list[dict[str, Any]] = []
    size = 0
    raw = path.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(raw, start=1):
        content = _checked(line)
        if content is None:
            if number < len(raw):
                raise JournalError(f"{path} is damaged in line {number} of {len(raw)}")
            break
        found.append(content)
        size += len(line)
    return found, size


def _checked(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line, None where it is torn or altered."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
        return None
    content: dict[str, Any] = json.loads(text)
    return content


def _record(path: Path, content: dict[str, Any]) -> EpisodeRecord:
    try:
        return EpisodeRecord.model_validate(content)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise JournalError(f"{path} holds a record of another schema: {where}") from None


def _difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return "; ".join(f"{name} was {old.get(name)!r}, is {new.get(name)!r}" for name in names)
