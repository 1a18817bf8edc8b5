"""The config of a run, the first line of its log, and what a resume compares of it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossmem import paths, streams
from crossmem.agents import messages, prompts
from crossmem.agents.cost import PRICES_OF
from crossmem.agents.factory import endpoint, full_name
from crossmem.agents.prompts import BASE_INSTRUCTION, HINT_STYLES
from crossmem.errors import InputError
from crossmem.harness.log import has_ended, logs, read_config
from crossmem.harness.runner import now
from crossmem.settings import EXECUTION_FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from crossmem.harness.results import Run
    from crossmem.harness.runner import ApiSource
    from crossmem.settings import RunSettings
    from crossmem.streams import Stream

_PACKAGES = ("anthropic", "fastapi", "httpx", "openai", "papermill", "pandas", "pydantic", "uvicorn")


def identity(settings: RunSettings, stream: Stream) -> dict[str, Any]:
    """Return what must be equal for one run to continue another."""
    chosen = settings.model_dump(exclude=set(EXECUTION_FIELDS))
    return {"phase": settings.phase, "stream_sha256": streams.digest(stream), "parameters": chosen}


def run_config(
    settings: RunSettings, stream: Stream, source: ApiSource, preflight: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the config of a run that begins now."""
    arms = settings.arms_to_run()
    return {
        **identity(settings, stream),
        "stream": stream.name,
        "domain": stream.domain,
        "pattern": stream.pattern,
        "drift_events": [event.model_dump() for event in stream.drift_events],
        "budget": [step.model_dump() for step in settings.budget_steps() or stream.budget],
        "arms": [arm.describe() for arm in arms],
        "arm_inputs": settings.arm_inputs(),
        "draws": [arm.name for arm in arms if arm.draws],
        "wording": wording(settings),
        "api": source.describe(),
        "carried_out": settings.model_dump(include=set(EXECUTION_FIELDS - {"results", "resume"})),
        "model": {
            "id": None if settings.mock else full_name(settings.model),
            "prices_of": PRICES_OF,
            "endpoint": endpoint(settings),
        },
        "preflight": preflight,
        "versions": {"python": sys.version.split()[0], **{name: version(name) for name in _PACKAGES}},
        "git": _git(),
        "started": now().isoformat(timespec="seconds"),
    }


def diff_source(run: Run) -> str | None:
    """Return whose the diffs are that arms were handed: `server`, `harness`, `both`; None if none."""
    sources = {
        diff.source
        for each in run.episodes
        for attempt in each.attempts
        for signal in attempt.signals
        if signal.kind == "diffs"
        for diff in signal.diffs
    }
    return "both" if len(sources) > 1 else next(iter(sources), None)


def find_unfinished(settings: RunSettings, stream: Stream) -> Path:
    """Return the log of the newest unfinished run of these settings.

    Raises InputError where there is none, or where an arm is not what it was when the run began.
    """
    wanted, others = identity(settings, stream), []
    for path in logs(paths.results()):
        try:
            config = read_config(path)
        except InputError:
            continue
        if config.get("phase") != settings.phase or has_ended(path):
            continue
        differing = list(_differing(config, wanted))
        if not differing:
            _check_same_arms(path, config, settings)
            _check_same_agent(path, config, settings)
            return path
        others.append((len(differing), f"{path.name} has {', '.join(differing)}"))
    nearest = f": {min(others)[1]}" if others else ""
    raise InputError(
        f"resume: no unfinished run of {settings.phase} with these parameters in "
        f"{paths.results()}{nearest}"
    )


def _differing(config: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    """Say in what an unfinished run differs from the one that is wanted."""
    theirs, ours = config.get("parameters", {}), wanted["parameters"]
    for name in sorted({*theirs, *ours}):
        if theirs.get(name) != ours.get(name):
            yield f"{name} {theirs.get(name)!r}, not {ours.get(name)!r}"
    if config.get("stream_sha256") != wanted["stream_sha256"] and theirs == ours:
        yield "a stream that has changed since"


def check_same_api(path: Path, source: ApiSource) -> None:
    """Raise InputError where the API's source has changed since the run in `path` began."""
    was, now_is = read_config(path)["api"], source.describe()
    if was.get("sha256") != now_is.get("sha256"):
        commit = str(was.get("commit") or "no commit")[:12]
        raise InputError(
            f"resume: the checkout {now_is.get('path')} has changed since the run in {path} began (at "
            f"{commit}); put it back, or start anew without resume"
        )


def _check_same_arms(path: Path, config: dict[str, Any], settings: RunSettings) -> None:
    """Raise InputError where an arm is not what it was when the run began: its skills, for one."""
    now_are = {arm.name: arm.describe() for arm in settings.arms_to_run()}
    for was in config["arms"]:
        changed = [name for name, value in was.items() if now_are[was["name"]].get(name) != value]
        if changed:
            raise InputError(
                f"resume: {was['name']} has other {', '.join(changed)} than when the run in {path} "
                "began; put them back, or start anew without resume"
            )


def _check_same_agent(path: Path, config: dict[str, Any], settings: RunSettings) -> None:
    """Raise InputError where a request would be worded otherwise, or go elsewhere, than it did."""
    for what, was, is_now in (
        ("the wording of its prompts", config.get("wording"), wording(settings)),
        ("its model's endpoint", config["model"].get("endpoint"), endpoint(settings)),
    ):
        if was != is_now:
            told = f" ({was}, now {is_now})" if isinstance(is_now, str) else ""
            raise InputError(
                f"resume: {what} has changed since the run in {path} began{told}; put it back, or "
                "start anew without resume"
            )


def wording(settings: RunSettings) -> dict[str, str]:
    """Return what an agent is told: the instructions, and a digest of the code that writes prompts."""
    sources = (prompts, messages)
    digest = sha256("".join(map(inspect.getsource, sources)).encode()).hexdigest()
    return {"base": BASE_INSTRUCTION, "memory": HINT_STYLES[settings.hint_style], "sha256": digest}


def _git() -> dict[str, Any]:
    """Return the commit of the checkout and whether it was changed since; None where git cannot say."""
    commands = (
        ["git", "rev-parse", "--show-toplevel"],
        ["git", "rev-parse", "HEAD"],
        ["git", "status", "--porcelain"],
    )
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        top, commit, status = (
            subprocess.run(  # noqa: S603
                command,
                cwd=paths.root(),
                env=plain,  # GIT_DIR would lead to another repository
                capture_output=True,
                text=True,
                check=True,
                timeout=10,
            ).stdout.strip()
            for command in commands
        )
    except (OSError, subprocess.SubprocessError):
        return {"commit": None, "dirty": None}
    if Path(top).resolve() != paths.root():  # the package lies in somebody else's checkout
        return {"commit": None, "dirty": None}
    return {"commit": commit, "dirty": bool(status)}
