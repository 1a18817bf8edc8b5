"""What a memory held at any episode of a finished run, folded anew from its results file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossmem import streams
from crossmem.domains import domain
from crossmem.errors import InputError, unknown
from crossmem.run.episode import refold, retell
from crossmem.run.folders import lines
from crossmem.settings import PHASES

if TYPE_CHECKING:
    from crossmem.memory.memory import MemoryBackend
    from crossmem.run.records import Attempt
    from crossmem.run.results import Run


def memory(run: Run, arm: str, before: int | None = None, replicate: int = 0) -> MemoryBackend:
    """Return the memory of an arm as it was before the episode `before`, at the end if None.

    What the memory was told and what it saw stand in the results file; no server is asked. Raises
    InputError for an arm, replicate or episode that the run lacks, and for a stream that has changed.
    """
    parameters = PHASES[run.config["phase"]].model_validate(run.config["parameters"])
    parameters.restore(run.config.get("material", {}))
    known = {each.name: each for each in lines(parameters)}
    if arm not in known:
        raise unknown("arm", arm, known)
    stream = streams.load(run.config["stream"])
    if streams.digest(stream) != run.config["stream_sha256"]:
        raise InputError(f"{run.path.name} was run on another version of the stream {stream.name}")
    told = any(each.told for each in run.results.attempts if each.arm == arm)
    if known[arm].signal in {"diffs", "versions", "truth"} and stream.drift_events and not told:
        raise InputError(
            f"{run.path.name} does not hold what {arm} was told: an earlier version wrote it"
        )
    end = run.length if before is None else before
    if not 0 <= end <= run.length:
        raise InputError(f"episode {end}: the run has episodes 0 to {run.length - 1}")
    if not 0 <= replicate < parameters.replicates:
        raise InputError(f"replicate {replicate}: the run has {parameters.replicates}, counted from 0")
    made = known[arm].memory(domain(stream.domain), parameters.keying, f"{parameters.seed}/{replicate}")
    for index, made_then in attempts(run, arm, replicate).items():
        if index < end:
            refold(made, stream.episodes[index].task, made_then)
    return made


def asked(run: Run, arm: str, episode: int, replicate: int = 0) -> MemoryBackend:
    """Return the memory of an arm as it was when it was asked for the first prompt of `episode`.

    It has been told what comes before that prompt: a byte budget, diffs, versions, summaries. Raises
    InputError as `memory`, and for the end of the run, where nothing is asked.
    """
    made = memory(run, arm, episode, replicate)
    if episode == run.length:
        raise InputError(f"episode {episode}: the run has episodes 0 to {run.length - 1}")
    retell(made, attempts(run, arm, replicate)[episode][0])
    return made


def attempts(run: Run, arm: str, replicate: int = 0) -> dict[int, list[Attempt]]:
    """Return the attempts of an arm, by episode."""
    found: dict[int, list[Attempt]] = {}
    for attempt in run.results.attempts:
        if (attempt.arm, attempt.replicate) == (arm, replicate):
            found.setdefault(attempt.episode, []).append(attempt)
    return found
