"""The config of a run, the first line of its log, and what a resume compares of it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossmem import paths, streams
from crossmem.agents.cost import PRICES_OF
from crossmem.agents.factory import full_name
from crossmem.agents.prompts import BASE_INSTRUCTION, HINT_STYLES
from crossmem.errors import InputError
from crossmem.harness.log import has_ended, logs, read_config
from crossmem.harness.runner import now
from crossmem.settings import EXECUTION_FIELDS

if TYPE_CHECKING:
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
        "wording": {"base": BASE_INSTRUCTION, "memory": HINT_STYLES[settings.hint_style]},
        "api": source.describe(),
        "carried_out": settings.model_dump(include=set(EXECUTION_FIELDS - {"results", "resume"})),
        "model": {
            "id": None if settings.mock else full_name(settings.model),
            "prices_of": PRICES_OF,
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
        if has_ended(path):
            continue
        if {name: config.get(name) for name in wanted} == wanted:
            _check_same_arms(path, config, settings)
            return path
        others.append(path.name)
    raise InputError(
        f"resume: no unfinished run of {settings.phase} with these parameters in {paths.results()} "
        f"(unfinished there: {', '.join(others) or 'none'})"
    )


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
