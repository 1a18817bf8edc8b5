"""Reloads over real HTTP: who may, what is told, and that no request sees half of one."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from crossmem.api.server import ApiServer

from .helpers import (
    BRANDS,
    CONVERT,
    PAIRS,
    celiac,
    client_of,
    item,
    reload,
    snapshot,
    suggestions,
    swap,
)
from .test_http_contract import assert_problem


@pytest.mark.parametrize("token", [None, "", "wrong", "schlüssel"])
def test_a_reload_without_the_right_token_is_a_403_and_changes_nothing(
    server: ApiServer, tables: Path, token: str | None
) -> None:
    swap(tables, "2.0.0")
    headers = {} if token is None else {b"X-Admin-Token": token.encode()}
    with httpx.Client(base_url=server.url) as stranger:
        assert_problem(stranger.post("/admin/reload", headers=headers), 403)
        assert stranger.get("/tables").json()["table_versions"][BRANDS] == "1.0.0"


def test_a_reload_tells_what_changed_once(client: httpx.Client, tables: Path) -> None:
    assert reload(client) == []
    swap(tables, "2.0.0")
    gone = snapshot("1.0.0")["rows"]["flour"][0]
    change = {
        "table": BRANDS,
        "from_version": "1.0.0",
        "to_version": "2.0.0",
        "diff": {"shape": "list", "added": {}, "removed": {"flour": [gone]}},
    }
    assert reload(client) == [change]
    assert reload(client) == []


def test_a_brand_that_a_reload_removed_is_refused_under_the_new_version(
    client: httpx.Client, tables: Path
) -> None:
    gone = snapshot("1.0.0")["rows"]["flour"][0]
    swap(tables, "2.0.0")
    reload(client)
    stale = client.post(CONVERT, json=celiac(item("flour", brand=gone)))
    assert stale.json()["table_versions"] == {BRANDS: "2.0.0"}
    fix = suggestions(stale)[0]["parameters"]
    assert fix["current_value"] == gone
    assert fix["suggested_value"] == snapshot("2.0.0")["rows"]["flour"][0]


def test_a_dict_shaped_table_reports_keys_and_no_values(client: httpx.Client, tables: Path) -> None:
    path = tables / f"{PAIRS}.json"
    content = json.loads(path.read_text())
    content["rows"].pop("lard|persian")
    content["rows"].update({"cream|thai": "soy cream", "butter|thai": "coconut oil"})
    path.write_text(json.dumps({**content, "version": "1.1.0"}))
    assert [change["diff"] for change in reload(client)] == [
        {
            "shape": "dict",
            "added": ["butter|thai"],
            "removed": ["lard|persian"],
            "changed": ["cream|thai"],
        }
    ]


def test_churn_bumps_the_version_with_an_empty_diff(client: httpx.Client, tables: Path) -> None:
    swap(tables, "churn")
    (change,) = reload(client)
    assert (change["from_version"], change["to_version"]) == ("1.0.0", "1.0.1")
    assert change["diff"] == {"shape": "list", "added": {}, "removed": {}}


def test_silent_changes_the_rows_under_the_same_version(client: httpx.Client, tables: Path) -> None:
    swap(tables, "silent")
    (change,) = reload(client)
    assert (change["from_version"], change["to_version"]) == ("1.0.0", "1.0.0")
    assert set(change["diff"]["added"]) == {"flour", "oats"}


def test_a_bad_file_is_a_409_and_all_old_tables_stay_in_force(
    client: httpx.Client, tables: Path
) -> None:
    swap(tables, "2.0.0")
    (tables / f"{PAIRS}.json").write_text("{")
    refused = client.post("/admin/reload")
    assert PAIRS in assert_problem(refused, 409)["detail"]
    assert str(tables) not in refused.text
    assert client.get("/tables").json()["table_versions"] == {BRANDS: "1.0.0", PAIRS: "1.0.0"}
    swap(tables, "1.0.0", PAIRS)
    assert [change["table"] for change in reload(client)] == [BRANDS]


def test_a_request_never_sees_two_editions_while_reloads_go_on(server: ApiServer, tables: Path) -> None:
    first = {v: snapshot(v)["rows"]["flour"][0] for v in ("1.0.0", "4.0.0")}
    done = threading.Event()

    def ask() -> set[tuple[str, str]]:
        seen = set()
        with client_of(server) as client:
            while not done.is_set():
                response = client.post(CONVERT, json=celiac(item("flour")))
                version = response.json()["table_versions"][BRANDS]
                seen.add((version, suggestions(response)[0]["parameters"]["suggested_value"]))
        return seen

    def drift() -> list[str]:
        with client_of(server) as client:
            told = []
            for name in ["4.0.0", "1.0.0"] * 20:
                swap(tables, name)
                told += [change["to_version"] for change in reload(client)]
            return told

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(3)]
        try:
            assert drift() == ["4.0.0", "1.0.0"] * 20
        finally:
            done.set()
        seen = set().union(*(future.result() for future in asking))
    assert seen <= set(first.items())


def test_reloads_at_once_report_a_change_exactly_once(server: ApiServer, tables: Path) -> None:
    swap(tables, "2.0.0")
    with client_of(server) as client, ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda _: reload(client), range(16)))
    assert sum(len(changes) for changes in told) == 1
