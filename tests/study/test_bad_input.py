"""Input that a study cannot use is refused in one line, with the choices, before anything starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from running import replayed, run_phase

from crossmem import paths, settings
from crossmem.cli import main
from crossmem.errors import CrossmemError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown arm": ({"arms": "A0,A9"}, r"unknown arm 'A9'.* Choices: A0, A1, A1F, LW, LWG, A2"),
    "arm in lower case": ({"arms": "a2"}, r"unknown arm 'a2'; did you mean 'A2'\? Choices: "),
    "repeated arm": ({"arms": "A0,A2,A0"}, r"repeated arm 'A0'"),
    "no arm": ({"arms": " , "}, r"unknown arm ' , '; Choices: A0"),
    "unknown keying": ({"keying": "brand"}, r"keying = 'brand': (?=.*'task')(?=.*'request')"),
    "unknown hint style": (
        {"hint_style": "amend"},
        r"hint_style = 'amend': (?=.*'append')(?=.*'amendment')",
    ),
    "unknown api": ({"api": "elsewhere"}, r"api = 'elsewhere': .*'embedded'"),
    "misspelt parameter": (
        {"replicatess": "2"},
        r"unknown parameter 'replicatess'; did you mean 'replicates'\? Choices: model, gguf, mock",
    ),
    "no such stream": ({"stream": "phase9"}, r"'phase9'.*did you mean 'phase1'"),
    "a stream of another domain": (
        {"stream": "acme_m1"},
        r"stream 'acme_m1' is of the domain acme; phase1 replays streams of recipe",
    ),
    "no replicates": ({"replicates": "0"}, r"replicates = '?0'?: .*greater than or equal to 1"),
    "negative replicates": ({"replicates": "-3"}, r"replicates = '-3': .*greater than or equal to 1"),
    "no attempts": ({"max_attempts": "0"}, r"max_attempts = '0': .*greater than or equal to 1"),
    "ill-typed replicates": ({"replicates": "two"}, r"replicates = 'two': .*integer"),
    "broken replicates": ({"replicates": "1.5"}, r"replicates = '1.5': .*integer"),
    "ill-typed mock": ({"mock": "perhaps"}, r"mock = 'perhaps': .*boolean"),
    "ill-typed seed": ({"seed": "x"}, r"seed = 'x': .*integer"),
    "ill-typed resume": ({"resume": "2"}, r"resume = '2': .*boolean"),
    "unreadable budget": ({"budget": "six"}, r"budget 'six': cannot read 'six'.*6:420,14:none"),
    "budget of words": ({"budget": "6:420,x:none"}, r"cannot read 'x:none'"),
    "negative budget": ({"budget": "6:-1"}, r"budget '6:-1': cannot read '6:-1'"),
    "model without profile": ({"model": "gpt-9"}, r"model 'gpt-9' has no scripted.*haiku, sonnet"),
    "live model": ({"mock": "False"}, r"mock=False .*ANTHROPIC_API_KEY.*mock=True.*model=local"),
}


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server must not start in this process."""
    monkeypatch.setattr(
        "crossmem.upstream.embedded.serving", lambda *_: pytest.fail("a server was started")
    )


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("case", BAD)
def test_a_bad_parameter_is_refused_in_python(case: str, results: Path) -> None:
    given, said = BAD[case]
    with pytest.raises(InputError, match=said) as caught:
        run_phase("phase1", **{"mock": True, **given})
    assert "\n" not in str(caught.value)
    assert not results.exists()


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("replicates", 0),
        ("replicates", 1.5),
        ("replicates", None),
        ("replicates", [1]),
        ("arms", None),
        ("arms", ["A0"]),
        ("mock", "maybe"),
        ("max_attempts", float("nan")),
        ("budget", {"6": 420}),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(name: str, value: object, results: Path) -> None:
    with pytest.raises(InputError, match=rf"^parameter {name} = "):
        run_phase("phase1", **{"mock": True, name: value})


def test_without_any_parameter_the_three_ways_to_a_model_are_said(results: Path) -> None:
    with pytest.raises(InputError, match=r"mock=False asks for the live model .* Three ways on"):
        run_phase("phase1")


def crossmem(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("crossmem"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def pairs(given: dict[str, Any]) -> list[str]:
    return [word for name, value in given.items() for word in ("-p", name, str(value))]


@pytest.mark.parametrize("case", BAD)
def test_a_bad_parameter_is_one_line_on_the_command_line_before_a_kernel_starts(
    case: str, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "crossmem.report.execute.report", lambda *_: pytest.fail("a kernel was started")
    )
    given, said = BAD[case]
    html = tmp_path / "report" / "page.html"
    arguments = ["report", "phase1", "-o", str(html), *pairs({"mock": "True", **given})]
    answer = CliRunner().invoke(main, arguments)
    assert answer.exit_code == 2
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert line.startswith("crossmem: ")
    assert re.search(said, line)
    assert not html.parent.exists()
    assert not results.exists()


@pytest.mark.parametrize("case", ["misspelt parameter", "live model"])
def test_a_bad_parameter_ends_the_real_command_quickly_and_with_status_2(
    case: str, results: Path, tmp_path: Path
) -> None:
    given, said = BAD[case]
    html = tmp_path / "page.html"
    started = time.monotonic()
    answer = crossmem("report", "phase1", "-o", html, *pairs({"mock": "True", **given}))
    assert time.monotonic() - started < 10
    assert answer.returncode == 2
    assert answer.stdout == ""
    (line,) = answer.stderr.splitlines()
    assert re.search(said, line)
    assert not html.exists()
    assert not results.exists()


@pytest.mark.slow
@pytest.mark.parametrize("case", ["misspelt parameter", "unknown arm", "no replicates"])
def test_plain_papermill_is_stopped_by_the_guard_cell(case: str, results: Path, tmp_path: Path) -> None:
    given, said = BAD[case]
    command = [
        str(Path(sys.executable).with_name("papermill")),
        str(paths.notebooks() / "phase1.ipynb"),
        str(tmp_path / "out.ipynb"),
        "--no-progress-bar",
        *pairs({"mock": "True", **given}),
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert answer.returncode != 0
    assert re.search(f"InputError: .*{said}", answer.stderr)
    executed = json.loads((tmp_path / "out.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in executed["cells"] if cell["cell_type"] == "code"]
    ran = [cell["execution_count"] for cell in cells if "guard" in cell["metadata"].get("tags", [])]
    assert ran != [None]
    assert [cell["outputs"] for cell in cells if "run" in cell["metadata"].get("tags", [])] == [[]]
    (output,) = [out for cell in cells for out in cell["outputs"] if out["output_type"] == "error"]
    assert len(output["traceback"]) == 1  # one line, no frames
    assert not results.exists()


# -- results files -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The lines of a results file of Phase 1."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(paths.RESULTS_VARIABLE, str(tmp_path_factory.mktemp("good")))
        return replayed(arms="A0,A2").path.read_text(encoding="utf-8").splitlines(keepends=True)


def with_head(**changed: object) -> Callable[[list[str]], str]:
    """Change members of the first line."""
    return lambda lines: "".join([json.dumps({**json.loads(lines[0]), **changed}) + "\n", *lines[1:]])


def configured(name: str, value: object) -> Callable[[list[str]], str]:
    def changed(lines: list[str]) -> str:
        return with_head(config={**json.loads(lines[0])["config"], name: value})(lines)

    return changed


FILES: dict[str, tuple[Callable[[list[str]], str], str]] = {
    "another schema": (with_head(schema=3), r"has schema 3; this version reads schema 2"),
    "no schema": (lambda _: "{}\n", r"has schema None; this version reads schema 2"),
    "a list": (lambda _: "[1]\n", r"does not begin with the config of a run"),
    "another grading": (with_head(grading=2), r"has grading 2; this version reads grading 1 "),
    "truncated": (lambda lines: "".join(lines)[:-3000], r"is unfinished; the same run with resume"),
    "empty": (lambda _: "", r"does not begin with the config of a run"),
    "an episode of another shape": (
        lambda lines: "".join([*lines[:2], '{"crc32":"a2a03d56","episode":{"row":1}}\n', *lines[2:]]),
        r"is damaged in line 3 of 51: ",
    ),
    "another phase": (configured("phase", "phase2"), r"is of phase2 on stream phase1, not of phase1"),
}


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("case", FILES)
def test_a_results_file_that_does_not_fit_is_refused(
    case: str, good: list[str], tmp_path: Path, results: Path
) -> None:
    written, said = FILES[case]
    path = tmp_path / "given.jsonl"
    path.write_text(written(good), encoding="utf-8")
    with pytest.raises(CrossmemError, match=rf"^results: .*{said}") as caught:
        run_phase("phase1", results=str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("name", ["none.jsonl", "folder", "binary.jsonl", "old.json"])
def test_a_results_file_that_is_none_is_refused(name: str, tmp_path: Path, results: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)))
    (tmp_path / "old.json").write_text('{"schema": 1, "grading": 1, "config": {}, "rows": []}')
    with pytest.raises(InputError, match=rf"^results: .*{name}") as caught:
        run_phase("phase1", results=str(tmp_path / name))
    assert name != "old.json" or "has schema 1; this version reads schema 2" in str(caught.value)


def test_latest_takes_the_newest_that_fits_and_passes_over_the_rest(
    good: list[str], results: Path
) -> None:
    results.mkdir()
    for age, (name, text) in enumerate(
        {
            "broken.jsonl": "{",
            "phase2.jsonl": configured("phase", "phase2")(good),
            "unfinished.jsonl": "".join(good[:-1]),
            "damaged.jsonl": "".join([*good[:3], *good[4:]]),
            "newer.jsonl": "".join(good),
            "older.jsonl": "".join(good),
        }.items()
    ):
        (results / name).write_text(text, encoding="utf-8")
        os.utime(results / name, (1_000_000 - age, 1_000_000 - age))
    with pytest.warns(match=r"damaged\.jsonl is damaged in line .*; passed over"):
        assert run_phase("phase1", results="latest").path.name == "newer.jsonl"


def test_latest_without_any_says_where_it_looked(results: Path) -> None:
    with pytest.raises(InputError, match=rf"no results file of phase1 in {results}"):
        run_phase("phase1", results="latest")


def test_a_results_file_is_read_without_mock_by_path_name_or_stem(
    good: list[str], results: Path
) -> None:
    results.mkdir()
    path = results / "mine.jsonl"
    path.write_text("".join(good), encoding="utf-8")
    for name in (str(path), "mine.jsonl", "mine"):
        assert run_phase("phase1", mock=False, results=name).path == path
    assert list(results.iterdir()) == [path]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["another schema", "truncated"])
def test_a_results_file_that_does_not_fit_is_one_line_on_the_command_line(
    case: str, good: list[str], tmp_path: Path, results: Path
) -> None:
    written, said = FILES[case]
    path = tmp_path / "given.jsonl"
    path.write_text(written(good), encoding="utf-8")
    answer = crossmem("report", "phase1", "-o", tmp_path / "page.html", "-p", "results", path)
    assert answer.returncode == 2
    assert answer.stdout == ""
    lines = [line for line in answer.stderr.splitlines() if line.strip()]
    assert len(lines) == 1
    assert re.search(said, lines[0])


def test_a_results_file_that_does_not_fit_leaves_the_previous_report_alone(
    tmp_path: Path, results: Path
) -> None:
    html = tmp_path / "page.html"
    html.write_text("the previous report")
    answer = crossmem("report", "phase1", "-o", html, "-p", "results", tmp_path / "none.jsonl")
    assert answer.returncode == 2
    assert html.read_text() == "the previous report"


@pytest.mark.slow
def test_no_room_for_results_is_one_line_on_the_command_line(results: Path, tmp_path: Path) -> None:
    results.write_text("in the way")
    answer = crossmem("report", "phase1", "-o", tmp_path / "page.html", "-p", "mock", "True")
    assert answer.returncode == 2
    assert f"cannot write to {results}" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_the_guard_lets_the_notebooks_own_names_pass() -> None:
    namespace = {"In": [], "Out": {}, "_": 1, "__name__": "x", "json": json, "mock": True}
    assert dict(settings.guard(settings.Phase1Settings, namespace))["mock"] is True


CELLS = ["mock = True", "settings = cm.guard(cm.Phase1Settings, globals())", "run = cm.run(settings)"]


def test_the_guard_passes_over_what_the_notebook_bound_when_it_was_run_before() -> None:
    bound = {"settings": object(), "run": object(), "family": "celiac", "n": 1}
    executed = ["", *CELLS, "%time 1", "family, n = metrics.slot_family(run), 1", *CELLS[:2]]
    namespace = {"In": executed, "mock": True, **bound}
    assert settings.guard(settings.Phase1Settings, namespace).mock is True


@pytest.mark.parametrize(
    "executed", [["mock = True", "replicatess = 2"], [*CELLS, "mock = True; replicatess = 2"]]
)
def test_the_guard_stops_a_misspelt_parameter_in_any_pass(executed: list[str]) -> None:
    namespace = {"In": ["", *executed, CELLS[1]], "mock": True, "replicatess": 2}
    with pytest.raises(InputError, match="unknown parameter 'replicatess'"):
        settings.guard(settings.Phase1Settings, namespace)


@pytest.mark.parametrize("name", ["replicatess", "Mock", "streams"])
def test_the_guard_stops_any_name_that_is_no_parameter(name: str) -> None:
    with pytest.raises(InputError, match=f"unknown parameter '{name}'"):
        settings.guard(settings.Phase1Settings, {"mock": True, name: 1})
