"""What cannot be used is said in a line, before anything starts where that can be; nothing stays."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from running import run_phase, settings_of

from crossmem import study
from crossmem.errors import CrossmemError, InputError
from crossmem.upstream import process

from .conftest import Builder, nobody_left
from .foreign import ODD, PACKAGE, PLAIN, SRC, copies


def refused(said: str, **given: Any) -> str:
    with pytest.raises(InputError, match=said) as caught:
        run_phase("phase1", **{"mock": True, "arms": "A0", **given})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def report(tmp_path: Path, **given: Any) -> subprocess.CompletedProcess[str]:
    """Run `crossmem report phase1` as a person does."""
    given = {"mock": True, "arms": "A0", **given}
    pairs = [word for name, value in given.items() for word in ("-p", name, str(value))]
    tool = str(Path(sys.executable).with_name("crossmem"))
    command = [tool, "report", "phase1", "-o", str(tmp_path / "page.html"), *pairs]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("path", ["none/such", "file", "\0", "~no-such-user/apis"])
def test_a_path_that_is_no_folder_is_refused(
    path: str, tmp_path: Path, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    refused(r"parameter api = .*: no such folder; 'embedded', or the path of a checkout", api=path)
    assert not results.exists()


def test_a_folder_without_a_profile_is_told_what_to_write(tmp_path: Path, results: Path) -> None:
    (tmp_path / "empty").mkdir()
    said = refused("empty has no profile: write .*/empty.toml", api=str(tmp_path / "empty"))
    assert said.endswith(f"`crossmem doctor --api {tmp_path / 'empty'}` checks it")
    assert not results.exists()


START: dict[str, tuple[str, int]] = {
    "fail_at_import": ("RuntimeError: this app cannot be imported", 1),
    "fail_at_startup": ("RuntimeError: this app has no database", 3),
}


@pytest.mark.parametrize("trouble", START)
def test_an_app_that_does_not_start_shows_its_last_lines_and_leaves_nothing(
    trouble: str, watched: Builder, results: Path
) -> None:
    said, code = START[trouble]
    how: dict[str, Any] = {trouble: True}
    with pytest.raises(CrossmemError) as caught:
        run_phase("phase1", mock=True, arms="A0,A1,A2", api=str(watched(PLAIN, **how)))
    assert str(caught.value).startswith(f"the API did not start (exit {code}); the last lines of ")
    assert said in str(caught.value)
    assert "resume" not in str(caught.value)
    assert copies(results) == []
    assert not list(results.glob("*.jsonl"))
    (logs,) = results.glob("*.logs")
    assert any(said in log.read_text() for log in logs.iterdir())  # the others were ended with it
    nobody_left(results, within_s=0)


def test_an_app_that_never_answers_is_given_up(
    watched: Builder, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "START_S", 0.5)
    with pytest.raises(
        CrossmemError, match=r"the API did not answer within 0 s; the last lines of A0-0"
    ):
        run_phase("phase1", mock=True, arms="A0", api=str(watched(PLAIN, slow=30)))
    nobody_left(results, within_s=0)
    assert copies(results) == []


def test_an_app_whose_name_is_wrong_is_shown_uvicorns_words(made: Builder, results: Path) -> None:
    repository = made()
    toml = repository / "upstream.toml"
    toml.write_text(toml.read_text().replace("main:app", "main:application"))
    with pytest.raises(CrossmemError, match='Attribute "application" not found'):
        run_phase("phase1", mock=True, arms="A0", api=str(repository))
    nobody_left(results, within_s=0)


def test_a_wrong_token_variable_stops_the_run_at_the_reload_with_the_status(
    made: Builder, results: Path
) -> None:
    repository = made(replace(PLAIN, token_header="X-Other"))
    toml = repository / "upstream.toml"
    toml.write_text(toml.read_text().replace("X-Other", "X-Wrong"))
    with pytest.raises(CrossmemError, match=r"the server did not reload its tables: 403"):
        run_phase("phase1", mock=True, arms="A0", api=str(repository))
    assert copies(results) == []


def test_a_table_of_another_shape_than_its_snapshot_is_refused(made: Builder, results: Path) -> None:
    repository = made()
    path = repository / "tables/celiac_brands.snapshots/3.0.0.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "rows": {"flour": "a brand"}}))
    refused(r"3\.0\.0\.json has another shape than .*celiac_brands\.json", api=str(repository))
    assert not results.exists()


@pytest.mark.parametrize("text", ["{", "[]", '{"version": "1", "rows": 5}', '{"rows": {}}', "\xff"])
def test_a_file_that_is_no_table_is_refused(text: str, made: Builder, results: Path) -> None:
    repository = made()
    (repository / "tables/celiac_brands.json").write_text(text, encoding="latin-1")
    refused(r"celiac_brands\.json is no table file", api=str(repository))
    assert not results.exists()


def test_an_empty_table_has_no_shape_to_differ_in(made: Builder) -> None:
    repository = made()
    (repository / "tables/incompatible_ingredients.json").write_text('{"version": "1", "rows": {}}')
    played = run_phase("phase1", mock=True, arms="A0", api=str(repository))
    assert played.rows["success"].all()


def test_a_missing_snapshot_of_the_stream_is_said_before_anything_starts(
    made: Builder, results: Path
) -> None:
    repository = made()
    (repository / "tables/celiac_brands.snapshots/2.0.0.json").unlink()
    refused(r"snapshots/2\.0\.0\.json is missing, and the stream phase1 needs it", api=str(repository))
    assert not results.exists()


def test_a_port_that_is_taken_is_said_before_anything_starts(watched: Builder, results: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        repository = watched(replace(PLAIN, server=f"port = {port}"))
        refused(rf"port {port} of the profile is taken", api=str(repository))
    assert not results.exists()


def test_a_python_that_does_not_exist_is_said_before_anything_starts(
    watched: Builder, results: Path
) -> None:
    repository = watched(PLAIN)
    for python in ("/none/such/python", "no-such-python"):
        said = refused("api_python: cannot run", api=str(repository), api_python=python)
        assert said.endswith(f"cannot run {python}: No such file or directory")
    refused("api_python: cannot run .*: Permission denied", api=str(repository), api_python="/")
    assert not results.exists()


def test_a_python_without_uvicorn_is_said_before_anything_starts(
    watched: Builder, results: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec "{Path(sys.executable).resolve()}" -I -S "$@"\n')
    bare.chmod(0o755)
    said = refused("cannot import uvicorn", api=str(watched(PLAIN)), api_python=str(bare))
    assert "ModuleNotFoundError: No module named 'uvicorn'" in said
    assert not results.exists()


@pytest.mark.parametrize(("big", "said"), [(600, True), (0, False)])
def test_a_large_checkout_is_said_before_it_is_copied(
    made: Builder, results: Path, capsys: pytest.CaptureFixture[str], *, big: int, said: bool
) -> None:
    repository = made()
    for name in ("big.bin", "ignored.secret"):
        with (repository / name).open("wb") as file:
            file.truncate(big * 1024**2)  # a hole: it takes no room
    study.check(settings_of("phase1", mock=True, arms="A0,A2", api=str(repository)))
    told = "theirs holds 600 MB, and 2 private copies are made of it"
    assert (told in capsys.readouterr().err) is said
    assert not results.exists()


def test_an_arm_that_reads_versions_is_refused_where_there_are_none(
    watched: Builder, results: Path
) -> None:
    refused(
        r"arms: A2V reads the API's versions.*no endpoint for them", api=str(watched()), arms="A0,A2V"
    )
    assert not results.exists()


def test_an_endpoint_for_versions_that_tells_none_is_no_silent_a2(made: Builder, results: Path) -> None:
    repository = made(SRC)
    toml = repository / "upstream.toml"
    toml.write_text(toml.read_text().replace("/meta/versions", "/nowhere"))
    with pytest.raises(CrossmemError, match=r"the API tells no versions: GET /nowhere gave 404"):
        run_phase("phase1", mock=True, arms="A2V", api=str(repository))


@pytest.mark.parametrize("plan", [SRC, PACKAGE])
def test_an_arm_that_reads_versions_runs_where_there_are_some(plan: Any, watched: Builder) -> None:
    played = run_phase("phase1", mock=True, arms="A2V", api=str(watched(plan)))
    assert played.rows["attempts"].sum() == 35
    assert not played.rows["stale_attempt"].any()


@pytest.mark.parametrize("trouble", ["reads_other_files", "reloads_nothing"])
def test_an_app_that_does_not_follow_its_table_files_is_noticed(
    trouble: str, watched: Builder, results: Path
) -> None:
    how: dict[str, Any] = {trouble: True}
    said = (
        r"celiac_brands is at 1\.0\.0, its table file that it is at 2\.0\.0: it reads other files than"
    )
    with pytest.raises(CrossmemError, match=said):
        run_phase("phase1", mock=True, arms="A0", api=str(watched(PLAIN, **how)))


# -- the same in a report ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_report_of_a_bad_path_is_one_line(tmp_path: Path, results: Path) -> None:
    done = report(tmp_path, api="none/such")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("crossmem: parameter api = 'none/such': no such folder")


@pytest.mark.slow
def test_a_report_of_an_app_that_does_not_start_has_its_words_and_no_traceback_of_ours(
    tmp_path: Path, watched: Builder, results: Path
) -> None:
    done = report(tmp_path, api=watched(PLAIN, fail_at_startup=True))
    assert done.returncode == 1
    assert "crossmem: the API did not start (exit 3)" in done.stderr
    assert "RuntimeError: this app has no database" in done.stderr
    assert "study.py" not in done.stderr
    assert "ipykernel" not in done.stderr
    nobody_left(results)


@pytest.mark.slow
def test_a_report_over_a_relative_path_says_whose_api_and_whose_diffs(
    tmp_path: Path, watched: Builder, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    watched(replace(ODD, branch="elsewhere", profile=False), name="self-reflective-apis")
    (tmp_path / "self-reflective-apis.toml").write_text(ODD.toml)
    done = report(tmp_path, api="self-reflective-apis", arms="A2,A2D")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "The API is a checkout, self-reflective-apis at elsewhere" in page
    assert "expected feature/versionable-tables, but the checkout is at elsewhere" in page
    assert "Its reload gives no structured diff: what A2D was handed, the harness computed." in page
    assert str(tmp_path / "self-reflective-apis") not in page
