"""The API's own trouble is named, waited out or stopped, and never charged to an agent or an arm."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI, Response
from running import logs_of, rows_of, run_phase

import crossmem as cm
from crossmem import client, paths
from crossmem.analysis.ranking import why_unranked
from crossmem.api.app_thread import AppThread
from crossmem.client import ApiClient, WrongEndpointError
from crossmem.errors import InputError
from crossmem.harness import config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Scripted

    Serving = Callable[[Callable[[int], Response]], ApiClient]

GOOD = Response("{}", 200, media_type="application/json")
ENDPOINT = "/recipes/convert"


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serving]:
    """Serve an API whose n-th answer is what a function returns for n, without long waits."""
    monkeypatch.setattr(client, "LONGEST_WAIT_S", 0.01)
    with ExitStack() as stack:

        def made(answer: Callable[[int], Response]) -> ApiClient:
            app, numbers = FastAPI(openapi_url=None), count()
            app.post(ENDPOINT)(lambda: answer(next(numbers)))
            server = AppThread(app, "API in trouble")
            stack.callback(server.stop)
            return stack.enter_context(ApiClient(server.url, "token"))

        yield made


@pytest.mark.parametrize("status", [301, 302, 307, 401, 403, 404, 405])
def test_a_first_answer_that_says_this_is_no_endpoint_for_us_stops_and_names_it(
    status: int, serving: Serving
) -> None:
    api = serving(lambda _: Response("", status, headers={"Location": "/elsewhere"}))
    with pytest.raises(WrongEndpointError, match=rf"POST {ENDPOINT} with {status}: nothing was meas"):
        api.submit(ENDPOINT, {})


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_later_one_is_an_answer(status: int, serving: Serving) -> None:
    api = serving(lambda number: Response("", status) if number else GOOD)
    assert [api.submit(ENDPOINT, {}).status for _ in range(2)] == [200, status]


@pytest.mark.parametrize("header", [{}, {"Retry-After": "0"}, {"Retry-After": "soon"}])
@pytest.mark.parametrize("times", [1, 3])
def test_too_many_requests_are_waited_out_within_a_bound(
    times: int, header: dict[str, str], serving: Serving
) -> None:
    passing = serving(lambda number: Response("", 429, headers=header) if number < times else GOOD)
    assert passing.submit(ENDPOINT, {}).status == 200
    lasting = serving(lambda _: Response("", 429, headers=header))
    assert lasting.submit(ENDPOINT, {}).status == 429


@pytest.mark.parametrize("status", [429, 401, 403, 405, 408, 500, 503])
def test_every_answer_of_that_kind_is_the_apis_failure_and_ranks_nobody(
    status: int, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "LONGEST_WAIT_S", 0.0)
    send, numbers = ApiClient._send, count()

    def refusing(self: ApiClient, method: str, path: str, **given: Any) -> httpx.Response:
        if path == ENDPOINT and next(numbers) > 20:
            return httpx.Response(status, text="not now")
        return send(self, method, path, **given)

    monkeypatch.setattr(ApiClient, "_send", refusing)
    run = run_phase("phase1", mock=True, arms="A2", max_attempts=2)
    failed = [row for row in rows_of(run) if not row.success]
    assert len(failed) > 5
    assert {row.failed_by for row in failed} == {"api"}
    assert "attempts rank no arm here" in (why_unranked(run) or "")
    assert logs_of(results, ended=False) == []


# -- what a run is compared with, and where it comes from --------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "sonnet"}, r"was run with model = 'haiku', not 'sonnet'; leave model out"),
        ({"arms": "A0"}, r"was run with arms = '\S+', not 'A0'"),
        ({"keying": "request"}, r"was run with keying = 'task', not 'request'"),
        ({"max_attempts": 2}, r"was run with max_attempts = 5, not 2"),
        ({"pattern": "churn"}, r"is of phase2 on stream phase2_v2, not of phase2 on stream churn"),
    ],
)
def test_a_parameter_that_contradicts_a_results_file_is_refused_by_name(
    given: dict[str, Any], said: str, scripted: Scripted
) -> None:
    path = scripted("phase2", pattern="v2", model="haiku", keying="task").path
    with pytest.raises(InputError, match=said):
        run_phase("phase2", results=str(path), **given)
    assert run_phase("phase2", results=str(path), model="haiku", max_concurrency=2).path == path


def test_a_run_is_not_resumed_at_another_endpoint_of_its_model(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "endpoint", lambda _: "one.example")
    run = run_phase("phase1", mock=True, arms="A0")
    lines = run.path.read_text(encoding="utf-8").splitlines(keepends=True)
    run.path.write_text("".join(lines[:9]), encoding="utf-8")
    monkeypatch.setattr(config, "endpoint", lambda _: "other.example")
    with pytest.raises(
        InputError, match=r"endpoint has changed .* \(one\.example, now other\.example\)"
    ):
        run_phase("phase1", mock=True, arms="A0", resume=True)
    assert logs_of(results, ended=False) == [run.path]


def test_the_commit_is_that_of_the_folder_crossmem_lies_in_whatever_git_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = config._git()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    for name, value in (("GIT_DIR", tmp_path / ".git"), ("GIT_WORK_TREE", tmp_path)):
        monkeypatch.setenv(name, str(value))
    assert config._git() == plain


# -- people ------------------------------------------------------------------------------------------


def test_a_run_shows_itself_in_a_line(scripted: Scripted) -> None:
    assert len(repr(scripted("phase2"))) < 400
    assert "\n" not in repr(scripted("phase2"))


def test_what_papermill_leaves_in_the_checkout_is_no_source_and_no_change() -> None:
    asked = subprocess.run(["git", "check-ignore", "out.ipynb"], cwd=paths.root(), check=False)
    assert asked.returncode in {0, 128}, "128: no git checkout"
    from crossmem.harness.results import load  # the function that takes strings as well

    with pytest.raises(InputError, match="no-such"):
        load("results/no-such.jsonl")


def test_python_takes_names(results: Path) -> None:
    run = cm.run("phase1", mock=True, arms="A0")
    table = cm.runs("phase1")
    assert [*table.index] == [run.path.stem]
    assert table.loc[run.path.stem, "arms"] == "A0"
    assert cm.runs("phase2").empty
    for name in (run.path.stem, run.path.name, str(run.path)):
        assert cm.load(name).path == run.path
    with pytest.raises(InputError, match="unknown phase 'phase9'; did you mean"):
        cm.run("phase9", mock=True)
    with pytest.raises(InputError, match="arms beside settings"):
        cm.run(cm.guard(cm.Phase1Settings, {"mock": True}), arms="A0")
