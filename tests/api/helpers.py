"""Small requests, table files and clients for the tests of the reference API."""

from __future__ import annotations

import copy
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import jsonpointer
from hypothesis import HealthCheck, settings

from crossmem.api import tables_of

if TYPE_CHECKING:
    from pathlib import Path

    from crossmem.api.server import ApiServer

BRANDS = "celiac_brands"
PAIRS = "incompatible_ingredients"
CONVERT = "/recipes/convert"

# A loaded machine is slow, not wrong.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def item(name: str, amount: float = 100, **more: Any) -> dict[str, Any]:
    return {"name": name, "amount": amount, "unit": "g", **more}


def body(*ingredients: dict[str, Any], **changes: Any) -> dict[str, Any]:
    request = {
        "recipe": "Stew",
        "cuisine": "nordic",
        "dietary": [],
        "servings": {"from": 4, "to": 4},
        "ingredients": list(ingredients) or [item("turnip")],
    }
    return {**request, **changes}


def celiac(*ingredients: dict[str, Any]) -> dict[str, Any]:
    return body(*ingredients, dietary=["celiac"])


def merged(request: dict[str, Any], suggestions: list[dict[str, Any]]) -> dict[str, Any]:
    amended = copy.deepcopy(request)
    for suggestion in suggestions:
        fix = suggestion["parameters"]
        jsonpointer.set_pointer(amended, fix["field"], fix["suggested_value"])
    return amended


def snapshot(name: str, table: str = BRANDS) -> dict[str, Any]:
    path = tables_of("recipe") / f"{table}.snapshots" / f"{name}.json"
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def swap(folder: Path, name: str, table: str = BRANDS) -> None:
    # Moved into place, as the harness does it: a reload never meets a half-written file.
    fresh = folder / f"{table}.fresh"
    shutil.copy(folder / f"{table}.snapshots" / f"{name}.json", fresh)
    fresh.replace(folder / f"{table}.json")


def client_of(server: ApiServer) -> httpx.Client:
    return httpx.Client(base_url=server.url, headers={"X-Admin-Token": server.admin_token})


def reload(client: httpx.Client) -> list[dict[str, Any]]:
    response = client.post("/admin/reload").raise_for_status()
    changes: list[dict[str, Any]] = response.json()["reloaded"]
    return changes


def suggestions(response: httpx.Response) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = response.json()["recovery_feedback"]["suggestions"]
    return found


@contextmanager
def served(domain: str) -> Iterator[tuple[dict[str, str], str]]:
    """Serve a domain in a process of its own until Ctrl-C; yield what it says, and its copy command."""
    code = f"from crossmem.cli import main; main(['serve', {domain!r}, '--port', '0'])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout is not None
            said: list[str] = []
            while not said or not said[-1].startswith("Ctrl-C"):
                said.append(run.stdout.readline())
                assert said[-1], "it ended before it was ready"
            words = {line.split()[0]: line.split()[-1] for line in said if line.strip()}
            yield words, next(line for line in said if line.lstrip().startswith("cp "))
        finally:
            run.send_signal(signal.SIGINT)
            rest, _ = run.communicate(timeout=30)
    assert run.returncode == 0
    assert rest.endswith("stopped\n")
