"""A checkout's working tree: what git says of it, and private copies of it. It is only ever read."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossmem.errors import InputError

_LISTED = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")


@dataclass(frozen=True)
class Facts:
    """What git says of a checkout; all None where it is none, with `trouble` where git refuses."""

    commit: str | None = None
    branch: str | None = None
    tags: tuple[str, ...] = ()
    dirty: bool | None = None
    trouble: str = ""

    def describe(self) -> dict[str, Any]:
        """Return the facts for the config block."""
        told = asdict(self)
        del told["trouble"]
        return told

    def mismatch(self, expected: str | None) -> str | None:
        """Return in what the checkout is not at the branch or tag `expected`, None if it is."""
        if expected is None or expected in {self.branch, *self.tags}:
            return None
        if self.commit is None and self.branch is None:
            return f"expected {expected}, but {self.trouble or 'the path is no git checkout'}"
        at = self.branch or (self.tags[0] if self.tags else str(self.commit)[:12])
        return f"expected {expected}, but the checkout is at {at}"


def facts(checkout: Path) -> Facts:
    """Ask git for commit, branch, tags and dirtiness, without writing anything."""
    if not _git(checkout, *_LISTED):  # none, or a folder that a repository around it ignores
        refused = (checkout / ".git").exists() and _git(checkout, "rev-parse", "--git-dir") is None
        return Facts(trouble="git does not read the path (see `git status` there)" if refused else "")
    commit = _git(checkout, "rev-parse", "-q", "--verify", "HEAD")
    branch = _git(checkout, "symbolic-ref", "--short", "-q", "HEAD")
    tags = _git(checkout, "tag", "--points-at", "HEAD") if commit else None
    dirty = bool(_git(checkout, "status", "--porcelain"))
    return Facts(commit, branch, tuple((tags or "").split()), dirty)


def files(checkout: Path, include: list[str]) -> list[Path]:
    """Return what a copy holds, relative to the checkout: the working tree as it stands.

    Tracked and untracked files, uncommitted edits and submodules included; ignored files only where a
    glob of `include` names them or their folder. Without git, every file.

    Raises InputError for a glob that matches nothing and for a link that leads out of the checkout.
    """
    found = _working_tree(checkout)
    for pattern in include:
        matched = [path for path in checkout.glob(pattern) if path.parent.resolve() == path.parent]
        if not matched:
            raise InputError(f"include: nothing in {checkout} matches {pattern!r}")
        for path in matched:
            inner = () if path.is_symlink() else path.rglob("*")
            found |= {each.relative_to(checkout) for each in (path, *inner)}
    listed = []
    for path in sorted(found):
        here = checkout / path
        if ".git" in path.parts:
            continue
        if here.is_symlink():
            _target(checkout, path)
        elif not (here.is_file() or here.is_dir()):  # deleted and not committed, or a pipe
            continue
        listed.append(path)
    return listed


def digest(folder: Path, listed: list[Path]) -> str:
    """Return a hash over names and contents: equal for a tree and its copy."""
    total = hashlib.sha256()
    for path in listed:
        total.update(os.fsencode(path) + b"\0")
        if (folder / path).is_symlink():
            total.update(b"link " + os.fsencode(_target(folder, path)))
        elif not (folder / path).is_dir():
            with (folder / path).open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()


def copy(checkout: Path, listed: list[Path], target: Path) -> None:
    """Copy what is listed to `target`, which must not exist; links stay links, within the copy."""
    target.mkdir(parents=True)
    for path in listed:
        source, place = checkout / path, target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            place.symlink_to(os.path.relpath(_target(checkout, path), path.parent))
        elif source.is_dir():
            place.mkdir(exist_ok=True)
        else:
            shutil.copy2(source, place)


def _working_tree(folder: Path) -> set[Path]:
    """Ask git for the files of a folder, ignored ones left out; without git, all that are there."""
    names = _git(folder, *_LISTED)
    if not names:
        return {
            path.relative_to(folder)
            for path in folder.rglob("*")
            if path.is_symlink() or not path.is_dir()
        }
    found = set()
    for name in {*names.split("\0")} - {"", "./"}:
        path = folder / name
        if (path / ".git").exists() and not path.is_symlink():  # a submodule, or another repository
            found |= {Path(name) / each for each in _working_tree(path)}
        else:
            found.add(Path(name))
    return found


def _target(folder: Path, link: Path) -> Path:
    """Return what a link leads to, relative to `folder`.

    Raises InputError where that is outside: writing through its copy would reach the user's files.
    """
    try:
        return (folder / link).resolve().relative_to(folder.resolve())
    except (ValueError, RuntimeError, OSError):
        raise InputError(
            f"{folder / link} leads out of the checkout, or nowhere; a copy could not be private"
        ) from None


def _git(folder: Path, *command: str) -> str | None:
    """Return what a git command says, None where it fails; it must be one that only reads."""
    # Variables such as GIT_DIR, set in a hook, would have it read another repository.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG")
    }
    try:
        done = subprocess.run(  # noqa: S603
            # A monitor of the file system would be started, and leave its socket in the repository.
            ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *command],  # noqa: S607
            capture_output=True,
            check=True,
            timeout=60,
            env={**kept, "GIT_OPTIONAL_LOCKS": "0"},  # or `git status` rewrites the index
        )
    except (OSError, subprocess.SubprocessError):
        return None
    said = os.fsdecode(done.stdout)
    return said if "-z" in command else said.strip()
