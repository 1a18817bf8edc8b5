"""The memory of an arm at any episode of a finished run, folded anew from the run's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossmem import streams
from crossmem.domains import domain
from crossmem.errors import InputError, unknown
from crossmem.harness.episode import refold
from crossmem.memory.arms import ARMS, REFERENCES, Arm

if TYPE_CHECKING:
    from crossmem.harness.results import Run
    from crossmem.memory.memory import MemoryBackend
    from crossmem.streams import Stream


def memory_at(
    run: Run, arm: str | Arm, episode: int | None = None, replicate: int = 0
) -> MemoryBackend:
    """Return the memory of an arm as it was before `episode`, at the end of the run if None.

    `arm` is a name of the core's table, or the arm itself where its memory is of another room. Raises
    InputError for an arm, replicate or episode that the run lacks, and for a stream that has changed.
    """
    if isinstance(arm, str):
        known = {**ARMS, **REFERENCES}
        if arm not in known:
            raise unknown("arm", arm, known)
        arm = known[arm]
    records = run.of(arm.name, replicate)
    if episode is not None and not 0 <= episode <= run.length:
        raise InputError(f"episode {episode}: the run has episodes 0 to {run.length - 1}")
    stream = stream_of(run)
    chosen = run.config["parameters"]
    memory = arm.memory(domain(stream.domain), chosen["keying"], f"{chosen['seed']}/{replicate}")
    for record in records[:episode]:
        refold(memory, stream.episodes[record.row.index].task, record)
    return memory


def memory_before_prompt(run: Run, arm: str | Arm, episode: int, replicate: int = 0) -> MemoryBackend:
    """Return the memory of an arm as it was asked for the first prompt of `episode`: with its signals.

    Raises InputError as `memory_at`, and for the end of the run, where nothing is asked.
    """
    memory = memory_at(run, arm, episode, replicate)
    if episode == run.length:
        raise InputError(f"episode {episode}: the run has episodes 0 to {run.length - 1}")
    for signal in run.of(memory.arm.name, replicate)[episode].attempts[0].signals:
        memory.observe(signal)
    return memory


def stream_of(run: Run) -> Stream:
    """Return the stream that a run replayed; raises InputError where it has changed since."""
    stream = streams.load(run.config["parameters"].get("stream") or run.config["stream"])
    if streams.digest(stream) != run.config["stream_sha256"]:
        raise InputError(f"{run.path.name} was run on another version of the stream {stream.name}")
    return stream
