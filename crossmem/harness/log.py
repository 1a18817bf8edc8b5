"""The log of a run, one append-only file: its config, a line per episode, a last line when it ended.

Each line is one JSON object. The first holds the schema and the config; an episode's carries the CRC-32
of its record; `resumed` adds the evidence of one more preflight; `ended` closes the log. Promises: an
episode is on disk, synced, when `append` returns; a kill at any point costs at most the line being
written, which a resume cuts; whatever else is damaged is an error that names the line.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import zlib
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Self

from pydantic import ValidationError

from crossmem.errors import CrossmemError, InputError
from crossmem.harness.records import EpisodeRecord

SCHEMA = 2
GRADING = 1
"""Raised when the judgement of an attempt changes, so that older figures are not compared unawares."""

_CHECKED = b'{"crc32":"%08x","episode":%s}\n'
_TEXT_STARTS = len(_CHECKED % (0, b"")) - len(b"}\n")


class LogError(CrossmemError):
    """A log that is damaged; no resume can go on from it."""


@dataclass
class LogContent:
    """What a log holds. `size` counts the bytes of its whole lines; a torn tail lies behind them."""

    config: dict[str, Any]
    episodes: list[EpisodeRecord] = field(default_factory=list)
    ended: str | None = None
    size: int = 0
    lengths: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Episodes by arm and replicate."""


def read_log(path: Path) -> LogContent:
    """Read a log whole.

    Raises InputError where there is no such file, or it is no log of this schema and grading, and
    LogError where a line other than a torn last one is damaged.
    """
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"results: cannot read {path}: {error.strerror}") from None
    content = LogContent(_config(path, lines[0] if lines else b""))
    content.size = len(lines[0])
    for number, line in enumerate(lines[1:], start=2):
        try:
            _take(content, line)
        except ValueError as error:
            if number == len(lines) and not line.endswith(b"\n"):
                break  # the line that a killed process was writing
            raise LogError(
                f"results: {path} is damaged in line {number} of {len(lines)}: {error}"
            ) from None
        content.size += len(line)
    return content


def read_config(path: Path) -> dict[str, Any]:
    """Read the first line of a log, its config; raises InputError as `read_log` does."""
    try:
        with path.open("rb") as file:
            return _config(path, file.readline())
    except OSError as error:
        raise InputError(f"results: cannot read {path}: {error.strerror}") from None


def has_ended(path: Path) -> bool:
    """Tell whether a log has its last line."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
        last = file.read().splitlines(keepends=True)[-1:]
    return bool(last) and last[0].startswith(b'{"ended":') and last[0].endswith(b"\n")


def _config(path: Path, line: bytes) -> dict[str, Any]:
    try:
        head = json.loads(line)
    except ValueError:
        head = None
    if not isinstance(head, dict):
        raise InputError(f"results: {path} does not begin with the config of a run")
    for name, wanted in (("schema", SCHEMA), ("grading", GRADING)):
        if (found := head.get(name)) != wanted:
            raise InputError(
                f"results: {path} has {name} {found!r}; this version reads {name} {wanted} "
                "(CHANGELOG.md says what changed); run it anew"
            )
    config: dict[str, Any] = head["config"]
    return config


def _take(content: LogContent, line: bytes) -> None:
    """Add one line to what was read; raises ValueError where it is damaged."""
    if line.startswith(b'{"crc32":'):
        text = line[_TEXT_STARTS:-2]
        if line != _CHECKED % (zlib.crc32(text), text):
            raise ValueError("its checksum does not hold")
        try:
            record = EpisodeRecord.model_validate_json(text)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise ValueError(f"it is no episode: {where}") from None
        of = record.row.arm, record.row.replicate
        if record.row.index != content.lengths[of]:
            raise ValueError(f"{record.row.arm} skips or repeats an episode here")
        content.lengths[of] += 1
        content.episodes.append(record)
        return
    if not line.endswith(b"\n"):
        raise ValueError("it has no end")
    match json.loads(line):
        case {"resumed": str(), "preflight": list(probes)}:
            content.config["preflight"] = [*content.config.get("preflight", []), *probes]
        case {"ended": str(ended)}:
            content.ended = ended
        case _:
            raise ValueError("it is neither an episode nor a mark of the run")


class RunLog:
    """A log open for appending, by one process; its arms share it. `content` is what it held.

    Made by `create` or `resume`.
    """

    def __init__(self, path: Path, file: BinaryIO, content: LogContent) -> None:
        self.path = path
        self.content = content
        self.has_episodes = bool(content.episodes)
        self._file = file
        self._writing = Lock()

    @classmethod
    def create(cls, folder: Path, stem: str, config: dict[str, Any]) -> Self:
        """Begin a log called `stem` in `folder`; of two begun at once the later gets a number.

        It appears with its config or not at all. Raises InputError where it cannot be written.
        """
        draft = Path(folder / f".{stem}-{secrets.token_hex(4)}")
        try:
            file = draft.open("xb")
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                log = cls(draft, file, LogContent(config))
                log._write({"schema": SCHEMA, "grading": GRADING, "config": config})
                log.path = _linked(draft, folder / stem)
            except BaseException:
                file.close()
                raise
            finally:
                draft.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to {folder}: {error.strerror or error}") from error
        return log

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Go on with a log: cut a torn tail and append.

        Raises InputError where another process is writing it, LogError where it is damaged.
        """
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            content = read_log(path)
            file.truncate(content.size)
        except BlockingIOError:
            file.close()
            raise InputError(f"the run in {path} is still going on in another process") from None
        except BaseException:
            file.close()
            raise
        return cls(path, file, content)

    def append(self, record: EpisodeRecord) -> None:
        """Add one episode; on return it is on disk. May be called by several threads."""
        text = record.model_dump_json().encode()
        self.has_episodes = True
        self._put(_CHECKED % (zlib.crc32(text), text))

    def note_resumed(self, when: str, preflight: list[dict[str, Any]]) -> None:
        """Add the evidence of the preflight that a resume made."""
        self._write({"resumed": when, "preflight": preflight})

    def end(self, when: str) -> None:
        """Close the log for good: what it lacks this line, it is unfinished."""
        self._write({"ended": when})

    def _write(self, content: dict[str, Any]) -> None:
        self._put(
            json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
            + b"\n"
        )

    def _put(self, line: bytes) -> None:
        with self._writing:
            self._file.write(line)
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; another process may go on with the log."""
        self._file.close()


def _linked(draft: Path, stem: Path) -> Path:
    """Give a draft its name, the first that is free, and return it."""
    for number in count():
        path = stem.with_name(f"{stem.name}{f'-{number}' if number else ''}.jsonl")
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            continue
        return path
    raise AssertionError("unreachable")


def logs(folder: Path) -> list[Path]:
    """Return the logs in `folder`, the newest first."""
    return sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
