"""The slot explorer, driven as a person drives its controls, and its notebook executed for real."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import nbformat
import pytest

from crossmem.analysis.explorer import Explorer
from crossmem.errors import InputError
from crossmem.harness.results import load
from crossmem.paths import notebooks
from crossmem.report.execute import execute, sentinel_text

if TYPE_CHECKING:
    from crossmem.harness.results import Run

    from .conftest import Scripted

Files = dict[str, Path]


@pytest.fixture
def files(results: Path, scripted: Scripted) -> Files:
    """Results files of three kinds: one drift, four drifts, few arms; the last named is the newest."""
    results.mkdir()
    given: dict[str, Run] = {
        "v2": scripted("phase2", pattern="v2"),
        "few": scripted("phase2", arms="A0,A2,oracle", replicates=2),
        "m1": scripted("phase3"),
    }
    return {name: Path(shutil.copy(run.path, results / f"{name}.jsonl")) for name, run in given.items()}


def first_line(explorer: Explorer) -> str:
    return repr(explorer.slot).splitlines()[0]


def test_it_opens_with_the_newest_file_its_first_epoch_and_a2(files: Files) -> None:
    explorer = Explorer()
    assert (explorer.file.value, explorer.epoch.value, explorer.arm.value) == (files["m1"], 1, "A2")
    assert {label for label, _ in explorer.file.options} == {"v2.jsonl", "few.jsonl", "m1.jsonl"}
    assert explorer.epoch.options == (1, 2, 3, 4)
    assert explorer.view.value == explorer.slot._repr_html_()
    assert "Epoch 1, A2: stale attempt at episode 10 (flour)" in explorer.view.value


def test_it_opens_with_what_is_asked_for(files: Files) -> None:
    explorer = Explorer("m1.jsonl", epoch=2, arm="A2D")
    assert first_line(explorer) == "Epoch 2, A2D: stale attempt at episode 18 (oats), 2 attempts"
    assert explorer.slot.is_open


def test_each_control_changes_the_view(files: Files) -> None:
    explorer = Explorer("m1.jsonl")
    explorer.epoch.value = 3
    assert "Epoch 3, A2:" in explorer.view.value
    explorer.arm.value = "oracle"
    assert "Epoch 3, oracle: cold retry" in explorer.view.value
    explorer.file.value = files["v2"]
    assert "Epoch 1, oracle:" in explorer.view.value
    assert explorer.run.path == files["v2"]
    assert explorer.view.value == explorer.slot._repr_html_()


def test_another_file_keeps_the_choice_where_it_has_that_too(files: Files) -> None:
    explorer = Explorer("v2.jsonl", arm="A2V")
    explorer.file.value = files["m1"]
    assert (explorer.epoch.value, explorer.arm.value) == (1, "A2V")
    assert explorer.epoch.options == (1, 2, 3, 4)


def test_another_file_without_the_arm_or_epoch_shows_what_it_has(files: Files) -> None:
    explorer = Explorer("m1.jsonl", epoch=4, arm="A2D")
    explorer.file.value = files["few"]
    assert (explorer.epoch.value, explorer.arm.value) == (1, "A0")
    assert explorer.arm.options == ("A0", "A2", "oracle")
    assert "Epoch 1, A0: cold retry" in explorer.view.value
    assert first_line(explorer).startswith("Epoch 1, A0:")
    explorer.file.value = files["m1"]
    assert explorer.epoch.options == (1, 2, 3, 4)
    assert first_line(explorer).startswith("Epoch 1, A0:")


def test_the_view_is_drawn_once_a_change(files: Files) -> None:
    explorer = Explorer("m1.jsonl", epoch=4, arm="A2D")
    drawn: list[str] = []
    explorer.view.observe(lambda change: drawn.append(change["new"]), "value")
    explorer.file.value = files["few"]
    explorer.file.value = files["m1"]
    assert len(drawn) == 2, "no state between two files was ever shown"


def test_a_file_named_by_a_relative_path_is_listed_once(
    files: Files, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results)
    explorer = Explorer("m1.jsonl")
    assert sorted(label for label, _ in explorer.file.options) == ["few.jsonl", "m1.jsonl", "v2.jsonl"]


def test_files_that_are_no_results_or_have_no_slot_are_not_offered(
    files: Files, results: Path, scripted: Scripted
) -> None:
    (results / "notes.jsonl").write_text("{}")
    shutil.copy(scripted("acme", stream="acme_refunds").path, results / "still.jsonl")
    labels = {label for label, _ in Explorer("m1.jsonl").file.options}
    assert labels == {"few.jsonl", "m1.jsonl", "v2.jsonl"}
    with pytest.raises(InputError, match=r"still\.jsonl has no stale-attempt slot: nothing drifted"):
        Explorer("still.jsonl")


def test_a_file_that_turns_out_damaged_is_shown_to_be_so(files: Files) -> None:
    lines = files["v2"].read_bytes().splitlines(keepends=True)
    files["v2"].write_bytes(b"".join([*lines[:5], lines[5].replace(b"true", b"trae"), *lines[6:]]))
    explorer = Explorer("m1.jsonl")
    explorer.file.value = files["v2"]
    assert "v2.jsonl is damaged in line 6 of" in explorer.view.value
    explorer.file.value = files["m1"]
    assert explorer.view.value == explorer.slot._repr_html_()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("none.jsonl",), r"results: cannot read none\.jsonl: No such file"),
        (("few.jsonl", 7), r"^unknown epoch 7; Choices: 1$"),
        (("few.jsonl", 1, "A2D"), r"unknown arm 'A2D'; did you mean 'A2'\? Choices: A0, A2, oracle"),
        (("few.jsonl", 1, "a2"), r"unknown arm 'a2'.* Choices: A0, A2, oracle"),
    ],
)
def test_it_does_not_open_on_what_is_not_there(given: tuple[Any, ...], said: str, files: Files) -> None:
    with pytest.raises(InputError, match=said):
        Explorer(*given)


def test_latest_without_any_results_says_where_it_looked(results: Path) -> None:
    results.mkdir()
    with pytest.raises(InputError, match=f"no results file in {results}"):
        Explorer()


def test_it_displays_as_a_widget(files: Files) -> None:
    bundle = Explorer("m1.jsonl")._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in data


# -- the notebook ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_notebook_shows_its_slot_without_a_kernel_too(files: Files, tmp_path: Path) -> None:
    output = tmp_path / "out.ipynb"
    execute(
        notebooks() / "stale_attempts.ipynb",
        output,
        {"results": "m1.jsonl", "epoch": 4, "arm": "A2D"},
    )
    assert sentinel_text(output) == "Epoch 4, A2D: stale attempt at episode 40 (flour), 2 attempts"
    (shown,) = [html for html in displayed(output, "text/html") if "<details" in html]
    slot = Explorer("m1.jsonl", 4, "A2D").slot
    assert shown == slot._repr_html_()
    assert len(displayed(output, "application/vnd.jupyter.widget-view+json")) == 1
    assert load(files["m1"]).scripted
    assert any("scripted agent" in html for html in displayed(output, "text/html"))


@pytest.mark.slow
def test_the_notebook_stops_on_an_epoch_that_is_not_there(files: Files, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown epoch 9; Choices: 1, 2, 3, 4"):
        execute(notebooks() / "stale_attempts.ipynb", tmp_path / "out.ipynb", {"epoch": 9})


def displayed(notebook: Path, kind: str) -> list[str]:
    """Return everything of a MIME type that the cells displayed."""
    executed = cast("Any", nbformat.read(notebook, as_version=4))  # type: ignore[no-untyped-call]
    outputs = [out for cell in executed.cells for out in cell.get("outputs", [])]
    return [out.data[kind] for out in outputs if kind in out.get("data", {})]
