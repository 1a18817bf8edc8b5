"""A foreign API, as the `settings.json` beside it says; copied into the repositories that tests build.

It shares no code with crossmem. What it must not do in earnest, it does here on request (`misbehave`).
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse

HERE = Path(__file__).resolve().parent
SETTINGS: dict[str, Any] = json.loads((HERE / "settings.json").read_text())
MISBEHAVE: dict[str, Any] = SETTINGS["misbehave"]
TABLES: dict[str, dict[str, Any]] = {}
COUNT = {"requests": 0}

judge = importlib.import_module(SETTINGS["rules"]).judge


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def load() -> list[dict[str, Any]]:
    changed = []
    for name in SETTINGS["tables"]:
        path = HERE / SETTINGS["root"] / SETTINGS["file"].format(table=name)
        if MISBEHAVE.get("reads_other_files"):
            mine = path.with_suffix(".mine")
            path = mine if mine.exists() else Path(shutil.copy(path, mine))
        content = json.loads(path.read_text())
        new = {"version": str(content[SETTINGS["version"]]), "rows": content[SETTINGS["rows"]]}
        old = TABLES.get(name)
        TABLES[name] = new
        if old is not None and old != new:
            versions = {"from_version": old["version"], "to_version": new["version"]}
            changed.append({"table": name, **versions, "diff": difference(old["rows"], new["rows"])})
    return changed


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    if any(isinstance(value, list) for value in new.values()):
        added = {key: [v for v in new[key] if v not in old.get(key, [])] for key in new}
        removed = {key: [v for v in old[key] if v not in new.get(key, [])] for key in old}
        return {"shape": "list", "added": added, "removed": removed}
    return {
        "shape": "dict",
        "added": [key for key in new if key not in old],
        "removed": [key for key in old if key not in new],
        "changed": [key for key in new if key in old and old[key] != new[key]],
    }


async def check(request: Request) -> JSONResponse:
    COUNT["requests"] += 1
    if COUNT["requests"] == MISBEHAVE.get("die_at"):
        say("the last words of this app")
        os._exit(9)
    body = await request.json()
    found, consulted = judge(body, TABLES)
    stamps = {"table_versions": {name: TABLES[name]["version"] for name in consulted}}
    if not found:
        return JSONResponse({"outcome": body, **stamps})
    feedback = {"message": "not like this", "suggestions": [told(*each) for each in found]}
    if SETTINGS["feedback"] == "error":
        return JSONResponse({"error": feedback, **stamps}, 422)
    return JSONResponse({"recovery_feedback": feedback, **stamps}, 422)


def told(action: str, field: str, current: Any, value: Any, table: str | None) -> dict[str, Any]:
    parameters = {"field": field, "current_value": current, "suggested_value": value}
    one: dict[str, Any] = {SETTINGS["verb"]: action, "parameters": parameters}
    if table:
        hint = "cacheable" if SETTINGS["hint"] == "string" else {"cacheable": True, "scope": "table"}
        one |= {"table": table, "cache_hint": hint}
    return one


async def reload(request: Request) -> JSONResponse:
    if request.headers.get(SETTINGS["token_header"]) != os.environ[SETTINGS["token_variable"]]:
        return JSONResponse({"error": "no"}, 403)
    changed = [] if MISBEHAVE.get("reloads_nothing") else load()
    return JSONResponse({"reloaded": changed} if SETTINGS["diff"] else {"ok": True})


async def versions(_request: Request) -> JSONResponse:
    return JSONResponse({"table_versions": {name: table["version"] for name, table in TABLES.items()}})


@contextlib.asynccontextmanager
async def lifespan(_app: Any) -> AsyncIterator[None]:
    if MISBEHAVE.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if MISBEHAVE.get("grandchild"):
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code, str(HERE)])
    if MISBEHAVE.get("fail_at_startup"):
        raise RuntimeError("this app has no database")
    yield


if "fail_at_import" in MISBEHAVE:
    raise RuntimeError("this app cannot be imported")
if "slow" in MISBEHAVE:
    time.sleep(MISBEHAVE["slow"])
if SETTINGS["sandbox"]:
    importlib.import_module("stripe_api.sandbox").configure()
load()
app = Starlette(lifespan=lifespan)
for theirs in SETTINGS["endpoints"]:
    app.add_route(theirs, check, methods=["POST"])
app.add_route(SETTINGS["reload"], reload, methods=["POST"])
if SETTINGS["versions"]:
    app.add_route(SETTINGS["versions"], versions, methods=["GET"])

FACTS = {
    "file": __file__,
    "path": sys.path,
    "cwd": str(Path.cwd()),
    "environment": dict(os.environ),
    "group": [os.getpid(), os.getpgid(0), os.getsid(0)],
    "arguments": sys.argv,
    "modules": [name for name in sys.modules if name.startswith(("stripe", "crossmem"))],
    "compat": importlib.util.find_spec("stripe_api") is not None,
}
say(f"FACTS {json.dumps(FACTS)}")
