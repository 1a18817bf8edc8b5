"""The exchanges of docs/contract.md are what the reference API answers, in that order."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from crossmem.api import tables_of
from crossmem.api.server import serving

DOCUMENT = Path(__file__).parents[2] / "docs" / "contract.md"
BLOCK = re.compile(
    r"```exchange\n> (\w+) (\S+)([^\n]*)\n(.*?)^< (\d+) (\S+)\n(.*?)^```", re.DOTALL | re.MULTILINE
)
REPLACED = re.compile(r"after (\w+) was replaced by its snapshot (\S+)")


@dataclass
class Exchange:
    method: str
    path: str
    note: str
    sent: str
    status: int
    kind: str
    answer: Any


def exchanges() -> list[Exchange]:
    found = BLOCK.findall(DOCUMENT.read_text(encoding="utf-8"))
    return [
        Exchange(method, path, note, sent, int(status), kind, json.loads(answer))
        for method, path, note, sent, status, kind, answer in found
    ]


def test_every_exchange_of_the_document_is_one_session_of_the_api(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    shutil.copytree(tables_of("recipe"), tables)
    session = exchanges()
    assert len(session) == DOCUMENT.read_text(encoding="utf-8").count("```exchange") == 8
    with serving("recipe", tables) as server, httpx.Client(base_url=server.url) as client:
        for each in session:
            headers = {"Content-Type": "application/json"} if each.sent else {}
            if "admin token" in each.note:
                headers["X-Admin-Token"] = server.admin_token
            if replaced := REPLACED.search(each.note):
                table, snapshot = replaced.groups()
                shutil.copy(
                    tables / f"{table}.snapshots" / f"{snapshot}.json", tables / f"{table}.json"
                )
            answer = client.request(each.method, each.path, content=each.sent, headers=headers)
            assert (answer.status_code, answer.headers["Content-Type"]) == (each.status, each.kind)
            assert answer.json() == each.answer, each.path
            assert list(answer.json()) == list(each.answer), "in another order"
