"""Results files: read, checked, written whole, and held as pandas frames by a `Run`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crossmem import paths
from crossmem.errors import InputError
from crossmem.run.records import Attempt, Event, Row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

SCHEMA: Literal[1] = 1
GRADING: Literal[1] = 1
"""Bumped when the judgement of an attempt changes, so that older figures are not compared unawares."""


class Results(BaseModel):
    """The content of a results file."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    schema_version: Literal[1] = Field(SCHEMA, alias="schema")
    grading: Literal[1] = GRADING
    config: dict[str, Any]
    rows: list[Row]
    events: list[Event]
    attempts: list[Attempt]


@dataclass(frozen=True)
class Run:
    """A finished run: its config and, as frames, its rows, memory events and attempts."""

    path: Path
    results: Results

    @property
    def config(self) -> dict[str, Any]:
        """Every parameter and circumstance of the run."""
        return self.results.config

    @property
    def scripted(self) -> bool:
        """Whether the figures come from the scripted agent."""
        return bool(self.config["parameters"]["mock"])

    @property
    def arms(self) -> list[str]:
        """The arms in the order asked for."""
        return [arm["name"] for arm in self.config["arms"]]

    @property
    def length(self) -> int:
        """How many episodes the stream has."""
        return len({row.index for row in self.results.rows})

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row per arm, replicate and episode."""
        return _frame(self.results.rows, Row)

    @cached_property
    def events(self) -> pd.DataFrame:
        """One row per action of a memory."""
        return _frame(self.results.events, Event)

    @cached_property
    def attempts(self) -> pd.DataFrame:
        """One row per request; requests and responses are nested objects."""
        return _frame(self.results.attempts, Attempt)


def _frame(records: Sequence[BaseModel], kind: type[BaseModel]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([record.model_dump() for record in records], columns=list(kind.model_fields))


def save(results: Results, path: Path, drafts: Path | None = None) -> Run:
    """Write `results` to `path`, whole or not at all. See `paths.whole`."""
    with paths.whole(path, drafts) as draft, draft.open("w", encoding="utf-8") as file:
        # dumps encodes in C, dump in Python
        file.write(json.dumps(results.model_dump(by_alias=True), ensure_ascii=False, allow_nan=False))
        file.write("\n")
    return Run(path, results)


def load(path: Path) -> Run:
    """Read a results file.

    Raises InputError where it is missing, truncated, or of another schema or grading.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"results: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"results: {path} is no whole JSON file ({error}); is it truncated?") from None
    found = content.get("schema") if isinstance(content, dict) else None
    if found != SCHEMA:
        raise InputError(f"results: {path} has schema {found!r}; this version reads schema {SCHEMA}")
    try:
        return Run(path, Results.model_validate(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"results: {path} is no results file: {where}: {first['msg']}") from None


def find(wanted: str, phase: str | None = None, stream: str | None = None) -> Run:
    """Load the results file `wanted`, of a phase and stream if named; `latest` = the newest that fits.

    A bare name is looked up in the results folder. Raises InputError where there is none, or where the
    file belongs to another phase or stream.
    """
    if wanted == "latest":
        return _latest(phase, stream)
    folder = paths.results()
    places = [paths.given(wanted), folder / wanted, folder / f"{wanted}.json"]
    run = load(next((path for path in places if path.is_file()), places[0]))
    if not _fits(run, phase, stream):
        of = f"{run.config.get('phase')} on stream {run.config.get('stream')}"
        raise InputError(f"results: {run.path} is of {of}, not of {phase} on stream {stream}")
    return run


def _latest(phase: str | None, stream: str | None) -> Run:
    files = paths.results().glob("*.json")
    for path in sorted(files, key=lambda each: each.stat().st_mtime_ns, reverse=True):
        try:
            run = load(path)
        except InputError:
            continue  # some other file there must not hide the newest good one
        if _fits(run, phase, stream):
            return run
    of = f" of {phase} on stream {stream}" if phase else ""
    raise InputError(f"results: no results file{of} in {paths.results()}")


def _fits(run: Run, phase: str | None, stream: str | None) -> bool:
    return phase in {None, run.config.get("phase")} and stream in {None, run.config.get("stream")}
