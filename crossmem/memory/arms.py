"""The memory arms, each a row: how it admits, resolves conflicts, invalidates, and what it is told.

Adding an arm is adding a row here, and a function in `policies.py` if its idea is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from crossmem.errors import InputError, unknown
from crossmem.memory import policies as p
from crossmem.memory.memory import Memory, MemoryBackend

if TYPE_CHECKING:
    from crossmem.domains.base import Domain, Keying

SignalKind = Literal["budget", "diffs", "versions", "clock", "truth"]


@dataclass(frozen=True)
class Arm:
    """A composition of policies.

    `signal` is what the harness tells its memory beside the attempts: the stream's byte `budget`, the
    `diffs` of a reload, the `versions` read before recall, the `clock` (the episode's number), or the
    `truth` (the reference lines alone).
    """

    name: str
    title: str
    admission: p.Admission
    conflict: p.Conflict
    invalidation: p.Invalidation
    signal: SignalKind | None = None

    @property
    def draws(self) -> bool:
        """Whether chance has a part in what its memory recalls."""
        return False

    @property
    def asks_for_summaries(self) -> bool:
        """Whether its memory wants texts written by the agent's model."""
        return False

    @property
    def has_budget(self) -> bool:
        """Whether the stream's byte budget is in force for it."""
        return self.signal == "budget"

    def memory(self, domain: Domain, keying: Keying, seed: str = "") -> MemoryBackend:  # noqa: ARG002
        """Return an empty memory of this arm; a room with memories of another kind overrides it.

        `seed` is what a memory that draws is seeded with; these do not draw.
        """
        return Memory(self, domain, keying)

    def describe(self) -> dict[str, str | None]:
        """Return the composition by name, for the config block of a run."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: getattr(value, "__name__", value) for name, value in values.items()}


_TABLE = (
    Arm("A0", "none", p.admit_nothing, p.keep_first, p.invalidate_never),
    Arm("A1", "naive", p.admit_everything, p.keep_all, p.invalidate_never),
    Arm("A1F", "naive, first kept", p.admit_everything, p.keep_first, p.invalidate_never),
    Arm("LW", "keyed latest-wins", p.admit_everything, p.keep_latest, p.invalidate_never),
    Arm("LWG", "latest-wins, governed", p.admit_cacheable, p.keep_latest, p.invalidate_never),
    Arm("A2", "governed", p.admit_cacheable, p.keep_latest, p.drop_table),
    Arm("A2D", "diff-aware", p.admit_cacheable, p.keep_latest, p.drop_changed, signal="diffs"),
    Arm("A2C", "confirming", p.admit_cacheable, p.keep_latest, p.drop_unconfirmed),
    Arm("A2V", "revalidating", p.admit_cacheable, p.keep_latest, p.drop_table, signal="versions"),
    Arm("A3", "budget-elastic", p.admit_cacheable, p.keep_latest, p.drop_table, signal="budget"),
)
ARMS = {arm.name: arm for arm in _TABLE}

ORACLE = Arm(
    "oracle", "perfect invalidation", p.admit_cacheable, p.keep_latest, p.revalidate, signal="truth"
)
"""No arm: what *dropping* can do at best. It never carries a value that the live tables lack."""
BOUND = Arm("bound", "perfect update", p.admit_cacheable, p.keep_latest, p.follow, signal="truth")
"""No arm: what *updating* can do at best, a first try on every key ever learned. Regret is from it."""
REFERENCES = {line.name: line for line in (ORACLE, BOUND)}
"""The lines that are no arms: the harness tells them what the live tables hold."""


def arms(names: str | Sequence[str], table: Mapping[str, Arm] = ARMS) -> list[Arm]:
    """Return the arms of `table` named, in the order given (a comma-separated string or a sequence).

    Raises InputError for an unknown arm, one named twice, or none at all.

    >>> [arm.title for arm in arms("A2, A0")]
    ['governed', 'none']
    """
    listed = names.split(",") if isinstance(names, str) else list(names)
    wanted = [name.strip() for name in listed if name.strip()]
    for name in wanted:
        if name not in table:
            raise unknown("arm", name, table)
        if wanted.count(name) > 1:
            raise InputError(f"repeated arm {name!r}")
    if not wanted:
        raise unknown("arm", names, table)
    return [table[name] for name in wanted]
