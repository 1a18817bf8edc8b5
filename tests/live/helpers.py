"""Live runs of the study in this process or one of its own, over streams that are short."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from running import attempts_of, rows_of, run_phase

if TYPE_CHECKING:
    from crossmem.harness.results import Run
    from crossmem.streams import Stream

    from .fakes import Provider

KEY = "sk-ant-test-not-to-be-found-7c31e9d04ab8"
MODELS = {"Messages": "haiku", "chat completions": "openai/some-model"}

_SIX = (0, 4, 5, 1, 16, 8)
"""Flour, an amount, flour again, a pair; after the drift flour once more, and the pair again."""


def short(stream: Stream, episodes: tuple[int, ...] = _SIX, drift: int = 4) -> Stream:
    """Return a stream of some episodes of `stream`, with its first drift before the `drift`th."""
    chosen = [
        stream.episodes[index].model_copy(update={"index": number})
        for number, index in enumerate(episodes)
    ]
    event = stream.drift_events[0].model_copy(update={"before": drift})
    return stream.model_copy(update={"episodes": chosen, "drift_events": [event], "budget": []})


def live(**given: Any) -> Run:
    """Run Phase 1 with a model, two arms unless others are named."""
    return run_phase("phase1", **{"model": "haiku", "arms": "A0,A2", **given})


def failures(of: Run, arm: str = "A0") -> list[str | None]:
    """Return by whom each episode of an arm failed, None where it did not."""
    return [row.failed_by for row in rows_of(of) if row.arm == arm]


def problems(of: Run) -> list[str]:
    """Return what the attempts of a run say went wrong with the model's answer."""
    return [attempt.error for attempt in attempts_of(of) if attempt.error]


RUN = """
import crossmem as cm
from crossmem import experience
phases = {"phase1": cm.phase1, "experience": experience.run}
print(phases[sys.argv[1]](**json.loads(sys.argv[2])).path)
"""


def start(*hook: str, phase: str = "phase1", **given: Any) -> subprocess.Popen[str]:
    """Start a live run in a process of its own; `hook` is run before it."""
    code = "\n".join(["import json, os, sys", *hook, RUN])
    parameters = json.dumps({"model": "haiku", "arms": "A0,A2", **given})
    command = [sys.executable, "-c", code, phase, parameters]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def until(process: subprocess.Popen[str], provider: Provider, number: int) -> None:
    """Return as soon as the provider has been asked `number` times."""
    deadline = time.monotonic() + 60
    while len(provider.asked) < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def report(html: Path, *parameters: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run the real command for a report of Phase 1 with a model; `settings` join the environment."""
    tool = str(Path(sys.executable).with_name("crossmem"))
    pairs = [word for each in ("model=haiku", *parameters) for word in ("-p", *each.split("=", 1))]
    return subprocess.run(
        [tool, "report", "phase1", *pairs, "-o", str(html)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **settings},
    )


SHORT = f"""
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})

from crossmem import streams
from live.helpers import short
load = streams.load
streams.load = lambda name: short(load(name))
"""
"""What makes every stream one of six episodes in a process of its own."""


def rows(of: Run) -> list[dict[str, Any]]:
    """Return the rows of a run but for what a clock says."""
    return [row.model_dump(exclude={"latency_s"}) for row in rows_of(of)]
