"""A study that is killed, interrupted, or loses its server or its disk goes on where it stopped."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from running import ALL, log_lines, logs_of, outcome, replayed

from crossmem.api.server import serving
from crossmem.client import ApiClient
from crossmem.errors import CrossmemError, InputError
from crossmem.harness import results as results_files
from crossmem.harness.episode import Replay
from crossmem.harness.log import LogError
from crossmem.paths import RESULTS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from crossmem.harness.results import Run

pytestmark = pytest.mark.slow

RUN = "import crossmem as cm; print(cm.phase1(**json.loads(sys.argv[1])).path)"
KILL = "os.kill(os.getpid(), 9)"
ON = "the same run with resume=True completes it"


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of all arms that nothing happened to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(RESULTS_VARIABLE, str(tmp_path_factory.mktemp("undisturbed")))
        return replayed()


def start(*hook: str, **given: Any) -> subprocess.Popen[str]:
    """Run the study in a process of its own; `hook` is run before it."""
    code = "\n".join(["import json, os, sys", *hook, RUN])
    command = [sys.executable, "-c", code, json.dumps({**ALL, **given})]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> Run:
    """Return the run of a process that ends well."""
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return results_files.load(Path(out.strip()))


def resumed(**given: Any) -> Run:
    """Continue the unfinished run, in this process."""
    return replayed(**{"resume": True, **given})


def killed(process: subprocess.Popen[str]) -> None:
    """Return when the process has been ended by SIGKILL."""
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def until(process: subprocess.Popen[str], reached: Callable[[], bool]) -> list[int]:
    """Return the ports on which the process listens as soon as a state is reached."""
    deadline = time.monotonic() + 60
    while not reached():
        assert process.poll() is None, "it ended before it could be disturbed"
        assert time.monotonic() < deadline
        time.sleep(0.001)
    connections = psutil.Process(process.pid).net_connections("tcp4")
    return [each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN]


def refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def unfinished(folder: Path) -> Path:
    (log,) = logs_of(folder, ended=False)
    return log


def assert_whole(run: Run, folder: Path, undisturbed: Run) -> None:
    """The run equals one that nothing happened to, and left nothing but its log."""
    assert outcome(run) == outcome(undisturbed)
    assert run.config["parameters"] == undisturbed.config["parameters"]
    assert run.config["ended"]
    assert run.path in logs_of(folder, ended=True)
    assert logs_of(folder, ended=False) == []
    assert not list(folder.glob(".*"))


# -- kill -9 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [1, 45, 100, 160])
def test_a_run_killed_at_any_size_of_its_log_ends_as_if_undisturbed(
    lines: int, results: Path, undisturbed: Run
) -> None:
    process = start()
    ports = until(process, lambda: log_lines(results) >= lines)
    process.kill()
    killed(process)
    assert all(map(refuses, ports))
    log = unfinished(results)
    assert_whole(finished(start(resume=True)), results, undisturbed)
    assert [path.name for path in results.iterdir()] == [log.name]


LOG = "import crossmem.harness.log as l\n"
EXACTLY = {
    "the config on disk, no episode yet": (f"import crossmem.study as s\ns.Runner = lambda *_: {KILL}"),
    "half a line into the log": (
        f"{LOG}def put(self, line, whole=l.RunLog._put):\n"
        "    if b'\"index\":9,' in line:\n"
        "        self._file.write(line[:len(line) // 2]); self._file.flush()\n"
        f"        {KILL}\n"
        "    whole(self, line)\n"
        "l.RunLog._put = put"
    ),
    "a line in the log, not yet synced": (
        f"{LOG}def append(self, record, whole=l.RunLog.append):\n"
        "    if record.row.index == 12:\n"
        f"        l.os = type('os', (), {{'fsync': lambda _: {KILL}}})\n"
        "    whole(self, record)\n"
        "l.RunLog.append = append"
    ),
    "the table swapped, not yet reloaded": (
        f"import crossmem.client as c\nc.ApiClient.reload = lambda _: {KILL}"
    ),
    "an episode after the drift": (
        "import crossmem.harness.episode as h\n"
        "def episode(self, index, whole=h.Replay.episode):\n"
        f"    if index == 17 and self.memory.arm.name == 'A2': {KILL}\n"
        "    return whole(self, index)\n"
        "h.Replay.episode = episode"
    ),
    "every episode on disk, the run not yet ended": f"{LOG}l.RunLog.end = lambda *_: {KILL}",
}


@pytest.mark.parametrize("point", EXACTLY)
def test_a_run_killed_at_a_delicate_point_ends_as_if_undisturbed(
    point: str, results: Path, undisturbed: Run
) -> None:
    killed(start(EXACTLY[point]))
    log = unfinished(results)
    with pytest.raises(InputError, match="no results file"):
        replayed(results="latest")
    with pytest.raises(InputError, match="is unfinished; the same run with resume"):
        replayed(results=str(log))
    assert_whole(resumed(), results, undisturbed)
    assert len(list(results.iterdir())) == 1


def test_a_run_killed_before_its_config_is_on_disk_has_left_no_log(results: Path) -> None:
    killed(start(f"{LOG}l.RunLog._put = lambda *_: {KILL}"))
    assert logs_of(results, ended=False) == []
    with pytest.raises(InputError, match="no unfinished run"):
        replayed(resume=True)


def test_the_private_copies_of_a_killed_run_go_with_the_next(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    process = start()
    until(process, lambda: log_lines(results) >= 20)
    process.send_signal(signal.SIGSTOP)  # or it might end meanwhile
    assert replayed(arms="A0")  # beside it: what a live run holds stays
    (folder,) = tmp_path.glob("crossmem-run-*")
    process.kill()
    killed(process)
    assert (folder / "A2-0").exists()
    replayed(arms="A0")
    assert not folder.exists()


def test_a_run_killed_again_while_it_resumes_ends_as_if_undisturbed(
    results: Path, undisturbed: Run
) -> None:
    for lines, resume in ((40, False), (80, True), (120, True)):
        process = start(resume=resume)
        until(process, lambda: log_lines(results) >= lines)  # noqa: B023
        process.kill()
        killed(process)
        unfinished(results)
    assert_whole(resumed(), results, undisturbed)


# -- Ctrl-C --------------------------------------------------------------------------------------


def test_ctrl_c_says_how_to_go_on_and_leaves_a_log_and_no_server(
    results: Path, undisturbed: Run
) -> None:
    process = start()
    ports = until(process, lambda: log_lines(results) >= 40)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    assert f"What is done stays in {unfinished(results)}; {ON}" in err
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1
    assert all(map(refuses, ports))
    assert_whole(resumed(), results, undisturbed)


def test_ctrl_c_in_a_report_is_told_in_the_terminal_and_can_be_resumed(
    results: Path, tmp_path: Path, undisturbed: Run
) -> None:
    html = tmp_path / "report" / "page.html"
    tool = Path(sys.executable).with_name("crossmem")
    command = [tool, "report", "phase1", "-o", html, "-p", "mock", "True", "-p", "arms", ALL["arms"]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(process, lambda: log_lines(results) >= 40)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert ON in err
    assert "Traceback" not in err
    assert "This run did not finish" in html.read_text(encoding="utf-8")
    assert_whole(resumed(), results, undisturbed)


# -- a server that dies --------------------------------------------------------------------------


@pytest.fixture
def fatal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have the real server of an arm stop right before a request (`A2/0/18/2`)."""
    servers: dict[str, Any] = {}
    submit = ApiClient.submit

    def remembered(domain: str, tables: Path, *more: Any) -> Any:
        context = serving(domain, tables, *more)

        class Remembered:
            def __enter__(self) -> Any:
                servers[tables.name] = context.__enter__()
                return servers[tables.name]

            def __exit__(self, *error: Any) -> Any:
                return context.__exit__(*error)

        return Remembered()

    def at(place: str) -> None:
        arm, replicate, *_ = place.split("/")

        def stopping(self: ApiClient, endpoint: str, request: Any, headers: Any = None) -> Any:
            if headers and headers["Idempotency-Key"].endswith(f"/{place}"):
                servers[f"{arm}-{replicate}"].stop()
            return submit(self, endpoint, request, headers)

        monkeypatch.setattr("crossmem.upstream.embedded.serving", remembered)
        monkeypatch.setattr(ApiClient, "submit", stopping)

    return at


@pytest.mark.parametrize("place", ["A2/0/0/1", "A2/0/18/2", "A0/0/23/1"])
def test_a_server_that_dies_stops_the_run_with_the_reason_and_resume_completes_it(
    place: str,
    fatal: Callable[[str], None],
    results: Path,
    undisturbed: Run,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fatal(place)
    with pytest.raises(CrossmemError) as caught:
        replayed()
    said = str(caught.value)
    assert "the API at http://127.0.0.1:" in said
    assert "does not answer /recipes/convert" in said
    assert f"What is done stays in {unfinished(results)}; {ON}" in said
    assert "Traceback" not in capfd.readouterr().err
    monkeypatch.undo()
    monkeypatch.setenv(RESULTS_VARIABLE, str(results))
    assert_whole(replayed(resume=True), results, undisturbed)


# -- whose log it is -----------------------------------------------------------------------------


@pytest.fixture
def stopped(results: Path) -> Path:
    """The log of an A2 run that stopped with twelve episodes done."""
    episode = Replay.episode

    def failing(self: Replay, index: int) -> Any:
        if index == 12:
            raise CrossmemError("stopped here")
        return episode(self, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replay, "episode", failing)
        with pytest.raises(CrossmemError, match="stopped here"):
            replayed(arms="A2")
    log = unfinished(results)
    assert log.read_bytes().count(b"\n") == 13
    return log


def test_a_run_that_is_going_on_is_not_resumed_by_another_process(
    results: Path, undisturbed: Run
) -> None:
    process = start()
    until(process, lambda: log_lines(results) >= 40)
    process.send_signal(signal.SIGSTOP)
    try:
        log = unfinished(results)
        with pytest.raises(InputError) as caught:
            replayed(resume=True)
        assert str(caught.value) == f"the run in {log} is still going on in another process"
        assert replayed(arms="A0").path != log  # a new run takes a log of its own
        assert unfinished(results) == log
    finally:
        process.send_signal(signal.SIGCONT)
    assert_whole(finished(process), results, undisturbed)


def test_runs_that_start_in_the_same_second_do_not_share_a_name(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossmem.harness.runner import now

    moment = now()
    monkeypatch.setattr("crossmem.study.now", lambda: moment)
    names = {replayed(arms="A0").path for _ in range(3)}
    assert sorted(names) == logs_of(results, ended=True)
    assert len(names) == 3


@pytest.mark.parametrize("tail", [b"0", b'{"crc32":"deadbeef","episode":{', b'{"ended": "20'])
def test_a_torn_tail_is_cut(tail: bytes, stopped: Path, undisturbed: Run) -> None:
    with stopped.open("ab") as log:
        log.write(tail)
    assert outcome(replayed(arms="A2", resume=True)) == outcome(undisturbed, "A2")


@pytest.mark.parametrize("cut", [1, 2000])
def test_an_episode_whose_line_is_cut_short_is_replayed(
    cut: int, stopped: Path, undisturbed: Run
) -> None:
    stopped.write_bytes(stopped.read_bytes()[:-cut])
    assert outcome(replayed(arms="A2", resume=True)) == outcome(undisturbed, "A2")


def damage(log: Path, line: int) -> None:
    """Change one letter in the middle of a line."""
    lines = log.read_bytes().splitlines(keepends=True)
    text = bytearray(lines[line - 1])
    text[len(text) // 2] ^= 1
    lines[line - 1] = bytes(text)
    log.write_bytes(b"".join(lines))


def without(log: Path, line: int) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[: line - 1], *lines[line:]]))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda log: damage(log, 5), "damaged in line 5 of 13: its checksum does not hold"),
        (lambda log: damage(log, 13), "damaged in line 13 of 13: its checksum does not hold"),
        (lambda log: without(log, 5), "damaged in line 5 of 12: A2 skips or repeats an episode"),
        (
            lambda log: log.write_bytes(log.read_bytes() + log.read_bytes().splitlines(True)[-1]),
            "damaged in line 14 of 14: A2 skips or repeats an episode",
        ),
        (lambda log: log.write_bytes(log.read_bytes() + b"{}\n"), "line 14 of 14: it is neither"),
    ],
)
def test_damage_is_refused_the_line_named_and_nothing_changed(
    harm: Callable[[Path], None], said: str, stopped: Path
) -> None:
    harm(stopped)
    before = stopped.read_bytes()
    with pytest.raises(LogError, match=said) as caught:
        replayed(arms="A2", resume=True)
    assert stopped.read_bytes() == before
    assert "resume=True completes it" not in str(caught.value)


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ({"keying": "task"}, "keying 'request', not 'task'"),
        ({"arms": "A2,A0"}, "arms 'A2', not 'A2,A0'"),
        ({"max_attempts": 4}, "max_attempts 5, not 4"),
        ({"seed": 1, "max_attempts": 4}, "max_attempts 5, not 4, seed 0, not 1"),
    ],
)
def test_resume_with_other_parameters_is_refused_and_names_what_differs(
    other: dict[str, Any], differs: str, stopped: Path
) -> None:
    with pytest.raises(InputError) as caught:
        replayed(**{"arms": "A2", "resume": True, **other})
    said = str(caught.value)
    assert said.startswith("resume: no unfinished run of phase1 with these parameters")
    assert said.endswith(f": {stopped.name} has {differs}")


def test_resume_with_nothing_unfinished_is_refused(results: Path) -> None:
    with pytest.raises(InputError, match=r"no unfinished run of phase1 with these parameters in \S+$"):
        replayed(resume=True)
    assert list(results.iterdir()) == []


def test_resume_over_another_wording_of_prompts_is_refused(
    stopped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stopped.read_bytes()
    monkeypatch.setattr("crossmem.harness.config.BASE_INSTRUCTION", "Be brief.")
    with pytest.raises(InputError, match="resume: the wording of its prompts has changed since"):
        replayed(arms="A2", resume=True)
    assert stopped.read_bytes() == before


def test_resume_takes_the_newest_of_several(stopped: Path, results: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replay, "episode", lambda *_: (_ for _ in ()).throw(CrossmemError("again")))
        with pytest.raises(CrossmemError, match="again"):
            replayed(arms="A2")
    (newer,) = set(logs_of(results, ended=False)) - {stopped}
    assert replayed(arms="A2", resume=True).path == newer
    assert unfinished(results) == stopped


# -- a disk that takes no more -------------------------------------------------------------------


@pytest.fixture
def never_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "crossmem.upstream.embedded.serving", lambda *_: pytest.fail("a server was started")
    )


@pytest.fixture
def small_disk(results: Path) -> Iterator[Callable[[str], None]]:
    """Make the results folder a disk of its own, of the size asked for; again to change the size."""
    results.mkdir()
    mounted = False

    def sized(size: str) -> None:
        nonlocal mounted
        options = f"remount,size={size}" if mounted else f"size={size}"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(results)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.SubprocessError):
            pytest.skip("no small disk can be mounted here")
        mounted = True

    yield sized
    if mounted:
        subprocess.run(["umount", "-l", str(results)], check=True)


@pytest.mark.usefixtures("never_served")
def test_a_file_in_the_place_of_the_results_folder_is_said_before_anything_starts(
    results: Path,
) -> None:
    results.write_text("not a folder")
    with pytest.raises(InputError, match=rf"cannot write to {results}: .*{RESULTS_VARIABLE}"):
        replayed()


@pytest.mark.usefixtures("never_served")
def test_a_full_disk_is_said_before_anything_starts(
    results: Path, small_disk: Callable[[str], None]
) -> None:
    small_disk("32k")
    with pytest.raises(InputError, match=rf"cannot write to {results}: No space left on device"):
        replayed()
    assert list(results.iterdir()) == []


@pytest.mark.usefixtures("never_served")
@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_refused_write_is_said_before_anything_starts(
    reason: int, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: int) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "fsync", refused)
    with pytest.raises(InputError, match=rf"cannot write to {results}: {os.strerror(reason)}"):
        replayed()


def test_a_disk_that_fills_up_in_the_middle_can_be_freed_and_the_run_resumed(
    results: Path, small_disk: Callable[[str], None], undisturbed: Run
) -> None:
    small_disk("96k")
    process = start(arms="A0,A2")
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "No space left on device" in err
    assert ON in err
    unfinished(results)
    assert 2 < log_lines(results) < 49
    small_disk("8m")
    assert outcome(resumed(arms="A0,A2")) == outcome(undisturbed, "A0", "A2")


def full_at(nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the nth sync of the log fail for want of space."""
    calls = iter(range(1, 10_000))

    class Full:
        SEEK_END = os.SEEK_END

        @staticmethod
        def fsync(handle: int) -> None:
            if next(calls) == nth:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(handle)

    monkeypatch.setattr("crossmem.harness.log.os", Full)


def test_a_log_that_finds_no_space_stops_the_run_for_people_and_resume_completes_it(
    results: Path, undisturbed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_at(30, monkeypatch)
    with pytest.raises(CrossmemError, match=f"No space left on device.*{ON}"):
        replayed()
    assert_whole(replayed(resume=True), results, undisturbed)


def test_a_log_that_cannot_be_begun_leaves_nothing(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_at(1, monkeypatch)
    with pytest.raises(InputError, match=rf"cannot write to {results}: No space left on device"):
        replayed()
    assert list(results.iterdir()) == []
    held = [each.path for each in psutil.Process().open_files()]
    assert not [path for path in held if path.startswith(str(results))]
