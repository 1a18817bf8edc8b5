"""Table files: what is read, what is refused, what a diff says, and the packaged snapshots."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from crossmem.api import domain_names, tables_of
from crossmem.api.recipe import DOMAIN
from crossmem.api.tables import TableError, TableSpec, TableStore, read_table, read_tables
from crossmem.contract import DictDiff, ListDiff, difference
from crossmem.errors import InputError

from .helpers import BRANDS, PAIRS, snapshot, swap, unhurried

values = st.text("abc", min_size=1, max_size=2)
list_rows = st.dictionaries(values, st.lists(values, min_size=1, unique=True), max_size=4)
dict_rows = st.dictionaries(values, values, max_size=6)


def as_sets(rows: dict[str, list[str]]) -> dict[str, set[str]]:
    return {category: set(values) for category, values in rows.items() if values}


@unhurried
@given(old=list_rows, new=list_rows)
def test_a_list_diff_leads_from_the_old_rows_to_the_new_ones_and_swapped_back(
    old: dict[str, list[str]], new: dict[str, list[str]]
) -> None:
    forth, back = difference(old, new, "list"), difference(new, old, "list")
    assert isinstance(forth, ListDiff)
    applied = {
        category: [
            *(v for v in old.get(category, []) if v not in forth.removed.get(category, [])),
            *forth.added.get(category, []),
        ]
        for category in {*old, *forth.added}
    }
    assert as_sets(applied) == as_sets(new)
    assert (forth.added, forth.removed) == (back.removed, back.added)


@unhurried
@given(old=dict_rows, new=dict_rows)
def test_a_dict_diff_leads_from_the_old_rows_to_the_new_ones_and_swapped_back(
    old: dict[str, str], new: dict[str, str]
) -> None:
    forth, back = difference(old, new, "dict"), difference(new, old, "dict")
    assert isinstance(forth, DictDiff)
    assert isinstance(back, DictDiff)
    fetched = {key: new[key] for key in [*forth.added, *forth.changed]}
    assert {key: old[key] for key in old if key not in forth.removed} | fetched == new
    assert (forth.added, forth.removed) == (back.removed, back.added)
    assert set(forth.changed) == set(back.changed)


SAME = {"shape": "list", "added": {}, "removed": {}}


@pytest.mark.parametrize(
    ("old", "new", "diff"),
    [
        ({"a": ["x", "y"]}, {"a": ["y", "x", "x"]}, SAME),
        ({}, {}, SAME),
        ({}, {"a": ["x", "x"], "b": []}, {**SAME, "added": {"a": ["x", "x"]}}),
        (
            {"a": ["x"], "b": "y"},
            {"c": 1, "b": "y", "a": ["z"]},
            {"shape": "dict", "added": ["c"], "removed": [], "changed": ["a"]},
        ),
        (
            {"b": 1, "c": 1, "a": 1},
            {"z": 1, "b": 2, "y": 1, "a": 2},
            {"shape": "dict", "added": ["z", "y"], "removed": ["c"], "changed": ["b", "a"]},
        ),
    ],
)
def test_a_shape_that_is_not_given_is_read_off_the_rows_and_keys_keep_their_order(
    old: dict[str, Any], new: dict[str, Any], diff: dict[str, Any]
) -> None:
    assert difference(old, new).model_dump() == diff


def test_a_shape_that_is_given_holds_for_rows_that_could_be_either() -> None:
    assert difference({}, {}, "dict") == DictDiff(shape="dict")
    assert difference({"a": [1]}, {}, "dict") == DictDiff(shape="dict", removed=["a"])


GOOD = snapshot("1.0.0")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not a JSON document"),
        ("{", "not a JSON document"),
        ("[" * 100_000, "not a JSON document"),
        ("[]", "celiac_brands.json"),
        (json.dumps({**GOOD, "table": "other"}), "holds table 'other'"),
        (json.dumps({**GOOD, "version": 1}), "version"),
        (json.dumps({**GOOD, "version": ""}), "version"),
        (json.dumps({**GOOD, "note": "x"}), "note"),
        (json.dumps({**GOOD, "rows": {"flour": ["A 1"]}}), "at least 2"),
        (json.dumps({**GOOD, "rows": {"flour": ["A 1"], "oats": []}}), "oats"),
        (json.dumps({**GOOD, "rows": {"flour": ["A 1"], "oats": "B 2"}}), "oats"),
        (json.dumps({**GOOD, "rows": {"flour": ["A 1"], "rye": ["B 2"]}}), "rye"),
    ],
)
def test_a_bad_table_file_is_refused_with_its_name_and_the_reason(
    tmp_path: Path, content: str, reason: str
) -> None:
    path = tmp_path / f"{BRANDS}.json"
    path.write_text(content)
    with pytest.raises(TableError, match=reason) as caught:
        read_table(path, DOMAIN.tables[0])
    assert path.name in str(caught.value)
    assert str(tmp_path) not in str(caught.value)


def test_bytes_that_are_no_text_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xff\xfe")
    for name in ("x.json", "missing.json"):
        with pytest.raises(TableError, match=name):
            read_table(tmp_path / name, DOMAIN.tables[0])


@pytest.mark.parametrize("key", ["cream", "cream|", "|thai", "a|b|c"])
def test_a_pair_key_is_one_ingredient_and_one_cuisine(tmp_path: Path, key: str) -> None:
    path = tmp_path / f"{PAIRS}.json"
    path.write_text(json.dumps({"table": PAIRS, "version": "1", "rows": {key: "x"}}))
    with pytest.raises(TableError, match="should match pattern"):
        read_table(path, DOMAIN.tables[1])


def test_a_failed_reload_keeps_every_old_table(tables: Path) -> None:
    store = TableStore(tables, DOMAIN.tables)
    before = store.tables
    swap(tables, "2.0.0")
    (tables / f"{PAIRS}.json").write_text("{")
    with pytest.raises(TableError):
        store.reload()
    assert store.tables is before


def test_a_change_of_order_alone_is_a_change_with_an_empty_diff(tmp_path: Path) -> None:
    # The first brand is what gets suggested: an order is content.
    path, spec = tmp_path / "t.json", TableSpec("t", "list", TypeAdapter(dict[str, list[str]]))
    content: dict[str, Any] = {"table": "t", "version": "1", "rows": {"a": ["x", "y"]}}
    path.write_text(json.dumps(content))
    store = TableStore(tmp_path, (spec,))
    content["rows"]["a"].reverse()
    path.write_text(json.dumps(content))
    assert [change.diff for change in store.reload()] == [ListDiff(shape="list")]
    assert store.reload() == []


def rows(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = snapshot(name)["rows"]
    return found


def test_the_packaged_tables_are_their_snapshot_1_0_0() -> None:
    for table in (BRANDS, PAIRS):
        base = json.loads((tables_of("recipe") / f"{table}.json").read_text())
        assert base == snapshot("1.0.0", table)


def test_every_packaged_snapshot_can_be_served(tables: Path) -> None:
    for table in (BRANDS, PAIRS):
        for path in (tables / f"{table}.snapshots").glob("*.json"):
            swap(tables, path.stem, table)
            read_tables(tables, DOMAIN.tables)


def test_each_snapshot_rotates_what_the_contract_says() -> None:
    one, two, three, four, five = (rows(f"{n}.0.0") for n in range(1, 6))
    assert two == {"flour": one["flour"][1:], "oats": one["oats"]}
    assert three["flour"] == two["flour"]
    assert five["oats"] == four["oats"]
    assert all(len(brands) >= 2 for r in (one, two, three, four, five) for brands in r.values())
    for new, old in [
        (three["oats"], [one]),
        (four["flour"] + four["oats"], [one, three]),
        (five["flour"], [one, three, four]),
    ]:
        assert set(new).isdisjoint(itertools.chain(*(b for r in old for b in r.values())))


def test_churn_changes_the_version_only_and_silent_the_rows_only() -> None:
    assert snapshot("churn") == {**snapshot("1.0.0"), "version": "1.0.1"}
    assert snapshot("silent") == {**snapshot("4.0.0"), "version": "1.0.0"}


def test_no_brand_is_part_of_another_or_holds_a_food_word() -> None:
    brands = sorted({b for n in range(1, 6) for of in rows(f"{n}.0.0").values() for b in of})
    assert not [pair for pair in itertools.permutations(brands, 2) if pair[0] in pair[1]]
    food = ("oat", "flour", "grain", "rusk", "bread", "mill", "bak", "wheat", "corn", "rice")
    assert not [brand for brand in brands if any(word in brand.casefold() for word in food)]


def test_an_unknown_domain_is_told_with_the_choices() -> None:
    assert list(domain_names()) == ["acme", "recipe"]
    with pytest.raises(InputError, match="unknown domain 'recipes'; did you mean 'recipe'"):
        tables_of("recipes")
