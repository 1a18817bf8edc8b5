"""A checkout as the source of the API: checked once, then copied and served per arm and replicate."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from crossmem import paths
from crossmem.api import tables_of
from crossmem.api.payments.access import KEY_VARIABLE, stripe_access
from crossmem.client import ApiClient
from crossmem.domains import domain
from crossmem.errors import CrossmemError, InputError
from crossmem.harness.table_files import TableFiles
from crossmem.upstream import process, tree
from crossmem.upstream.profile import NAME, Profile, load

if TYPE_CHECKING:
    from crossmem.contract import Response
    from crossmem.domains.base import Body
    from crossmem.harness.table_files import Layout
    from crossmem.streams import Stream

LARGE = 500 * 1024**2
"""Bytes of a copy from which on the copies are announced."""


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

    @cached_property
    def digest(self) -> str:
        """The hash of the working tree: what commit and dirtiness cannot tell."""
        return tree.digest(self.path, self.files)

    @property
    def size(self) -> int:
        """The bytes of one copy."""
        return sum((self.path / file).lstat().st_size for file in self.files)

    def describe(self) -> dict[str, Any]:
        """Return what the config block says of the API."""
        return {
            "source": "checkout",
            "path": self.path.name,
            **self.facts.describe(),
            "sha256": self.digest,
            "profile": self.profile.describe(),
            "warnings": self.warnings,
        }

    def at_once(self, wanted: int, limit: int) -> int:
        """Return how many of the `wanted` can run at once: each has a process of its own."""
        return 1 if self.profile.server.port else min(wanted, limit)

    @contextmanager
    def serve(
        self, copy: Path, log: Path, stop: Event | None = None
    ) -> Iterator[tuple[ApiClient, TableFiles]]:
        """Copy the tree to `copy`, which must not exist, serve it; yield a client and its tables.

        Raises CrossmemError where the tree has changed since the run began.
        """
        tree.copy(self.path, self.files, copy)
        if tree.digest(copy, self.files) != self.digest:
            raise CrossmemError(f"{self.path} has changed since the run began")
        tables = TableFiles(
            self.profile.tables.layout(copy), _table_names(self.domain), domain(self.domain).companions
        )
        served = process.running(
            self.profile.server, self.python, copy, log, stop or Event(), stripe=self.domain == "acme"
        )
        with (
            served as (url, token),
            _Watched(url, token, self.profile.paths.routes(), tables=tables) as api,
        ):
            yield api, tables


@dataclass
class _Watched(ApiClient):
    """Raises CrossmemError where the app's stamps are not those of the table files under it.

    The app then reads other files than the profile names, or its reload none: nothing would drift.
    """

    tables: TableFiles = field(kw_only=True, repr=False)

    def submit(
        self, endpoint: str, request: Body, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request and read the answer, accepted or not."""
        response = super().submit(endpoint, request, headers)
        for name, stamp in response.stamps.items():
            table = self.tables.live.get(name)
            if table is not None and stamp != table.version:
                raise CrossmemError(
                    f"the API says that {name} is at {stamp}, its table file that it is at "
                    f"{table.version}: it reads other files than the profile names, or reloads none"
                )
        return response


def _table_names(domain_name: str) -> list[str]:
    """Return the names of the tables that a domain's API has."""
    return sorted(path.stem for path in tables_of(domain_name).glob("*.json"))


def open_checkout(path: str, phase: str, stream: Stream, python: str, *, strict: bool) -> Checkout:
    """Check a checkout for a stream of a phase; nothing is copied or started yet.

    Raises InputError where it cannot be used, and under `strict` where it is not at the expected branch
    or tag.
    """
    checkout = _folder(path)
    if paths.results().resolve().is_relative_to(checkout):
        raise InputError(
            f"the results folder {paths.results()} lies in the checkout, which is not to be written; "
            f"name another one in the environment variable {paths.RESULTS_VARIABLE}"
        )
    if stream.domain == "acme" and os.environ.get(KEY_VARIABLE):
        stripe_access("test")  # its app takes the key from the environment
    profile = load(checkout)
    facts = tree.facts(checkout)
    warnings = []
    if mismatch := facts.mismatch(profile.expected_ref(phase)):
        if strict:
            raise InputError(f"strict_checkout: {mismatch}")
        warnings.append(mismatch)
    process.check_port(profile.server.port)
    files = tree.files(checkout, profile.include)
    _check_tables(profile.tables.layout(checkout), files, stream)
    return Checkout(
        checkout, stream.domain, profile, facts, files, process.interpreter(python), warnings
    )


def _folder(path: str) -> Path:
    with suppress(OSError, RuntimeError, ValueError):  # no such user, a loop of links, a null byte
        if (found := paths.given(path).resolve()).is_dir():
            return found
    raise InputError(f"parameter api = {path!r}: no such folder; 'embedded', or the path of a checkout")


def announce(checkout: Checkout, copies: int) -> None:
    """Say so before much is copied."""
    if checkout.size > LARGE:
        megabytes = f"{checkout.size / 1024**2:,.0f} MB"
        said = f"{checkout.path.name} holds {megabytes}, and {copies} private copies are made of it"
        tqdm.write(said, file=sys.stderr)


def _check_tables(layout: Layout, files: list[Path], stream: Stream) -> None:
    """Raise InputError for a table that is not copied, a missing snapshot, or one of another shape."""
    names = _table_names(stream.domain)
    needed = [layout.table(name) for name in names]
    needed += [layout.snapshot(event.table, event.snapshot) for event in stream.drift_events]
    for path in needed:
        if not path.is_file():
            raise InputError(f"{path} is missing, and the stream {stream.name} needs it")
        if path.resolve().relative_to(layout.folder) not in files:
            raise InputError(f"{path} is ignored by git; name it under `include` in {NAME}")
    for name in names:
        live = layout.read(layout.table(name))
        for snapshot in layout.snapshots(name):
            other = layout.read(layout.snapshot(name, snapshot))
            if live.rows and other.rows and _shapes(live.rows) != _shapes(other.rows):
                raise InputError(
                    f"{layout.snapshot(name, snapshot)} has another shape than {layout.table(name)}"
                )


def _shapes(rows: Any) -> set[bool]:
    """Tell whether the rows are lists (list-shaped) or not (dict-shaped)."""
    return {isinstance(value, list) for value in rows.values()}
