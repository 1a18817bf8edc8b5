"""The memory arms, each a row: how it admits, resolves conflicts, invalidates, and what it is fed.

Adding an arm is adding a row here, and a function in `policies.py` if its idea is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from crossmem.errors import unknown
from crossmem.memory import policies as p


@dataclass(frozen=True)
class Arm:
    """A composition of policies. `has_budget`: the stream's byte budget is in force for it."""

    name: str
    title: str
    admission: p.Admission
    conflict: p.Conflict
    invalidation: p.Invalidation
    has_budget: bool = False

    def describe(self) -> dict[str, str | bool]:
        """Return the composition by name, for the config block of a run."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: getattr(value, "__name__", value) for name, value in values.items()}


_TABLE = (
    Arm("A0", "none", p.admit_nothing, p.keep_first, p.invalidate_never),
    Arm("A1", "naive", p.admit_everything, p.keep_first, p.invalidate_never),
    Arm("A1N", "store-all, newest last", p.admit_everything, p.keep_all, p.invalidate_never),
    Arm("LW", "keyed latest-wins", p.admit_everything, p.keep_latest, p.invalidate_never),
    Arm("LWG", "latest-wins, governed", p.admit_cacheable, p.keep_latest, p.invalidate_never),
    Arm("A2", "governed", p.admit_cacheable, p.keep_latest, p.drop_table),
    Arm("A3", "budget-elastic", p.admit_cacheable, p.keep_latest, p.drop_table, has_budget=True),
)
ARMS = {arm.name: arm for arm in _TABLE}


def arms(names: str | Sequence[str]) -> list[Arm]:
    """Return the arms named, in the order given (a comma-separated string or a sequence of names).

    Raises InputError for an unknown arm, one named twice, or none at all.

    >>> [arm.title for arm in arms("A2, A0")]
    ['governed', 'none']
    """
    listed = names.split(",") if isinstance(names, str) else list(names)
    wanted = [name.strip() for name in listed if name.strip()]
    for name in wanted:
        if name not in ARMS or wanted.count(name) > 1:
            raise unknown("or repeated arm" if name in ARMS else "arm", name, ARMS)
    if not wanted:
        raise unknown("arm", names, ARMS)
    return [ARMS[name] for name in wanted]
