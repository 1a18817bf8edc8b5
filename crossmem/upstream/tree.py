"""A checkout's working tree: what git says of it, and private copies of it. It is only ever read."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossmem.errors import InputError

LARGE = 500 * 1024**2
_READ_ONLY = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # or `git status` rewrites the index


@dataclass(frozen=True)
class Facts:
    """What git says of a checkout; all None where it is no git checkout."""

    commit: str | None = None
    branch: str | None = None
    tags: tuple[str, ...] = ()
    dirty: bool | None = None

    def describe(self) -> dict[str, Any]:
        """Return the facts for the config block."""
        return {**asdict(self), "tags": list(self.tags)}

    def mismatch(self, expected: str | None) -> str | None:
        """Return in what the checkout is not at the branch or tag `expected`, None if it is."""
        if expected is None or expected in {self.branch, *self.tags}:
            return None
        if self.commit is None:
            return f"expected {expected}, but the path is no git checkout"
        at = self.branch or (self.tags[0] if self.tags else self.commit[:12])
        return f"expected {expected}, but the checkout is at {at}"


def facts(checkout: Path) -> Facts:
    """Ask git for commit, branch, tags and dirtiness, without writing anything."""
    commit = _git(checkout, "rev-parse", "HEAD")
    if commit is None:
        return Facts()
    branch = _git(checkout, "symbolic-ref", "--short", "-q", "HEAD")
    tags = _git(checkout, "tag", "--points-at", "HEAD") or ""
    status = _git(checkout, "status", "--porcelain")
    return Facts(commit, branch or None, tuple(tags.split()), bool(status))


def files(checkout: Path, include: list[str]) -> list[Path]:
    """Return what a copy holds, relative to the checkout: the working tree as it stands.

    Tracked and untracked files, uncommitted edits included; ignored ones only where `include` names
    them. Without git, every file.
    """
    listed = _git(checkout, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        found = {path.relative_to(checkout) for path in checkout.rglob("*")}
    else:
        found = {Path(name) for name in listed.split("\0") if name}
        found |= {path.relative_to(checkout) for name in include for path in checkout.glob(name)}
    return sorted(
        path for path in found if (checkout / path).is_file() or (checkout / path).is_symlink()
    )


def size(checkout: Path, listed: list[Path]) -> int:
    """Return the bytes of the listed files."""
    return sum((checkout / path).lstat().st_size for path in listed)


def copy(checkout: Path, listed: list[Path], target: Path) -> None:
    """Copy the listed files to `target`, which must not exist; links stay links.

    Raises InputError for a link that leads out of the checkout: writing through it would reach the
    user's files.
    """
    for path in listed:
        source, place = checkout / path, target / path
        if source.is_symlink() and not source.resolve().is_relative_to(checkout.resolve()):
            raise InputError(f"{source} leads out of the checkout; a copy could not be private")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, place, follow_symlinks=source.is_dir() or not source.is_symlink())


def _git(checkout: Path, *command: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603
            ["git", "-C", str(checkout), *command],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env=_READ_ONLY,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if "-z" in command else done.stdout.strip()
