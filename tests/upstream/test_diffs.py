"""A diff that the harness computes says what the reference API's own would say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmem.api import tables as server
from crossmem.api import tables_of
from crossmem.client import ApiClient
from crossmem.contract import TableDiff, read_reload
from crossmem.harness.table_files import Layout, LiveTable, TableFiles, difference

words = st.sampled_from("abcdefg")
lists = st.dictionaries(words, st.lists(words, max_size=4), min_size=1, max_size=5)
dicts = st.dictionaries(words, words | st.integers() | st.none(), min_size=1, max_size=5)
versions = st.sampled_from(["1", "2"])


def both(shape: Any, old: Any, new: Any, before: str, after: str) -> tuple[TableDiff, TableDiff]:
    """Return the server's diff as a client reads it, and the harness's."""
    of = [
        server.ServedTable("t", shape, version, rows) for version, rows in ((before, old), (after, new))
    ]
    change = server._change(*of)
    (told,) = read_reload({"reloaded": [change.model_dump()]})
    return told, difference(LiveTable("t", before, old), LiveTable("t", after, new))


def as_sets(told: TableDiff) -> Any:
    """Return a diff without the order of what it lists, which is not told."""
    if told.diff is None:
        return None
    content = told.diff.model_dump()
    shape = content.pop("shape")
    if shape == "list":
        return shape, {k: {c: sorted(v) for c, v in part.items()} for k, part in content.items()}
    return shape, {name: sorted(keys) for name, keys in content.items()}


@given(lists, lists, versions, versions)
def test_of_a_list_shaped_table(old: Any, new: Any, before: str, after: str) -> None:
    theirs, ours = both("list", old, new, before, after)
    assert as_sets(ours) == as_sets(theirs)
    assert (ours.table, ours.from_version, ours.to_version) == ("t", before, after)
    assert (ours.source, theirs.source) == ("harness", "server")


@given(dicts, dicts, versions, versions)
def test_of_a_dict_shaped_table(old: Any, new: Any, before: str, after: str) -> None:
    theirs, ours = both("dict", old, new, before, after)
    assert as_sets(ours) == as_sets(theirs)


@pytest.mark.parametrize("domain", ["recipe", "acme"])
def test_of_every_pair_of_packaged_snapshots(domain: str) -> None:
    folder = tables_of(domain)
    layout = Layout(folder)
    for name in ("celiac_brands",) if domain == "recipe" else ("active_csm_codes",):
        every = [layout.read(layout.snapshot(name, each)) for each in layout.snapshots(name)]
        shape = "list" if domain == "recipe" else "dict"
        for old in every:
            for new in every:
                theirs, ours = both(shape, old.rows, new.rows, old.version, new.version)
                assert as_sets(ours) == as_sets(theirs)


class Reloading(ApiClient):
    """Answers a reload with what a test says."""

    def __init__(self, *told: dict[str, Any]) -> None:
        self.told = told

    def reload(self) -> tuple[TableDiff, ...]:
        return read_reload({"reloaded": list(self.told)})


def world(folder: Path, member: str = "version", **more: Any) -> TableFiles:
    """Two editions of a table in words of their own, neither of which says its name."""
    (folder / "t/old").mkdir(parents=True)
    for path, version, rows in (
        ("t/now.json", more.get("first", "1"), {"a": ["x"], "b": ["y"]}),
        ("t/old/next.json", more.get("second", "2"), {"a": ["z"], "b": ["y"]}),
    ):
        (folder / path).write_text(json.dumps({member: version, "rows": rows, "licence": "CC0"}))
    return TableFiles(Layout(folder, "{table}/now.json", "{table}/old/{name}.json", member), ["t"])


SAID = {"table": "t", "from_version": "1", "to_version": "2"}
DIFF = {"shape": "list", "added": {"a": ["z"]}, "removed": {"a": ["x"]}}
ANSWERS: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "no diff": [SAID],
    "a diff of an unknown shape": [{**SAID, "diff": {"shape": "graph"}}],
    "a diff without versions": [{"table": "t", "diff": DIFF}],
    "another table": [{**SAID, "table": "u", "diff": DIFF}],
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_diff_that_is_not_given_whole_is_computed(answer: str, tmp_path: Path) -> None:
    (found,) = world(tmp_path).swap("t", "next", Reloading(*ANSWERS[answer]))
    assert found.source == "harness"
    assert (found.table, found.from_version, found.to_version) == ("t", "1", "2")
    assert found.diff is not None
    assert found.diff.model_dump() == DIFF


def test_a_diff_that_is_given_is_handed_on(tmp_path: Path) -> None:
    (found,) = world(tmp_path).swap("t", "next", Reloading({**SAID, "diff": DIFF}))
    assert found.source == "server"


def test_what_nobody_here_knows_stays_in_a_swapped_file(tmp_path: Path) -> None:
    of = world(tmp_path, member="edition", first=1, second=2)
    of.swap("t", "next", Reloading())
    assert json.loads((tmp_path / "t/now.json").read_text()) == {
        "edition": 2,  # a number, as in the snapshot
        "rows": {"a": ["z"], "b": ["y"]},
        "licence": "CC0",
    }
    assert of.live["t"].version == "2"
