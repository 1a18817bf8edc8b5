"""Success, error, Ctrl-C, kill -9: the tree stays as it is, no server is left, resume completes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from running import log_lines, logs_of, outcome, run_phase

from crossmem.errors import CrossmemError, InputError
from crossmem.paths import RESULTS_VARIABLE
from crossmem.upstream.checkout import Checkout

from .conftest import Builder, nobody_left
from .foreign import ODD, PLAIN, build, copies, servers, state

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.slow

SERVER = "import crossmem.upstream.process as p\n"
SHORT = f"{SERVER}p.END_S = 0.3"
RUN = "import crossmem as cm; print(cm.phase1(**json.loads(sys.argv[1])).path)"
KILL = "os.kill(os.getpid(), 9)"
ARMS = "A0,A2D"
STUBBORN: dict[str, Any] = {"ignore_sigterm": True, "grandchild": True}


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What a run leaves that nothing happened to."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RESULTS_VARIABLE, str(folder / "results"))
        repository = build(folder / "theirs", ODD)
        return outcome(run_phase("phase1", mock=True, arms=ARMS, api=str(repository)))


def start(api: Path, *hook: str, **given: Any) -> subprocess.Popen[str]:
    """Run the study in a process of its own; `hook` is run before it."""
    code = "\n".join(["import json, os, sys", SHORT, *hook, RUN])
    given = {"mock": True, "arms": ARMS, "api": str(api), **given}
    command = [sys.executable, "-c", code, json.dumps(given)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ignores SIGTERM is not waited for long."""
    monkeypatch.setattr("crossmem.upstream.process.END_S", 0.3)


def resumed(api: Path) -> list[dict[str, Any]]:
    """Continue the unfinished run, in this process; return what it leaves."""
    return outcome(run_phase("phase1", mock=True, arms=ARMS, api=str(api), resume=True))


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def until(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert process.poll() is None, "it ended before it could be disturbed"
        assert time.monotonic() < deadline
        time.sleep(0.002)


# -- kill -9 -------------------------------------------------------------------------------------

HOOKS = {
    "in the middle of copying": (
        "import crossmem.upstream.tree as t\n"
        "def copy2(source, place, whole=t.shutil.copy2):\n"
        f"    {KILL} if source.name == 'rules.py' else whole(source, place)\n"
        "t.shutil = type('shutil', (), {'copy2': staticmethod(copy2)})"
    ),
    "copied, not yet served": f"{SERVER}p._environment = lambda *_, **__: {KILL}",
    "the server is starting": f"{SERVER}p._wait_until_up = lambda *_: {KILL}",
    "the table swapped, not yet reloaded": (
        f"import crossmem.client as c\nc.ApiClient.reload = lambda _: {KILL}"
    ),
    "the table swapped and reloaded": (
        f"import crossmem.harness.table_files as d\nd.difference = lambda *_: {KILL}"
    ),
    "a server is being ended": f"{SERVER}p._signal = lambda *_: {KILL}",
    "every episode on disk, the run not yet ended": (
        f"import crossmem.harness.log as l\nl.RunLog.end = lambda *_: {KILL}"
    ),
}


@pytest.mark.parametrize("point", HOOKS)
def test_killed_at_a_delicate_point(
    point: str, watched: Builder, results: Path, undisturbed: list[dict[str, Any]]
) -> None:
    repository = watched(ODD, **STUBBORN)
    process = start(repository, HOOKS[point])
    _, err = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, err
    nobody_left(results)
    assert resumed(repository) == undisturbed
    assert copies(results) == []


POINTS: dict[str, Callable[[Path], bool]] = {
    "a server is up": lambda results: len(servers(results)) >= 3,
    "a few episodes": lambda results: log_lines(results) >= 8,
    "after the drift": lambda results: log_lines(results) >= 40,
}


@pytest.mark.parametrize("point", POINTS)
def test_killed_from_outside(
    point: str, watched: Builder, results: Path, undisturbed: list[dict[str, Any]]
) -> None:
    repository = watched(ODD, **STUBBORN)
    process = start(repository)
    until(process, lambda: POINTS[point](results))
    killed(process)
    nobody_left(results)
    assert resumed(repository) == undisturbed
    assert copies(results) == []


def test_copies_of_a_killed_run_are_removed_by_the_next_one_whatever_its_parameters(
    watched: Builder, results: Path, undisturbed: list[dict[str, Any]]
) -> None:
    repository = watched(ODD)
    process = start(repository)
    until(process, lambda: log_lines(results) >= 10)
    killed(process)
    assert len(copies(results)) == 2
    run_phase("phase2", mock=True, arms="A0")
    assert copies(results) == []
    assert len(logs_of(results, ended=False)) == 1
    assert resumed(repository) == undisturbed


def test_a_killed_kernel_leaves_no_server(
    watched: Builder, results: Path, tmp_path: Path, undisturbed: list[dict[str, Any]]
) -> None:
    repository = watched(ODD, **STUBBORN)
    given = {"mock": "True", "arms": ARMS, "api": str(repository)}
    pairs = [word for name, value in given.items() for word in ("-p", name, value)]
    tool = Path(sys.executable).with_name("crossmem")
    command = [str(tool), "report", "phase1", "-o", str(tmp_path / "page.html"), *pairs]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(process, lambda: log_lines(results) >= 6)
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # one that ends by itself just now, a zombie included
            if "ipykernel_launcher" in " ".join(child.cmdline()):
                child.kill()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in err
    nobody_left(results)
    assert resumed(repository) == undisturbed


# -- Ctrl-C and ordinary ends --------------------------------------------------------------------


@pytest.mark.parametrize("lines", [0, 12])
def test_ctrl_c_leaves_no_server_and_no_copy(
    lines: int, watched: Builder, results: Path, undisturbed: list[dict[str, Any]]
) -> None:
    repository = watched(ODD, **STUBBORN)
    process = start(repository)
    until(process, lambda: log_lines(results) >= lines and len(servers(results)) > 0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert "resume=True completes it" in err
    nobody_left(results, within_s=0)
    assert copies(results) == []
    assert resumed(repository) == undisturbed


def test_ctrl_c_does_not_wait_for_an_app_that_takes_its_time(watched: Builder, results: Path) -> None:
    process = start(watched(ODD, slow=50))
    until(process, lambda: len(servers(results)) == 2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    nobody_left(results, within_s=0)
    assert copies(results) == []


def test_a_terminated_study_leaves_no_server(watched: Builder, results: Path) -> None:
    process = start(watched(ODD, **STUBBORN))
    until(process, lambda: log_lines(results) >= 6)
    process.terminate()
    process.communicate(timeout=60)
    nobody_left(results)


@pytest.mark.parametrize("how", [{}, STUBBORN])
def test_success_leaves_no_server_and_nothing_but_results_and_logs(
    how: dict[str, Any], watched: Builder, results: Path
) -> None:
    played = run_phase("phase1", mock=True, arms="A0,A2", api=str(watched(PLAIN, **how)))
    nobody_left(results, within_s=0)
    logs = results / f"{played.path.stem}.logs"
    assert sorted(path.name for path in results.iterdir()) == [played.path.name, logs.name]
    assert sorted(path.name for path in logs.iterdir()) == ["A0-0.log", "A2-0.log"]
    assert copies(results) == []


def test_an_app_that_dies_stops_the_run_with_its_last_words_and_resume_completes_it(
    watched: Builder, results: Path, made: Builder, undisturbed: list[dict[str, Any]]
) -> None:
    repository = watched(ODD, die_at=20)
    with pytest.raises(CrossmemError) as caught:
        run_phase("phase1", mock=True, arms=ARMS, api=str(repository))
    said = str(caught.value)
    assert "does not answer /v1/recipes/convert" in said
    assert "the last words of this app" in said
    (log,) = logs_of(results, ended=False)
    assert f"What is done stays in {log}" in said
    assert said.endswith("resume=True completes it")
    nobody_left(results, within_s=0)
    assert copies(results) == []
    # It dies again, 20 requests later each time; the log grows until the end is reached.
    for _ in range(8):
        try:
            played = run_phase("phase1", mock=True, arms=ARMS, api=str(repository), resume=True)
            break
        except CrossmemError:
            continue
    assert outcome(played) == undisturbed


def test_a_run_is_not_resumed_over_a_tree_that_has_changed(made: Builder, results: Path) -> None:
    repository = made(ODD, die_at=20)
    with pytest.raises(CrossmemError):
        run_phase("phase1", mock=True, arms="A0", api=str(repository))
    settings = repository / "service/core/settings.json"
    was = settings.read_text()
    settings.write_text(was.replace('"die_at": 20', '"die_at": 21'))
    with pytest.raises(InputError, match=r"resume: .*theirs has changed since the run in .* began"):
        run_phase("phase1", mock=True, arms="A0", api=str(repository), resume=True)
    settings.write_text(was)
    with pytest.raises(CrossmemError, match="the last words"):
        run_phase("phase1", mock=True, arms="A0", api=str(repository), resume=True)


def test_a_tree_that_changes_while_the_run_goes_on_is_not_mixed_in(
    made: Builder, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = made(PLAIN)
    serve = Checkout.serve

    def edited(self: Checkout, copy: Path, *more: Any) -> Any:
        if copy.name == "A2-0":
            (repository / "app/rules.py").write_text("# edited in between\n")
        return serve(self, copy, *more)

    monkeypatch.setattr(Checkout, "serve", edited)
    with pytest.raises(CrossmemError, match="theirs has changed since the run began"):
        run_phase("phase1", mock=True, arms="A0,A2", api=str(repository), max_concurrency=1)
    nobody_left(results, within_s=0)


def test_the_results_folder_may_not_lie_in_the_checkout(
    watched: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = watched(PLAIN)
    monkeypatch.setenv(RESULTS_VARIABLE, str(repository / "results"))
    with pytest.raises(InputError, match=r"lies in the checkout.* CROSSMEM_RESULTS"):
        run_phase("phase1", mock=True, arms="A0", api=str(repository))


def test_the_watch_sees_what_must_not_happen(made: Builder) -> None:
    """The tests above would fail if a file, a time or the index changed."""
    repository = made(PLAIN)
    before = state(repository)
    for change in (
        partial((repository / "new").touch),
        partial(os.utime, repository / "app/main.py", ns=(1, 1)),
        partial(os.utime, repository / ".git/index", ns=(1, 1)),
        partial((repository / "tables/celiac_brands.json").chmod, 0o600),
    ):
        change()
        after = state(repository)
        assert after != before
        before = after
