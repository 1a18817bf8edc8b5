"""The stores of an arm as files: they come back, and what is damaged is named."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pytest

from crossmem import experience as ex
from crossmem import paths
from crossmem.errors import InputError
from crossmem.experience.memory import ExperienceMemory
from crossmem.experience.node import checked_line
from crossmem.experience.stores import NODES, SUMMARIES, load
from crossmem.harness import history

if TYPE_CHECKING:
    from pathlib import Path

    from crossmem.experience.stores import Stores

ARMS = "rich.fixed,skills.fixed,cards.faithful"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Stores]:
    """The stores that some arms ended with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSMEM_RESULTS", str(tmp_path_factory.mktemp("results")))
        run = ex.run(mock=True, model="haiku", stream="phase2_v4", arms=ARMS)
        found = {arm: history.memory(run, arm) for arm in ARMS.split(",")}
    assert all(isinstance(each, ExperienceMemory) for each in found.values())
    return {arm: each.stores for arm, each in found.items() if isinstance(each, ExperienceMemory)}


@pytest.mark.parametrize("arm", ARMS.split(","))
def test_stores_come_back_as_they_were_saved(
    stores: dict[str, Stores], arm: str, tmp_path: Path
) -> None:
    kept = stores[arm]
    kept.save(tmp_path)
    back, damage = load(tmp_path, faithful=kept.faithful)

    assert damage == {}
    assert back.journal.nodes == kept.journal.nodes
    assert back.cache.kept == kept.cache.kept
    assert back.guidance.in_force == kept.guidance.in_force
    assert back.world == kept.world
    assert back.nodes().equals(kept.nodes())


def test_a_damaged_record_is_named_and_the_rest_is_kept(
    stores: dict[str, Stores], tmp_path: Path
) -> None:
    kept = stores["rich.fixed"]
    kept.save(tmp_path)
    for name, line in ((NODES, 3), (SUMMARIES, 2)):
        lines = (tmp_path / name).read_bytes().splitlines(keepends=True)
        lines[line - 1] = lines[line - 1].replace(b'"', b"'", 1)
        (tmp_path / name).write_bytes(b"".join(lines))
    back, damage = load(tmp_path, faithful=False)

    assert {name: [each.line for each in found] for name, found in damage.items()} == {
        NODES: [3],
        SUMMARIES: [2],
    }
    assert len(back.journal) == len(kept.journal) - 1
    assert len(back.deck.cards) == len(back.journal)
    assert len(back.cache.kept) == len(kept.cache.kept) - 1


def _sealed(text: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(text), text)


NO_RECORD = [b"", b"nope", b"[1]", b"null", b"{}", b'{"schema":1}', b'{"key":"a","lessons":[1]}']


@pytest.mark.parametrize("text", NO_RECORD)
def test_a_whole_line_that_is_no_record_is_named_and_the_rest_is_kept(
    stores: dict[str, Stores], tmp_path: Path, text: bytes
) -> None:
    kept = stores["rich.fixed"]
    kept.save(tmp_path)
    for name in (NODES, SUMMARIES):
        (tmp_path / name).write_bytes(_sealed(text) + (tmp_path / name).read_bytes())
    back, damage = load(tmp_path, faithful=False)

    assert {name: [each.line for each in found] for name, found in damage.items()} == {
        NODES: [1],
        SUMMARIES: [1],
    }
    assert back.journal.nodes == kept.journal.nodes
    assert back.cache.kept == kept.cache.kept


@pytest.mark.parametrize("wrong", [{"metric": "1"}, {"metric": None}, {"info": None}, {"info": []}])
def test_a_node_that_cannot_be_counted_in_is_named(
    stores: dict[str, Stores], tmp_path: Path, wrong: dict[str, Any]
) -> None:
    kept = stores["rich.fixed"]
    kept.save(tmp_path)
    bad = checked_line({**kept.journal.nodes[0].dumped(), **wrong})
    (tmp_path / NODES).write_bytes(bad + (tmp_path / NODES).read_bytes())
    back, damage = load(tmp_path, faithful=False)
    assert [each.line for each in damage[NODES]] == [1]
    assert len(back.journal) == len(kept.journal)


def test_an_empty_folder_of_skills_holds_none(stores: dict[str, Stores], tmp_path: Path) -> None:
    stores["rich.fixed"].save(tmp_path)
    (tmp_path / "skills").mkdir()
    back, damage = load(tmp_path, faithful=False)
    assert damage == {}
    assert back.guidance.in_force == {}


def test_the_attempts_are_a_table(stores: dict[str, Stores]) -> None:
    table = stores["cards.faithful"].nodes()
    assert set(table["operator"]) >= {"draft", "improve", "debug"}
    assert table.loc[table["operator"] == "debug", "parents"].str.fullmatch(r"\d+").all()
    assert (table["rank"] == 1).sum() > 1


def test_a_folder_without_attempts_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no nodes\.jsonl"):
        load(tmp_path, faithful=True)


@pytest.mark.usefixtures("results")
def test_the_lines_in_the_documentation_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (paths.root() / "docs" / "experience.md").read_text(encoding="utf-8")
    section = text.partition("## Looking inside")[2].partition("\n## ")[0]
    code = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    scope: dict[str, object] = {"folder": tmp_path / "kept"}
    exec("\n".join(code), scope)
    assert "Under celiac_brands" in capsys.readouterr().out
    assert scope["damage"] == {}
    assert list((tmp_path / "kept" / "skills").iterdir())
