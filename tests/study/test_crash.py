"""A study that is killed, interrupted, or loses its server or its disk goes on where it stopped."""

from __future__ import annotations

import errno
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import journals
import psutil
import pytest

from crossmem.api.server import serving
from crossmem.client import ApiClient
from crossmem.errors import CrossmemError, InputError
from crossmem.paths import RESULTS_VARIABLE
from crossmem.run import results as results_files
from crossmem.run.episode import Replay
from crossmem.run.log import Journal, JournalError

from .helpers import ALL, outcome, replayed, unfinished, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from crossmem.run.results import Run

pytestmark = pytest.mark.slow

RUN = "from crossmem.study import run; print(run_phase('phase1', **json.loads(sys.argv[1])).path)"
KILL = "os.kill(os.getpid(), 9)"


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
    """Continue the unfinished run in a new process."""
    return finished(start(resume=True, **given))


def killed(process: subprocess.Popen[str]) -> None:
    """Return when the process has been ended by SIGKILL."""
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def journalled(folder: Path) -> int:
    """Count the lines in all journals: a header each, and an episode each."""
    return journals.lines(folder)


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


def assert_whole(run: Run, folder: Path, undisturbed: Run) -> None:
    """The run equals one that nothing happened to, and left nothing but its file."""
    assert outcome(run) == outcome(undisturbed)
    assert {**run.config["parameters"]} == undisturbed.config["parameters"]
    assert run.config["ended"]
    assert unfinished(folder) == []
    assert run.path.name in visible(folder)


# -- kill -9 -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", [1, 45, 100, 160])
def test_a_run_killed_at_any_size_of_its_journals_ends_as_if_undisturbed(
    lines: int, results: Path, undisturbed: Run
) -> None:
    process = start()
    ports = until(process, lambda: journalled(results) >= lines)
    process.kill()
    killed(process)
    assert all(map(refuses, ports))
    assert visible(results) == []
    assert len(unfinished(results)) == 1
    assert_whole(resumed(), results, undisturbed)
    assert len(visible(results)) == 1


EXACTLY = {
    "before any journal": f"import crossmem.study as s\ns.Journal = lambda *_: {KILL}",
    "half a line into the journal": (
        "import crossmem.run.log as j\n"
        "def append(self, content, whole=j.Journal._append):\n"
        "    if content.get('index') == 9:\n"
        "        line = j._line(content)\n"
        "        self._file.write(line[:len(line) // 2]); self._file.flush()\n"
        f"        {KILL}\n"
        "    whole(self, content)\n"
        "j.Journal._append = append"
    ),
    "a line in the journal, not yet synced": (
        "import crossmem.run.log as j\n"
        "def append(self, record, whole=j.Journal.append):\n"
        "    if record.index == 12:\n"
        f"        j.os = type('os', (), {{'fsync': lambda _: {KILL}}})\n"
        "    whole(self, record)\n"
        "j.Journal.append = append"
    ),
    "the table swapped, not yet reloaded": (
        f"import crossmem.client as c\nc.ApiClient.reload = lambda _: {KILL}"
    ),
    "an episode after the drift": (
        "import crossmem.run.episode as h\n"
        "def episode(self, index, whole=h.Replay.episode):\n"
        f"    if index == 17 and self.memory.arm.name == 'A2': {KILL}\n"
        "    return whole(self, index)\n"
        "h.Replay.episode = episode"
    ),
    "the results file in place, the journals not yet gone": (
        "import crossmem.run.results as r\n"
        "def save(*given, whole=r.save, **more):\n"
        f"    whole(*given, **more); {KILL}\n"
        "r.save = save"
    ),
}


@pytest.mark.parametrize("point", EXACTLY)
def test_a_run_killed_at_a_delicate_point_ends_as_if_undisturbed(
    point: str, results: Path, undisturbed: Run
) -> None:
    killed(start(EXACTLY[point]))
    assert len(unfinished(results)) == 1
    assert visible(results) in ([], [f"{unfinished(results)[0].name}.json"])
    assert_whole(resumed(), results, undisturbed)
    assert len(visible(results)) == 1


def test_a_run_killed_again_while_it_resumes_ends_as_if_undisturbed(
    results: Path, undisturbed: Run
) -> None:
    for lines, resume in ((40, False), (80, True), (120, True)):
        process = start(resume=resume)
        until(process, lambda: journalled(results) >= lines)  # noqa: B023
        process.kill()
        killed(process)
        assert len(unfinished(results)) == 1
    assert_whole(resumed(), results, undisturbed)


HALF_WRITTEN = (
    "import contextlib, crossmem.paths as p, crossmem.run.results as r\n"
    "def dumps(content, **how):\n"
    "    text = json.dumps(content, **how)\n"
    "    return text[:{share}]\n"
    "@contextlib.contextmanager\n"
    "def whole(*given, whole=p.whole):\n"
    "    with whole(*given) as draft:\n"
    "        yield draft\n"
    f"        assert draft.stat().st_size; {KILL}\n"
    "r.json = type('json', (), {{'dumps': dumps, 'loads': json.loads}})\n"
    "p.whole = whole"
)


@pytest.mark.parametrize("share", ["len(text) // 2", "len(text)"])
def test_a_run_killed_while_it_writes_its_results_leaves_no_part_of_a_file(
    share: str, results: Path, undisturbed: Run
) -> None:
    killed(start(HALF_WRITTEN.format(share=share)))
    assert len(unfinished(results)) == 1
    assert visible(results) == []
    with pytest.raises(InputError, match="no results file"):
        replayed(results="latest")
    assert_whole(resumed(), results, undisturbed)
    assert len(visible(results)) == 1


def test_a_run_killed_while_it_writes_its_results_can_be_resumed(
    results: Path, undisturbed: Run
) -> None:
    killed(start(HALF_WRITTEN.format(share="len(text) // 2")))
    assert_whole(resumed(), results, undisturbed)


# -- Ctrl-C --------------------------------------------------------------------------------------


def test_ctrl_c_says_how_to_go_on_and_leaves_a_journal_and_no_server(
    results: Path, undisturbed: Run
) -> None:
    process = start()
    ports = until(process, lambda: journalled(results) >= 40)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode not in (0, None)
    (folder,) = unfinished(results)
    assert f"The journal stays in {folder}" in err
    assert "resume=True completes it" in err
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert err.count("Traceback") == 1
    assert all(map(refuses, ports))
    assert visible(results) == []
    assert list(folder.glob("tables/*")) == []
    assert_whole(resumed(), results, undisturbed)


def test_ctrl_c_in_a_report_is_told_in_the_terminal_and_can_be_resumed(
    results: Path, tmp_path: Path, undisturbed: Run
) -> None:
    html = tmp_path / "report" / "page.html"
    tool = Path(sys.executable).with_name("crossmem")
    command = [tool, "report", "phase1", "-o", html, "-p", "mock", "True", "-p", "arms", ALL["arms"]]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(process, lambda: journalled(results) >= 40)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "resume=True completes it" in err
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

        monkeypatch.setattr("crossmem.stage.serving", remembered)
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
    (folder,) = unfinished(results)
    assert "the API at http://127.0.0.1:" in said
    assert "does not answer /recipes/convert" in said
    assert f"The journal stays in {folder}" in said
    assert "resume=True completes it" in said
    assert "Traceback" not in capfd.readouterr().err
    assert visible(results) == []
    monkeypatch.undo()
    monkeypatch.setenv(RESULTS_VARIABLE, str(results))
    assert_whole(replayed(resume=True), results, undisturbed)


# -- whose journal it is -------------------------------------------------------------------------


@pytest.fixture
def stopped(results: Path) -> Path:
    """The journal of an A2 run that stopped with twelve episodes done."""
    episode = Replay.episode

    def failing(self: Replay, index: int) -> Any:
        if index == 12:
            raise CrossmemError("stopped here")
        return episode(self, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replay, "episode", failing)
        with pytest.raises(CrossmemError, match="stopped here"):
            replayed(arms="A2")
    (folder,) = unfinished(results)
    journal = folder / "A2-0.journal"
    assert journal.read_bytes().count(b"\n") == 13
    return journal


def test_a_run_that_is_going_on_is_not_resumed_by_another_process(
    results: Path, undisturbed: Run
) -> None:
    process = start()
    until(process, lambda: journalled(results) >= 40)
    process.send_signal(signal.SIGSTOP)
    try:
        (folder,) = unfinished(results)
        with pytest.raises(InputError) as caught:
            replayed(resume=True)
        assert str(caught.value) == f"the run in {folder} is still going on in another process"
        beside = replayed(arms="A0")  # a new run takes a folder of its own
        assert beside.path.stem != folder.name
        assert unfinished(results) == [folder]
    finally:
        process.send_signal(signal.SIGCONT)
    assert_whole(finished(process), results, undisturbed)


def test_runs_that_start_in_the_same_second_do_not_share_a_name(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossmem.run import folders

    now = folders.now()
    monkeypatch.setattr(folders, "now", lambda: now)
    names = {replayed(arms="A0").path.name for _ in range(3)}
    assert sorted(names) == visible(results)
    assert len(names) == 3


@pytest.mark.parametrize("tail", [b"0", b"deadbeef {", b"deadbeef {}\n"])
def test_a_torn_tail_is_cut(tail: bytes, stopped: Path, results: Path, undisturbed: Run) -> None:
    with stopped.open("ab") as journal:
        journal.write(tail)
    assert outcome(replayed(arms="A2", resume=True)) == outcome(undisturbed, "A2")


@pytest.mark.parametrize("cut", [1, 2000])
def test_an_episode_whose_line_is_cut_short_is_replayed(
    cut: int, stopped: Path, results: Path, undisturbed: Run
) -> None:
    content = stopped.read_bytes()
    stopped.write_bytes(content[:-cut])
    assert outcome(replayed(arms="A2", resume=True)) == outcome(undisturbed, "A2")


def test_a_journal_with_nothing_whole_in_it_starts_anew(
    stopped: Path, results: Path, undisturbed: Run
) -> None:
    stopped.write_bytes(stopped.read_bytes()[:20])
    assert outcome(replayed(arms="A2", resume=True)) == outcome(undisturbed, "A2")


def damage(journal: Path, line: int) -> None:
    """Change one letter in the middle of a line."""
    lines = journal.read_bytes().splitlines(keepends=True)
    text = bytearray(lines[line - 1])
    text[len(text) // 2] ^= 1
    lines[line - 1] = bytes(text)
    journal.write_bytes(b"".join(lines))


@pytest.mark.parametrize("line", [1, 5])
def test_damage_in_the_middle_is_refused_and_the_line_named(line: int, stopped: Path) -> None:
    damage(stopped, line)
    before = stopped.read_bytes()
    with pytest.raises(JournalError, match=rf"A2-0\.journal is damaged in line {line} of 13"):
        replayed(arms="A2", resume=True)
    assert stopped.read_bytes() == before


def test_damage_is_not_said_to_be_mended_by_resuming(stopped: Path) -> None:
    damage(stopped, 5)
    with pytest.raises(JournalError) as caught:
        replayed(arms="A2", resume=True)
    assert "resume=True completes it" not in str(caught.value)


def test_a_journal_that_lost_an_episode_is_refused(stopped: Path) -> None:
    lines = stopped.read_bytes().splitlines(keepends=True)
    stopped.write_bytes(b"".join(lines[:4] + lines[5:]))
    with pytest.raises(JournalError, match="skips or repeats an episode"):
        replayed(arms="A2", resume=True)


def test_a_journal_of_other_parameters_is_refused(stopped: Path) -> None:
    first = json.loads(stopped.read_bytes().splitlines()[0].partition(b" ")[2])
    first["parameters"]["seed"] = 5
    stopped.unlink()
    Journal(stopped, first).close()
    with pytest.raises(JournalError, match=r"belongs to another run: parameters was .*'seed': 5"):
        replayed(arms="A2", resume=True)


@pytest.mark.parametrize(
    "other", [{"keying": "task"}, {"arms": "A2,A0"}, {"max_attempts": 4}, {"seed": 1}]
)
def test_resume_with_other_parameters_is_refused_and_says_what_is_unfinished(
    other: dict[str, Any], stopped: Path
) -> None:
    with pytest.raises(InputError) as caught:
        replayed(**{"arms": "A2", "resume": True, **other})
    said = str(caught.value)
    assert said.startswith("resume: no unfinished run of phase1 with these parameters")
    assert f"unfinished there: {stopped.parent.name}" in said


def test_resume_with_nothing_unfinished_is_refused(results: Path) -> None:
    with pytest.raises(InputError, match=r"no unfinished run of phase1 .* \(unfinished there: none\)"):
        replayed(resume=True)
    assert visible(results) == []


def test_resume_takes_the_newest_of_several(stopped: Path, results: Path) -> None:
    older = stopped.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Replay, "episode", lambda *_: (_ for _ in ()).throw(CrossmemError("again")))
        with pytest.raises(CrossmemError, match="again"):
            replayed(arms="A2")
    (newer,) = set(unfinished(results)) - {older}
    assert replayed(arms="A2", resume=True).path.stem == newer.name
    assert unfinished(results) == [older]


# -- a disk that takes no more -------------------------------------------------------------------


@pytest.fixture
def never_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossmem.stage.serving", lambda *_: pytest.fail("a server was started"))


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
    small_disk("176k")
    process = start(arms="A0,A2")
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "No space left on device" in err
    assert "resume=True completes it" in err
    assert len(unfinished(results)) == 1
    assert 2 < journalled(results) < 50
    small_disk("8m")
    assert outcome(resumed(arms="A0,A2")) == outcome(undisturbed, "A0", "A2")
    assert unfinished(results) == []


def full_at(nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the nth sync of a journal fail for want of space."""
    calls = iter(range(1, 10_000))

    class Full:
        @staticmethod
        def fsync(handle: int) -> None:
            if next(calls) == nth:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(handle)

    monkeypatch.setattr("crossmem.run.log.os", Full)


def test_a_journal_that_finds_no_space_stops_the_run_and_resume_completes_it(
    results: Path, undisturbed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_at(30, monkeypatch)
    with pytest.raises((CrossmemError, OSError), match="No space left on device"):
        replayed()
    assert_whole(replayed(resume=True), results, undisturbed)


def test_no_space_in_the_middle_is_an_error_for_people(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_at(30, monkeypatch)
    with pytest.raises(CrossmemError) as caught:
        replayed()
    assert "No space left on device" in str(caught.value)
    assert "resume=True completes it" in str(caught.value)


def test_a_journal_that_cannot_be_begun_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "A2-0.journal"
    full_at(1, monkeypatch)
    with pytest.raises(OSError, match="No space left on device") as caught:
        Journal(path, {"arm": "A2"})
    still_open = [each.path for each in psutil.Process().open_files()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del caught
        gc.collect()
    assert str(path) not in still_open


TOO_BIG = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, 120_000))"


def test_a_results_file_that_finds_no_room_leaves_the_journals_and_resume_writes_it(
    results: Path, undisturbed: Run
) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    process = start(TOO_BIG)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert os.strerror(errno.EFBIG) in err
    assert visible(results) == []
    assert_whole(resumed(), results, undisturbed)


def test_a_results_file_that_finds_no_room_is_an_error_for_people(results: Path) -> None:
    _, err = start(TOO_BIG).communicate(timeout=60)
    assert err.rstrip().splitlines()[-1].startswith("crossmem.errors.CrossmemError: ")
    assert "resume=True completes it" in err
