"""Admission, conflict, invalidation and budget as small functions over a store.

Each returns the actions it took, for the event log; what it did not do it does not report. Which of
them make up an arm stands in `arms.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from crossmem.contract import DictDiff, Json, ListDiff, TableDiff
from crossmem.memory.entry import Entry, Key, canonical_json, same
from crossmem.memory.store import Held, Store

Kind = Literal[
    "admit",
    "relearn",
    "confirm",
    "hit",
    "refuse",
    "invalidate",
    "restamp",
    "update",
    "evict",
    "demote",
    "rebuild",
    "serve",
    "write",
]


@dataclass(frozen=True)
class Action:
    """One thing a memory did and why; `restamp` concerns a whole table and has no key."""

    kind: Kind
    why: str
    table: str | None
    key: Key | None = None
    value: Json = None
    from_version: str | None = None
    to_version: str | None = None


def _action(kind: Kind, entry: Entry, why: str, **versions: str | None) -> Action:
    return Action(kind, why, entry.table, entry.key, entry.value, **versions)


# -- admission: a reason to refuse the entry, or None ---------------------------------------------

Admission = Callable[[Entry], str | None]


def admit_nothing(entry: Entry) -> str | None:  # noqa: ARG001
    """Keep no lesson at all."""
    return "this arm keeps nothing"


def admit_everything(entry: Entry) -> str | None:  # noqa: ARG001
    """Keep every lesson, whatever the server hints."""
    return None


def admit_cacheable(entry: Entry) -> str | None:
    """Keep what the server marked cacheable, under the stamp it came with."""
    if not entry.cacheable:
        return "not marked cacheable by the server"
    if entry.table is None or entry.version is None:
        return "came without a version stamp"
    return None


# -- conflict: what becomes of a key that is held already --------------------------------------------

Conflict = Callable[[Store, Entry], Sequence[Held] | str]
"""Returns the entries that make way, or the reason why the new one is not taken."""


def keep_first(store: Store, entry: Entry) -> Sequence[Held] | str:
    """Treat a key that is held as known: a hit, never learned again."""
    return "its key is held already" if store.at(entry.key) else ()


def keep_all(store: Store, entry: Entry) -> Sequence[Held]:
    """Keep every value of a key; a value learned again moves to the end of its key's list."""
    again = store.find(entry.key, entry.value)
    return (again,) if again else ()


def keep_latest(store: Store, entry: Entry) -> Sequence[Held]:
    """Let the newest value of a key replace the others."""
    return store.at(entry.key)


def learn(
    store: Store, entry: Entry, admission: Admission, conflict: Conflict, evict: Evict
) -> Iterator[Action]:
    """Take `entry` into the store, as far as admission, conflict and budget let it in."""
    if refusal := admission(entry):
        yield _action("refuse", entry, refusal, to_version=entry.version)
        return
    making_way = conflict(store, entry)
    if isinstance(making_way, str):
        yield _action("hit", entry, making_way, to_version=entry.version)
        return
    if store.budget is not None and entry.size > store.budget:
        why = f"its {entry.size} bytes exceed the budget of {store.budget}"
        yield _action("refuse", entry, why, to_version=entry.version)
        return
    kind, why = _kind_of(store, entry, making_way)
    old = store.version(making_way[-1]) if making_way else None
    for held in making_way:
        store.drop(held)
    held = store.put(entry)
    yield from evict(store, held)
    yield _action(kind, entry, why, from_version=old, to_version=entry.version)


def _kind_of(store: Store, entry: Entry, making_way: Sequence[Held]) -> tuple[Kind, str]:
    if any(same(held.entry.value, entry.value) for held in making_way):
        return "confirm", "the same value was suggested again"
    if making_way:
        replaced = canonical_json(making_way[-1].entry.value)
        return "relearn", f"replaces {replaced}"
    if store.at(entry.key):
        return "relearn", "kept beside the key's other values"
    if entry.key in store.known:
        return "relearn", "its key was held before and dropped"
    return "admit", "a new key"


# -- budget ------------------------------------------------------------------------------------------


Evict = Callable[..., Iterator[Action]]
"""Brings a store down to its budget: takes the store and the entry to spare, if any."""


def evict_least_used(store: Store, spare: Held | None = None) -> Iterator[Action]:
    """Evict until the store fits its budget: fewest uses first, ties oldest; never `spare`."""
    while store.budget is not None and store.bytes > store.budget:
        victim = store.least_used(spare)
        if victim is None:
            return
        why = f"{store.bytes} bytes held, budget {store.budget}; {victim.uses} uses, the fewest"
        version = store.version(victim)
        store.drop(victim)
        yield _action("evict", victim.entry, why, from_version=version)


def update_untrue(
    store: Store, table: str, version: str, current: Callable[[Entry], Entry | None]
) -> Iterator[Action]:
    """Give the entries of `table` the values that its live rows hold; drop those without a row."""
    old = store.stamps.get(table, version)
    for held in store.of_table(table):
        now = current(held.entry)
        if now is None:
            yield from _drop(store, Bump(table, old, version), [held], "its row is gone")
        elif not same(now.value, held.entry.value):
            store.drop(held)
            store.put(replace(now, version=version))
            yield _action("update", now, "the live table says so", from_version=old, to_version=version)


def drop_untrue(
    store: Store, table: str, version: str, holds: Callable[[Entry], bool]
) -> Iterator[Action]:
    """Drop the entries of `table` whose value its live rows do not hold."""
    old = store.stamps.get(table, version)
    doomed = [held for held in store.of_table(table) if not holds(held.entry)]
    yield from _drop(store, Bump(table, old, version), doomed, "the live table does not hold it")


# -- invalidation: what a new stamp of a table does to the table's entries -------------------------


@dataclass(frozen=True)
class Bump:
    """A stamp that differs from the one the entries of `table` are validated under.

    `confirmed` are the entries that this very response showed to hold: carried by the attempt, their
    table consulted, their field not refused.
    """

    table: str
    from_version: str
    to_version: str
    confirmed: Collection[Held] = ()


Invalidation = Callable[[Store, Bump], Iterator[Action]]


def invalidate_never(store: Store, bump: Bump) -> Iterator[Action]:  # noqa: ARG001
    """Keep everything, whatever the stamps say."""
    yield from ()


def revalidate(store: Store, bump: Bump) -> Iterator[Action]:
    """Keep everything and take the new stamp for it: for who knows by other means what holds."""
    if kept := store.count_of(bump.table):
        yield _restamped(bump, f"known to hold: {kept}")


def follow(store: Store, bump: Bump) -> Iterator[Action]:
    """Keep everything, as `revalidate` does: for who is told the live values besides."""
    yield from revalidate(store, bump)


def drop_table(store: Store, bump: Bump) -> Iterator[Action]:
    """Drop every entry of the table learned under another version."""
    yield from _drop(store, bump, store.of_table(bump.table), "its table has another version now")


def drop_unconfirmed(store: Store, bump: Bump) -> Iterator[Action]:
    """Drop the table's entries except those which the response confirmed; re-stamp these."""
    confirmed = set(bump.confirmed)
    rest = [held for held in store.of_table(bump.table) if held not in confirmed]
    why = "its table has another version now and this response did not confirm it"
    yield from _drop(store, bump, rest, why)
    if confirmed:
        yield _restamped(bump, f"confirmed by this response: {len(confirmed)}")


def drop_changed(store: Store, bump: Bump) -> Iterator[Action]:
    """Apply the diffs handed over since the entries were validated; re-stamp what survives.

    The rest of the table's diff list must lead from the entries' version to the response's without a
    gap and in one known shape, else the table is dropped. List-shaped changes net out over the chain,
    dict-shaped ones are a union of row keys; values are matched in list-shaped tables only.
    """
    diffs = store.diffs.get(bump.table, [])
    base = store.positions.get(bump.table, 0)
    gap = next(filter(None, (_gap(diffs[start:], bump) for start in _starts(store, bump))), None)
    if gap:
        yield from _drop(store, bump, store.of_table(bump.table), f"cannot use the diffs: {gap}")
        return
    doomed = [
        held
        for held in store.of_rows(bump.table, _rows(diffs[base:]))
        if _touched(held.entry, diffs[max(base, held.position) :])
    ]
    yield from _drop(store, bump, doomed, "the diff removed or changed it")
    if survivors := store.count_of(bump.table):
        yield _restamped(bump, f"not touched by the diff: {survivors}")


def _starts(store: Store, bump: Bump) -> list[int]:
    """Return where in the table's diff list its entries stand."""
    base = store.positions.get(bump.table, 0)
    return sorted({max(base, position) for position in store.learned_at(bump.table)})


def _gap(chain: Sequence[TableDiff], bump: Bump) -> str | None:
    """Return why `chain` does not lead from the bump's old version to its new one, or None."""
    if not chain:
        return f"none was handed over for {bump.from_version} -> {bump.to_version}"
    version: str | None = bump.from_version
    for change in chain:
        if change.from_version != version:
            return f"they lead from {change.from_version}, the entries are at {version}"
        if change.diff is None:
            return f"{change.from_version} -> {change.to_version} has an unknown shape"
        version = change.to_version
    if version != bump.to_version:
        return f"they lead to {version}, the response says {bump.to_version}"
    if len({change.diff.shape for change in chain if change.diff}) > 1:
        return "they mix shapes"
    return None


def _rows(chain: Sequence[TableDiff]) -> dict[str | None, None]:
    """Return the rows or categories that a chain speaks of, in order; None: entries without one."""
    rows: dict[str | None, None] = {None: None}
    for change in chain:
        match change.diff:
            case ListDiff(added=added, removed=removed):
                rows |= dict.fromkeys([*added, *removed])
            case DictDiff(added=keys, removed=gone, changed=changed):
                rows |= dict.fromkeys([*keys, *gone, *changed])
    return rows


def _touched(entry: Entry, chain: Sequence[TableDiff]) -> bool:
    """Tell whether a chain leaves the entry's value invalid; without a row nobody can tell, so yes."""
    if entry.row is None:
        return True
    gone = False
    for change in chain:
        match change.diff:
            case ListDiff(added=added, removed=removed):
                if entry.value in removed.get(entry.row, ()):
                    gone = True
                if entry.value in added.get(entry.row, ()):
                    gone = False
            case DictDiff(added=keys, removed=lost, changed=changed):
                gone = gone or any(entry.row in rows for rows in (keys, lost, changed))
    return gone


def _drop(store: Store, bump: Bump, doomed: Sequence[Held], why: str) -> Iterator[Action]:
    for held in doomed:
        store.drop(held)
        yield _action(
            "invalidate",
            held.entry,
            why,
            from_version=bump.from_version,
            to_version=bump.to_version,
        )


def _restamped(bump: Bump, why: str) -> Action:
    return Action(
        "restamp", why, bump.table, from_version=bump.from_version, to_version=bump.to_version
    )
