"""A finished run as analysis reads it: its config, its episodes, and these as pandas frames."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from crossmem import paths
from crossmem.errors import InputError, unknown
from crossmem.harness.log import LogError, has_ended, logs, read_config, read_log
from crossmem.harness.records import Attempt, MemoryEvent, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pandas as pd
    from pydantic import BaseModel

    from crossmem.harness.records import EpisodeRecord


@dataclass(frozen=True)
class Run:
    """A finished run. `episodes` are in order of arm, replicate and index."""

    path: Path
    config: dict[str, Any]
    episodes: list[EpisodeRecord]

    def __repr__(self) -> str:
        return f"<Run {self.path.name}: {len(self.episodes)} episodes of {', '.join(self.arms)}>"

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
        return len({each.row.index for each in self.episodes})

    @cached_property
    def _by_arm(self) -> dict[tuple[str, int], list[EpisodeRecord]]:
        found: dict[tuple[str, int], list[EpisodeRecord]] = {}
        for each in self.episodes:
            found.setdefault((each.row.arm, each.row.replicate), []).append(each)
        return found

    def of(self, arm: str, replicate: int = 0) -> list[EpisodeRecord]:
        """Return the episodes of an arm and replicate, in order; raises InputError for one it lacks."""
        if arm not in self.arms:
            raise unknown("arm", arm, self.arms)
        if (arm, replicate) not in self._by_arm:
            number = self.config["parameters"]["replicates"]
            raise InputError(f"replicate {replicate}: the run has {number}, counted from 0")
        return self._by_arm[arm, replicate]

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row per arm, replicate and episode."""
        return _frame((each.row.model_dump() for each in self.episodes), Row)

    @cached_property
    def events(self) -> pd.DataFrame:
        """One row per action of a memory."""
        return _frame(self._parts("events"), MemoryEvent, _PLACE)

    @cached_property
    def attempts(self) -> pd.DataFrame:
        """One row per request; requests and responses are nested objects."""
        return _frame(self._parts("attempts"), Attempt, _PLACE)

    def _parts(self, name: str) -> Iterable[dict[str, Any]]:
        for each in self.episodes:
            place = dict(zip(_PLACE, (each.row.arm, each.row.replicate, each.row.index), strict=True))
            for part in getattr(each, name):
                yield {**place, **part.model_dump()}


_UNFINISHED = "results: {} is unfinished; the same run with resume completes it"
_PLACE = ("arm", "replicate", "episode")


def _frame(
    records: Iterable[dict[str, Any]], kind: type[BaseModel], place: tuple[str, ...] = ()
) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(records), columns=[*place, *kind.model_fields])


def load(path: str | Path) -> Run:
    """Read the results file of a finished run: a path, or a name in the results folder.

    Raises InputError where it is missing, unfinished or of another schema, and LogError where a line is
    damaged.
    """
    path = _placed(str(path))
    content = read_log(path)
    if content.ended is None:
        raise InputError(_UNFINISHED.format(path))
    config = {**content.config, "ended": content.ended}
    order = {arm["name"]: number for number, arm in enumerate(config["arms"])}
    episodes = sorted(
        content.episodes, key=lambda each: (order[each.row.arm], each.row.replicate, each.row.index)
    )
    return Run(path, config, episodes)


def find(wanted: str, phase: str | None = None, stream: str | None = None) -> Run:
    """Load the results file `wanted`; see `locate`. `latest` passes over a damaged one, and warns."""
    for path in locate(wanted, phase, stream):
        try:
            return load(path)
        except LogError as error:
            if wanted != "latest":
                raise
            warnings.warn(f"{error}; passed over", stacklevel=2)
    raise AssertionError("locate finds one or raises")


def locate(wanted: str, phase: str | None = None, stream: str | None = None) -> list[Path]:
    """Return the results file `wanted` of a phase and stream; for `latest` all that fit, newest first.

    A bare name is looked up in the results folder. Only first and last lines are read. Raises
    InputError where there is none, or where the file is unfinished or of another phase or stream.
    """
    folder = paths.results()
    if wanted == "latest":
        fitting = [path for path, config in finished(folder) if _fits(config, phase, stream)]
        if not fitting:
            of = f" of {_named(phase, stream)}" if phase else ""
            raise InputError(f"results: no results file{of} in {folder}")
        return fitting
    path = _placed(wanted)
    config = read_config(path)
    if not _fits(config, phase, stream):
        of = _named(config.get("phase"), config.get("stream"))
        raise InputError(f"results: {path} is of {of}, not of {_named(phase, stream)}")
    if not has_ended(path):
        raise InputError(_UNFINISHED.format(path))
    return [path]


def _placed(wanted: str) -> Path:
    """Return the file that a path, or a name with or without its suffix, stands for."""
    folder = paths.results()
    places = [paths.given(wanted), folder / wanted, folder / f"{wanted}.jsonl"]
    return next((path for path in places if path.is_file()), places[0])


def runs(phase: str | None = None) -> pd.DataFrame:
    """Return the finished runs in the results folder, the newest first, of one phase only if named.

    The index holds the names that `load` and `results=` take.
    """
    import pandas as pd

    columns = ["phase", "stream", "model", "mock", "arms", "started"]
    found = {
        path.stem: [
            config.get("phase"),
            config.get("stream"),
            *(config.get("parameters", {}).get(name) for name in ("model", "mock")),
            ", ".join(arm["name"] for arm in config.get("arms", [])),
            config.get("started"),
        ]
        for path, config in finished(paths.results())
        if phase in {None, config.get("phase")}
    }
    return pd.DataFrame.from_dict(found, orient="index", columns=columns).rename_axis("run")


def finished(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield path and config of every finished run in `folder`, the newest first."""
    for path in logs(folder):
        with suppress(InputError):  # another file
            config = read_config(path)
            if has_ended(path):
                yield path, config


def _named(phase: str | None, stream: str | None) -> str:
    return f"{phase} on stream {stream}" if stream else str(phase)


def _fits(config: dict[str, Any], phase: str | None, stream: str | None) -> bool:
    return phase in {None, config.get("phase")} and stream in {None, config.get("stream")}
