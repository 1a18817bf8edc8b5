"""A checkout as the source of the API: checked once, then copied and served per arm and replicate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from crossmem import paths
from crossmem.api import tables_of
from crossmem.client import ApiClient
from crossmem.domains import domain
from crossmem.drift import Layout, World
from crossmem.errors import InputError
from crossmem.upstream import process, tree
from crossmem.upstream.profile import Profile, load


@dataclass(frozen=True)
class Checkout:
    """A checkout that a run of one domain can use."""

    path: Path
    domain: str
    profile: Profile
    facts: tree.Facts
    files: list[Path]
    python: str
    warnings: list[str]

    def describe(self) -> dict[str, Any]:
        """Return what the config block says of the API."""
        return {
            "source": "checkout",
            "path": self.path.name,
            **self.facts.describe(),
            "profile": self.profile.model_dump(),
            "warnings": self.warnings,
        }

    @contextmanager
    def world(self, copy: Path, log: Path) -> Iterator[tuple[ApiClient, World]]:
        """Copy the tree to `copy`, which must not exist, serve it; yield a client and its tables."""
        tree.copy(self.path, self.files, copy)
        tables = self.profile.tables
        layout = Layout(copy, tables.file, tables.snapshot, tables.version, tables.rows)
        what = domain(self.domain)
        world = World(layout, table_names(self.domain), what.companions)
        extra = [paths.root() / "acme_compat"] if self.domain == "acme" else []
        log.parent.mkdir(parents=True, exist_ok=True)
        with (
            process.running(self.profile.server, copy, self.python, log, extra) as (url, token),
            ApiClient(url, token, self.profile.paths.routes()) as api,
        ):
            yield api, world


def table_names(domain_name: str) -> list[str]:
    """Return the names of the tables that a domain's API has."""
    return sorted(path.stem for path in tables_of(domain_name).glob("*.json"))


def open_checkout(path: str, phase: str, domain_name: str, python: str, *, strict: bool) -> Checkout:
    """Check a checkout for a phase; nothing is copied or started yet.

    Raises InputError where it cannot be used, and under `strict` where it is not at the expected branch
    or tag.
    """
    checkout = paths.given(path).resolve()
    if not checkout.is_dir():
        raise InputError(f"api: there is no folder {path}")
    profile = load(checkout, table_names(domain_name))
    facts = tree.facts(checkout)
    warnings = []
    if mismatch := facts.mismatch(profile.expected_ref(phase)):
        if strict:
            raise InputError(f"strict_checkout: {mismatch}")
        warnings.append(mismatch)
    elif facts.commit is None:
        warnings.append("the path is no git checkout, so no commit is known")
    files = tree.files(checkout, profile.include)
    _check_shapes(checkout, profile, domain_name)
    return Checkout(checkout, domain_name, profile, facts, files, python, warnings)


def announce(checkout: Checkout, copies: int) -> None:
    """Say so before much is copied."""
    total = tree.size(checkout.path, checkout.files)
    if total > tree.LARGE:
        megabytes = f"{total / 1024**2:,.0f} MB"
        said = f"{checkout.path.name} holds {megabytes}, and {copies} private copies are made of it"
        tqdm.write(said, file=sys.stderr)


def _check_shapes(checkout: Path, profile: Profile, domain_name: str) -> None:
    """Raise InputError for a table file of another shape than its snapshots."""
    tables = profile.tables
    layout = Layout(checkout, tables.file, tables.snapshot, tables.version, tables.rows)
    for name in table_names(domain_name):
        live = layout.read(layout.table(name))
        for snapshot in layout.snapshots(name):
            other = layout.read(layout.snapshot(name, snapshot))
            if _shapes(live.rows) != _shapes(other.rows):
                raise InputError(
                    f"{layout.snapshot(name, snapshot)} has another shape than {layout.table(name)}"
                )


def _shapes(rows: Any) -> set[bool]:
    """Tell whether the rows are lists (list-shaped) or not (dict-shaped)."""
    return {isinstance(value, list) for value in rows.values()}
