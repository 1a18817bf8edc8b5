"""Servers start when asked, share nothing, and are gone when their block is left."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from crossmem.api import tables_of
from crossmem.api.server import ApiServer, serve, serving
from crossmem.errors import CrossmemError, InputError

from .acme import CHARGES, charge
from .helpers import BRANDS, CONVERT, body, celiac, client_of, item, reload, served, swap


def refuses_connections(server: ApiServer) -> bool:
    address = urlsplit(server.url)
    with socket.socket() as probe:
        return probe.connect_ex((address.hostname, address.port)) != 0


def test_a_server_is_gone_when_its_block_is_left(tables: Path) -> None:
    with serving("recipe", tables) as server:
        assert server.alive
        assert server.url.startswith("http://127.0.0.1:")
    assert not server.alive
    assert refuses_connections(server)
    server.stop()


def test_a_server_stops_on_an_exception_with_a_connection_open(tables: Path) -> None:
    def fail_inside() -> None:
        with serving("recipe", tables) as server, client_of(server) as client:
            servers.append(server)
            client.get("/healthz")
            raise ZeroDivisionError

    servers: list[ApiServer] = []
    with pytest.raises(ZeroDivisionError):
        fail_inside()
    (server,) = servers
    assert not server.alive
    assert refuses_connections(server)


@pytest.mark.parametrize(
    ("domain", "path", "request_"),
    [("recipe", CONVERT, body()), ("acme", CHARGES, charge())],
)
def test_stopping_leaves_no_thread_behind(domain: str, path: str, request_: dict[str, Any]) -> None:
    before = set(threading.enumerate())
    with serving(domain, tables_of(domain)) as server, client_of(server) as client:
        client.post(path, json=request_).raise_for_status()
        assert all(thread.daemon for thread in set(threading.enumerate()) - before)
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(5)
    assert not any(thread.is_alive() for thread in left)


def test_two_servers_share_nothing(tables: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(tables, tmp_path / "other"))
    with serving("recipe", tables) as one, serving("recipe", other) as two:
        assert one.url != two.url
        assert one.admin_token != two.admin_token
        with client_of(one) as to_one, client_of(two) as to_two:
            swap(tables, "4.0.0")
            assert reload(to_one)
            assert reload(to_two) == []
            answers = [c.post(CONVERT, json=celiac(item("flour"))) for c in (to_one, to_two)]
            versions = [answer.json()["table_versions"] for answer in answers]
            assert versions == [{BRANDS: "4.0.0"}, {BRANDS: "1.0.0"}]
            assert to_two.post("/admin/reload", headers={"X-Admin-Token": one.admin_token}).is_error
            one.stop()
            assert to_two.get("/healthz").is_success


@pytest.mark.parametrize(
    ("domain", "path", "request_"),
    [
        ("recipe", CONVERT, celiac(item("flour"))),
        ("acme", CHARGES, charge(plan_id="partner")),
    ],
)
def test_a_first_request_leaves_the_filters_of_warnings_alone(
    domain: str, path: str, request_: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They belong to the process: two servers that build routes at once undo each other's filters."""

    def touched(*_: object, **__: object) -> None:
        raise AssertionError("a request filters warnings")

    with (
        serving(domain, tables_of(domain)) as server,
        client_of(server) as client,
        monkeypatch.context() as patch,
    ):
        patch.setattr(warnings, "catch_warnings", touched)
        answer = client.post(path, json=request_)
    assert answer.status_code == 422


def test_its_connections_do_not_wait_to_fill_packets(server: ApiServer) -> None:
    # What asyncio looks at before it sets TCP_NODELAY; without it a request takes 45 ms.
    assert server._socket.proto == socket.IPPROTO_TCP


def test_the_admin_token_is_in_no_repr(server: ApiServer) -> None:
    assert server.admin_token not in repr(server)


def test_a_bad_table_file_stops_the_start_with_the_reason(tables: Path) -> None:
    (tables / f"{BRANDS}.json").write_text("{")
    with (
        pytest.raises(CrossmemError, match=r"celiac_brands\.json: not a JSON"),
        serving("recipe", tables),
    ):
        pass


def test_an_unknown_domain_stops_the_start(tables: Path) -> None:
    with pytest.raises(InputError, match="unknown domain 'recepi'"), serving("recepi", tables):
        pass


def test_a_failed_start_in_the_thread_is_told(tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise SystemExit(3)

    monkeypatch.setattr("uvicorn.Server.run", failing)
    with pytest.raises(CrossmemError, match="did not start"), serving("recipe", tables):
        pass


@pytest.mark.parametrize("port", [-1, 70_000])
def test_a_port_that_does_not_exist_is_refused(tables: Path, port: int) -> None:
    with pytest.raises(InputError, match=f"port {port}"):
        serve("recipe", port, tables)


def test_a_port_in_use_is_named(server: ApiServer, tables: Path) -> None:
    port = urlsplit(server.url).port or 0
    with pytest.raises(InputError, match=f"port {port} cannot be used: Address already in use"):
        serve("recipe", port, tables)


def test_serve_runs_until_ctrl_c_and_its_own_words_make_a_drift() -> None:
    with served("recipe") as (words, copied):
        subprocess.run(copied, shell=True, check=True)
        headers = {"X-Admin-Token": words["admin"]}
        answer = httpx.post(f"{words['serving']}/admin/reload", headers=headers)
        assert [change["to_version"] for change in answer.json()["reloaded"]] == ["2.0.0"]
        assert httpx.get(words["described"]).is_success
    assert not Path(words["tables"]).exists()


def test_importing_the_package_loads_no_web_framework() -> None:
    code = (
        "import sys, crossmem.api; crossmem.api.tables_of('recipe'); "
        "sys.exit(bool({'fastapi', 'uvicorn', 'pydantic'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
