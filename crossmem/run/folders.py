"""The folder of a run in progress: its config; how it is made, found again and swept up."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from crossmem import __version__, paths, streams
from crossmem.agents.cost import PRICES_OF
from crossmem.agents.models import full_name, label
from crossmem.agents.prompts import BASE_INSTRUCTION, HINT_STYLES
from crossmem.errors import InputError
from crossmem.memory.arms import ORACLE, Arm
from crossmem.settings import EMBEDDED, Parameters, budget_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crossmem.run.records import EpisodeRecord
    from crossmem.streams import Stream
    from crossmem.upstream.checkout import Checkout

_PACKAGES = ("anthropic", "fastapi", "httpx", "openai", "papermill", "pandas", "pydantic", "uvicorn")


def lines(parameters: Parameters) -> list[Arm]:
    """Return what is replayed: the arms asked for, and the oracle where the phase has it."""
    return [*parameters.chosen(), *([ORACLE] if parameters.with_oracle else [])]


_PROBE = ".probe-"
EXECUTION_FIELDS = {
    "results",
    "resume",
    "strict_preflight",
    "strict_checkout",
    "max_concurrency",
    "episode_timeout_s",
    "max_tokens_total",
    "max_cost_usd",
}
"""Parameters that say how a run is carried out, not what it is; a resume may change them."""


def identity(parameters: Parameters, stream: Stream) -> dict[str, Any]:
    """Return what must be equal for one run to continue another."""
    chosen = parameters.model_dump(exclude=EXECUTION_FIELDS)
    return {"phase": parameters.phase, "stream_sha256": streams.digest(stream), "parameters": chosen}


def _config(parameters: Parameters, stream: Stream, checkout: Checkout | None) -> dict[str, Any]:
    embedded = {"source": EMBEDDED, "crossmem": __version__}
    return {
        **identity(parameters, stream),
        "stream": stream.name,
        "domain": stream.domain,
        "pattern": stream.pattern,
        "drift_events": [event.model_dump() for event in stream.drift_events],
        "budget": [s.model_dump() for s in budget_steps(parameters.budget) or stream.budget],
        "arms": [arm.describe() for arm in lines(parameters)],
        "material": parameters.material(),
        "draws": [arm.name for arm in lines(parameters) if arm.draws],
        "wording": {"base": BASE_INSTRUCTION, "memory": HINT_STYLES[parameters.hint_style]},
        "api": checkout.describe() if checkout else embedded,
        "carried_out": parameters.model_dump(include=EXECUTION_FIELDS - {"results", "resume"}),
        "model": {
            "id": None if parameters.mock else full_name(parameters.model),
            "prices_of": PRICES_OF,
        },
        "preflight": [],
        "versions": {"python": sys.version.split()[0], **{name: version(name) for name in _PACKAGES}},
        "git": _git(),
        "started": now().isoformat(timespec="seconds"),
        "ended": None,
    }


def diff_source(records: list[EpisodeRecord]) -> str | None:
    """Return whose the diffs are that arms were handed: `server`, `harness`, `both`; None if none."""
    told = [
        diff
        for record in records
        for attempt in record.attempts
        for each in attempt.told
        for diff in each.get("diffs", ())
    ]
    sources = {str(diff["source"]) for diff in told}
    return "both" if len(sources) > 1 else next(iter(sources), None)


def new_folder(parameters: Parameters, stream: Stream, checkout: Checkout | None) -> Path:
    """Make the folder of a new run; its name is that of the results file."""
    stem = f"{stream.results_prefix}_{stream.pattern}_{label(parameters)}_{now():%Y%m%dT%H%M%SZ}"
    _runs().mkdir(exist_ok=True)
    made = Path(mkdtemp(prefix=".new-", dir=_runs()))
    (made / "run.json").write_text(
        json.dumps(_config(parameters, stream, checkout), indent=1), encoding="utf-8"
    )
    for name in (stem if number == 0 else f"{stem}-{number}" for number in count()):
        if (paths.results() / f"{name}.json").exists():
            continue
        with suppress(OSError):  # another run has just taken this name
            return made.rename(_runs() / name)
    raise AssertionError("unreachable")


def sweep() -> None:
    """Remove what killed runs have left that no resume needs: finished folders and private copies."""
    for left in _runs().glob(".done-*"):
        shutil.rmtree(left, ignore_errors=True)
    for tables in _runs().glob("*/tables"):
        with suppress(Timeout), FileLock(tables.parent / "lock", timeout=0):
            shutil.rmtree(tables, ignore_errors=True)
            if tables.parent.name.startswith(_PROBE):
                shutil.rmtree(tables.parent, ignore_errors=True)


@contextmanager
def place_for_a_probe() -> Iterator[Path]:
    """Yield a folder where a preflight's private copy is found and swept up, should it be killed."""
    _runs().mkdir(exist_ok=True)
    with TemporaryDirectory(prefix=_PROBE, dir=_runs()) as name, FileLock(Path(name) / "lock"):
        yield Path(name)


def check_same_tree(folder: Path, checkout: Checkout) -> None:
    """Raise InputError where a checkout has changed since the run in `folder` began."""
    config = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    if config["api"].get("sha256") != checkout.digest:
        was = str(config["api"].get("commit") or "no commit")[:12]
        raise InputError(
            f"resume: {checkout.path} has changed since the run in {folder} began (at {was}); "
            "put it back, or start anew without resume"
        )


def note_probes(folder: Path, probes: list[dict[str, Any]]) -> None:
    """Add the evidence of a preflight to a run's config; a resumed run has one more of them."""
    if not probes:
        return
    path = folder / "run.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["preflight"] += probes
    with paths.whole(path) as draft:
        draft.write_text(json.dumps(config, indent=1), encoding="utf-8")


def resumable(parameters: Parameters, stream: Stream) -> Path:
    """Return the folder of the newest unfinished run of these parameters, by its name."""
    wanted = identity(parameters, stream)
    unfinished = sorted(_runs().glob("[!.]*/run.json"), key=lambda path: path.parent.name)
    for path in reversed(unfinished):
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue  # that run has just finished
        if {name: config.get(name) for name in wanted} == wanted:
            _check_same_arms(path.parent, config, parameters)
            return path.parent
    listed = ", ".join(path.parent.name for path in unfinished) or "none"
    raise InputError(
        f"resume: no unfinished run of {parameters.phase} with these parameters in {_runs()} "
        f"(unfinished there: {listed})"
    )


def _check_same_arms(folder: Path, config: dict[str, Any], parameters: Parameters) -> None:
    """Raise InputError where an arm is not what it was when the run began: its skills, for one."""
    now_are = {arm.name: arm.describe() for arm in lines(parameters)}
    for was in config["arms"]:
        changed = [name for name, value in was.items() if now_are[was["name"]].get(name) != value]
        if changed:
            raise InputError(
                f"resume: {was['name']} has other {', '.join(changed)} than when the run in {folder} "
                "began; put them back, or start anew without resume"
            )


def _runs() -> Path:
    return paths.results() / ".runs"


def now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


def _git() -> dict[str, Any]:
    """Return the commit of the checkout and whether it was changed since; None where git cannot say."""
    commands = (["git", "rev-parse", "HEAD"], ["git", "status", "--porcelain"])
    try:
        commit, status = (
            subprocess.run(  # noqa: S603
                command, cwd=paths.root(), capture_output=True, text=True, check=True, timeout=10
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}
    return {"commit": commit, "dirty": bool(status)}
