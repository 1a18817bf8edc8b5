"""Builds small repositories of an API that is not ours: own history, layout and field names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from crossmem.api import tables_of

APPS = Path(__file__).parent / "apps"
OURS = {"recipe": ("/recipes/convert",), "acme": ("/billing/charges", "/billing/refunds")}
ISOLATED = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05Z",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z",
}
WHO = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")


@dataclass(frozen=True)
class Plan:
    """How a repository looks; the default is a profile's, but for the app."""

    domain: str = "recipe"
    module: str = "app/main.py"
    """Where the app is made; `__init__.py` makes it in the package itself."""
    path: str = "."
    framework: str = "starlette.applications.Starlette"
    file: str = "tables/{table}.json"
    snapshot: str = "tables/{table}.snapshots/{name}.json"
    version: str = "version"
    rows: str = "rows"
    named: bool = True
    """Whether a table file says which table it is."""
    prefix: str = ""
    """What stands before our endpoints in theirs."""
    reload: str = "/admin/reload"
    token_header: str = "X-Admin-Token"
    token_variable: str = "ADMIN_TOKEN"
    versions: str | None = None
    diff: bool = True
    verb: str = "action"
    feedback: str = "top"
    hint: str = "object"
    sandbox: bool = False
    branch: str = "feature/versionable-tables"
    tags: tuple[str, ...] = ()
    profile: bool = True
    """Whether the repository holds an upstream.toml."""
    ref: str | None = None
    """The branch or tag that the profile expects, the phase's if None."""
    server: str = ""
    """More lines of the profile on the server."""
    misbehave: dict[str, Any] = field(default_factory=dict)

    @property
    def package(self) -> str:
        """The dotted name of the folder of the app's module."""
        return ".".join(Path(self.module).parent.parts)

    @property
    def app(self) -> str:
        """The app as a profile names it."""
        stem = Path(self.module).stem
        inner = [] if stem == "__init__" else [stem]
        return f"{'.'.join([*filter(None, [self.package]), *inner])}:app"

    @property
    def toml(self) -> str:
        """The profile."""
        endpoints = {ours: f"{self.prefix}{ours}" for ours in OURS[self.domain]}
        lines = [
            *([f'ref = "{self.ref}"'] if self.ref else []),
            "[server]",
            f'app = "{self.app}"',
            f'path = "{self.path}"',
            f'token_variable = "{self.token_variable}"',
            self.server,
            "[tables]",
            *(f'{name} = "{getattr(self, name)}"' for name in ("file", "snapshot", "version", "rows")),
            "[paths]",
            f'reload = "{self.reload}"',
            f'token_header = "{self.token_header}"',
            *([f'versions = "{self.versions}"'] if self.versions else []),
            "[paths.endpoints]",
            *(f'"{ours}" = "{theirs}"' for ours, theirs in endpoints.items()),
        ]
        return "\n".join(lines) + "\n"


PLAIN = Plan()
ODD = Plan(
    module="service/core/main.py",
    file="data/{table}.json",
    snapshot="data/old/{table}.{name}.json",
    prefix="/v1",
    reload="/internal/refresh",
    token_header="X-Token",
    token_variable="SVC_TOKEN",
    diff=False,
    verb="type",
    feedback="error",
    hint="string",
)
"""Everything that the tolerant reader takes, and no diffs: as on the branch of Phase 1."""
SRC = Plan(
    module="kitchen/web.py",
    path="src",
    file="src/kitchen/lookup/{table}/now.json",
    snapshot="src/kitchen/lookup/{table}/{name}.snap.json",
    version="edition",
    rows="entries",
    named=False,
    versions="/meta/versions",
    branch="feature/drift-snapshots-and-table-diff",
)
"""A src layout whose table files do not say their table."""
PACKAGE = Plan(
    module="kitchen/__init__.py",
    framework="fastapi.FastAPI",
    versions="/versions",
    feedback="error",
    branch="feature/drift-snapshots-and-table-diff",
)
"""A FastAPI app that is made in the package itself."""
ACME = Plan(
    domain="acme",
    module="acme_app/main.py",
    prefix="/api",
    branch="main",
    tags=("v0.2.0",),
    sandbox=True,
    verb="type",
    hint="string",
)
"""The app imports `stripe_api.sandbox` when it starts, and configures it."""


def build(folder: Path, plan: Plan = PLAIN, **misbehave: Any) -> Path:
    """Make the repository `folder`, which must not exist, with one commit; return it."""
    plan = replace(plan, misbehave={**plan.misbehave, **misbehave})
    top = folder / plan.path
    module = top / plan.module
    module.parent.mkdir(parents=True)
    for place in [module.parent, *module.parent.parents]:
        if place == top:
            break
        (place / "__init__.py").write_text("")
    package, _, name = plan.framework.rpartition(".")
    app = (APPS / "web.py").read_text()
    app = app.replace("from starlette.applications import Starlette", f"from {package} import {name}")
    module.write_text(app.replace("app = Starlette(", f"app = {name}("))
    shutil.copy(APPS / f"{plan.domain}.py", module.with_name("rules.py"))
    settings = {
        **vars(plan),
        "rules": ".".join(filter(None, [plan.package, "rules"])),
        "root": os.path.relpath(folder, module.parent),
        "tables": _tables(folder, plan),
        "endpoints": [f"{plan.prefix}{ours}" for ours in OURS[plan.domain]],
    }
    module.with_name("settings.json").write_text(json.dumps(settings, indent=1))
    if plan.profile:
        (folder / "upstream.toml").write_text(plan.toml)
    (folder / ".gitignore").write_text("*.pyc\n__pycache__/\n*.secret\nvar/\n")
    git(folder, "init", "-q", "-b", plan.branch)
    commit(folder)
    for tag in plan.tags:
        git(folder, "tag", tag)
    return folder


def _tables(folder: Path, plan: Plan) -> list[str]:
    source = tables_of(plan.domain)
    names = sorted(path.stem for path in source.glob("*.json"))
    for name in names:
        _rewritten(source / f"{name}.json", folder / plan.file.format(table=name), plan)
        for each in (source / f"{name}.snapshots").glob("*.json"):
            place = folder / plan.snapshot.format(table=name, name=each.stem)
            _rewritten(each, place, plan)
    return names


def _rewritten(source: Path, place: Path, plan: Plan) -> None:
    """Write a table file in the words of the repository; a member of its own stays its own."""
    content = json.loads(source.read_text(encoding="utf-8"))
    told = {"table": content["table"]} if plan.named else {}
    told |= {plan.version: content["version"], plan.rows: content["rows"], "licence": "CC0"}
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(told), encoding="utf-8")


def git(folder: Path, *command: str) -> str:
    """Run git in a repository of the tests, untouched by any configuration of a person."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | ISOLATED
    done = subprocess.run(
        ["git", "-C", str(folder), *WHO, *command],
        capture_output=True,
        text=True,
        check=True,
        env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
    )
    return done.stdout


def commit(folder: Path) -> None:
    """Commit everything there is."""
    git(folder, "add", "--all", "--", ".")
    git(folder, "commit", "-q", "-m", "as it is")


State = dict[str, tuple[Any, ...]]


def state(folder: Path) -> State:
    """Return all that must not change: names, kinds, bytes, mtimes, git's own files and its status."""
    found: State = (
        {"status": (git(folder, "status", "--porcelain"),)} if (folder / ".git").is_dir() else {}
    )
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            content: Any = str(path.readlink())
        else:
            content = path.read_bytes() if path.is_file() else None
        known = path.lstat()
        mtime = known.st_mtime_ns
        found[str(path.relative_to(folder))] = (content, mtime, known.st_mode, known.st_ino)
    return found


def copies(results: Path) -> list[Path]:
    """Return the private copies that runs have left or are at work on."""
    return sorted(results.with_name("copies").glob("crossmem-run-*/*/"))


def servers(results: Path) -> list[psutil.Process]:
    """Return the processes that serve private copies of runs, and their children."""
    runs = str(results.with_name("copies") / "crossmem-run-")
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(part.startswith(runs) for part in process.info["cmdline"] or [])
    ]


def facts(log: Path) -> dict[str, Any]:
    """Return what the app said of itself as it started."""
    line = next(line for line in log.read_text().splitlines() if line.startswith("FACTS "))
    said: dict[str, Any] = json.loads(line.removeprefix("FACTS "))
    return said
