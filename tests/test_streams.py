"""The committed streams are what the authors write, they leak nothing, and the audit can fail."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from running import rows_of, run_phase

from crossmem import authoring, paths, streams
from crossmem.api import tables_of
from crossmem.cli import main
from crossmem.domains import domain
from crossmem.errors import InputError
from crossmem.harness.table_files import read_table
from crossmem.streams.plans import PLANS

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from crossmem.streams import Stream

BRAND = "Kembrovast TL 38"  # of snapshot 1.0.0


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the stream files, free to be spoiled, in the place of the committed ones."""
    folder = tmp_path / "streams"
    shutil.copytree(paths.streams(), folder)
    monkeypatch.setattr(paths, "streams", lambda: folder)
    return folder


def crossmem(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


# -- regenerated ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_a_stream_is_regenerated_byte_for_byte(name: str) -> None:
    text = authoring.author(PLANS[name]).dumped()
    assert text.encode() == streams.path_of(name).read_bytes()


def test_every_committed_stream_has_a_plan() -> None:
    assert streams.names() == sorted(PLANS)


def test_check_says_same_of_each_and_ends_well() -> None:
    answer = crossmem("streams", "--check", "phase1")
    assert answer.exit_code == 0, answer.output
    assert answer.stdout == f"same  {streams.path_of('phase1')}\n"


def test_check_fails_where_a_file_differs_or_is_missing_and_writes_nothing(copied: Path) -> None:
    path = copied / "phase1.json"
    spoiled = path.read_text(encoding="utf-8").replace("griddle cakes", "griddle cake")
    path.write_text(spoiled, encoding="utf-8")
    answer = crossmem("streams", "--check", "phase1")
    assert answer.exit_code == 1
    assert answer.stdout == f"DIFFERS  {path}\n"
    assert answer.stderr == "crossmem: not what the authors write: phase1\n"
    assert path.read_text(encoding="utf-8") == spoiled
    path.unlink()
    assert crossmem("streams", "--check", "phase1").exit_code == 1
    assert not path.exists()


@pytest.mark.parametrize("spoil", [lambda text: text.replace(b"\n", b"\r\n"), lambda _: b"\xff"])
def test_check_compares_bytes(spoil: Any, copied: Path) -> None:
    path = copied / "phase1.json"
    path.write_bytes(spoil(path.read_bytes()))
    answer = crossmem("streams", "--check", "phase1")
    assert answer.exit_code == 1
    assert "DIFFERS" in answer.stdout


def test_writing_puts_back_what_was_spoiled_and_only_what_was_named(copied: Path) -> None:
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    (copied / "phase1.json").write_text("{}", encoding="utf-8")
    answer = crossmem("streams", "phase1")
    assert answer.exit_code == 0, answer.output
    assert answer.stdout == f"{copied / 'phase1.json'}\n"
    assert {path.name: path.read_bytes() for path in copied.iterdir()} == before


@pytest.mark.parametrize("command", ["streams", "audit"])
def test_an_unknown_stream_is_named_with_the_choices(command: str) -> None:
    answer = crossmem(command, "phase_1")
    assert answer.exit_code == 2
    assert answer.stderr.startswith("crossmem: unknown stream 'phase_1'; did you mean 'phase1'?")
    assert len(answer.stderr.splitlines()) == 1


# -- what a stream must be -----------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_the_budget_window_crosses_no_drift_and_ends(name: str) -> None:
    stream = streams.load(name)
    if name == "acme_refunds":  # no drift, and no window
        assert stream.budget == []
        return
    tight, free = stream.budget
    assert tight.bytes is not None
    assert free.bytes is None
    assert not [e for e in stream.drift_events if tight.before <= e.before < free.before]


@pytest.mark.parametrize("name", PLANS)
def test_each_episode_says_the_snapshot_in_force_and_has_a_criterion(name: str) -> None:
    stream = streams.load(name)
    expected = PLANS[name].base_snapshot
    what = domain(stream.domain)
    table, folder = what.drifting_table, tables_of(stream.domain)
    base = read_table(folder / f"{table}.snapshots" / f"{expected}.json")
    assert base == read_table(folder / f"{table}.json"), "the one in force before any drift"
    drifts = {event.before: event.snapshot for event in stream.drift_events}
    for index, episode in enumerate(stream.episodes):
        expected = drifts.get(index, expected)
        assert (episode.index, episode.snapshot) == (index, expected)
        assert "family" in stream.criteria[episode.task.id]
    assert set(stream.criteria) == {episode.task.id for episode in stream.episodes}


def test_phase1_is_the_plan_of_the_contract() -> None:
    stream = streams.load("phase1")
    families = [stream.family(episode.task) for episode in stream.episodes]
    counts = {family: families.count(family) for family in set(families)}
    assert counts == {"celiac": 10, "incompatible": 10, "scaling": 4}
    assert [(event.before, event.snapshot) for event in stream.drift_events] == [(16, "2.0.0")]
    assert [step.before for step in stream.budget] == [6, 14]


def test_the_budget_is_45_percent_of_the_most_that_a2_holds(results: Path) -> None:
    rows = rows_of(run_phase("phase1", mock=True, arms="A2"))
    most = max(row.bytes for row in rows)
    assert streams.load("phase1").budget[0].bytes == most * 45 // 100


@pytest.mark.parametrize(
    ("text", "where"),
    [("{", "Invalid JSON"), ('{"schema": 2}', "schema"), ("{}", "name"), ("[]", "")],
)
def test_a_file_that_is_no_stream_is_refused_with_its_path(text: str, where: str, copied: Path) -> None:
    (copied / "phase1.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=rf"phase1\.json is no stream of schema 1: .*{where}"):
        streams.load("phase1")
    with pytest.raises(InputError, match=r"phase1\.json is no stream"):
        run_phase("phase1", mock=True)


# -- the leak audit ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLANS)
def test_no_stream_leaks_a_fix(name: str) -> None:
    assert authoring.audit(streams.load(name)) == []


def planted(stream: Stream, index: int, **changes: Any) -> Stream:
    """Return the stream with the task of an episode changed."""
    episodes = list(stream.episodes)
    task = episodes[index].task.model_copy(update=changes)
    episodes[index] = episodes[index].model_copy(update={"task": task})
    return stream.model_copy(update={"episodes": episodes})


def with_criterion(stream: Stream, index: int, **more: Any) -> Stream:
    name = stream.episodes[index].task.id
    criterion = {**stream.criteria[name], **more}
    return stream.model_copy(update={"criteria": {**stream.criteria, name: criterion}})


@pytest.fixture
def phase1() -> Stream:
    return streams.load("phase1")


@pytest.mark.parametrize("spelling", [BRAND, BRAND.upper()])
def test_the_audit_finds_a_brand_in_the_text_of_any_task(spelling: str, phase1: Stream) -> None:
    (leak,) = authoring.audit(planted(phase1, 1, description=f"Use {spelling} if you can."))
    assert BRAND in leak
    assert f"task {phase1.episodes[1].task.id}" in leak


def test_the_audit_finds_a_brand_of_a_later_snapshot_in_input_data(phase1: Stream) -> None:
    later = authoring._rotating_values(phase1)
    assert len(later) > 10  # of all snapshots, not of the base alone
    for brand in (later[0], later[-1]):
        body = {**phase1.episodes[3].task.input, "recipe": f"stew with {brand}"}
        leaks = authoring.audit(planted(phase1, 3, input=body))
        assert leaks
        assert all(brand in leak for leak in leaks)


def test_the_audit_finds_a_brand_in_a_criterion(phase1: Stream) -> None:
    (leak,) = authoring.audit(with_criterion(phase1, 0, expected=BRAND))[:1]
    assert BRAND in leak
    assert "the criteria" in leak


def test_the_audit_finds_a_brand_in_a_prompt(phase1: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossmem.agents.prompts.BASE_INSTRUCTION", f"Prefer {BRAND}.")
    leaks = authoring.audit(phase1)
    assert leaks
    assert all("prompt" in leak and BRAND in leak for leak in leaks)


def fix_of(stream: Stream, index: int) -> Any:
    """Ask a real server for the fix of a raw task."""
    from crossmem.domains import domain

    with authoring._server(stream) as (api, _):
        task = stream.episodes[index].task
        response = api.submit(domain(stream.domain).endpoint(task), task.input)
    return response.suggestions[0].suggested_value


PAIR, AMOUNT = 1, 4  # an episode with a forbidden pair, one with a wrong amount


def test_the_audit_finds_an_episodes_own_fix_in_its_text(phase1: Stream) -> None:
    fix = fix_of(phase1, PAIR)
    task = phase1.episodes[PAIR].task
    (leak,) = authoring.audit(planted(phase1, PAIR, description=f"{task.description} Take {fix}."))
    assert leak == f"the fix {fix!r} of episode {PAIR} stands in its own task"


@pytest.mark.parametrize("index", [PAIR, AMOUNT])
def test_the_audit_finds_an_episodes_own_fix_in_its_criterion(index: int, phase1: Stream) -> None:
    (leak,) = authoring.audit(with_criterion(phase1, index, expected=fix_of(phase1, index)))
    assert f"of episode {index} stands in its own task" in leak


def with_ingredient(stream: Stream, index: int, **ingredient: Any) -> Stream:
    body = stream.episodes[index].task.input
    extra = {"name": "thyme", "amount": 1.0, "unit": "g", **ingredient}
    return planted(stream, index, input={**body, "ingredients": [*body["ingredients"], extra]})


def test_the_audit_finds_an_episodes_own_fix_as_a_value_of_its_input_data(phase1: Stream) -> None:
    assert authoring.audit(with_ingredient(phase1, AMOUNT, amount=fix_of(phase1, AMOUNT)))
    assert authoring.audit(with_ingredient(phase1, PAIR, name=fix_of(phase1, PAIR)))


def test_the_audit_finds_an_amount_in_the_text_as_a_person_writes_it(phase1: Stream) -> None:
    amount = fix_of(phase1, AMOUNT)
    assert amount == int(amount)
    text = f"{phase1.episodes[AMOUNT].task.description} That is {int(amount)} g."
    assert authoring.audit(planted(phase1, AMOUNT, description=text))


def test_the_audit_finds_an_episodes_own_fix_inside_a_string_of_its_input_data(
    phase1: Stream,
) -> None:
    body = phase1.episodes[PAIR].task.input
    recipe = f"{body['recipe']} with {fix_of(phase1, PAIR)}"
    assert authoring.audit(planted(phase1, PAIR, input={**body, "recipe": recipe}))


def test_another_episodes_fix_is_no_leak(phase1: Stream) -> None:
    description = f"Something quite else, with {fix_of(phase1, PAIR)}."
    assert authoring.audit(planted(phase1, AMOUNT, description=description)) == []


def test_the_command_fails_with_the_leaks_it_found(copied: Path, phase1: Stream) -> None:
    assert crossmem("audit", "phase1").stdout == "phase1: no leak\n"
    spoiled = planted(phase1, 1, description=f"Use {BRAND}.")
    (copied / "phase1.json").write_text(spoiled.dumped(), encoding="utf-8")
    answer = crossmem("audit", "phase1")
    assert answer.exit_code == 1
    assert answer.stdout == "phase1: 1 leaks\n"
    assert BRAND in answer.stderr
    assert answer.stderr.splitlines()[-1] == "crossmem: 1 leaks found"
