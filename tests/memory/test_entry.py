"""An entry's canonical JSON, its bytes, and when two JSON values are the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmem.contract import Json
from crossmem.memory.entry import Entry, canonical_json, same

BRAND = Entry(("brand", "oats"), "celiac_brands", "oats", "Løv 1", "1.0.0", cacheable=True)

json_values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_canonical_json_holds_key_table_row_value_and_learned_version_only() -> None:
    assert json.loads(BRAND.canonical) == {
        "key": ["brand", "oats"],
        "table": "celiac_brands",
        "row": "oats",
        "value": "Løv 1",
        "version": "1.0.0",
    }


def test_size_counts_utf8_bytes_and_not_characters() -> None:
    assert BRAND.size == len(BRAND.canonical) + 1


@pytest.mark.parametrize(
    "other", [{"version": "1.0.1"}, {"value": "X"}, {"row": "flour"}, {"table": "t"}, {"key": ("k",)}]
)
def test_whatever_an_entry_says_is_in_its_canonical_json(other: dict[str, Json]) -> None:
    assert replace(BRAND, **other).canonical != BRAND.canonical


def test_the_servers_hint_costs_no_bytes() -> None:
    assert replace(BRAND, cacheable=False).canonical == BRAND.canonical


@given(json_values)
def test_canonical_json_reads_back_and_is_stable(value: Json) -> None:
    text = canonical_json(value)

    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_canonical_json_does_not_depend_on_the_order_of_members(value: dict[str, int]) -> None:
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


@given(json_values)
def test_a_json_value_is_the_same_as_itself(value: Json) -> None:
    assert same(value, json.loads(json.dumps(value)))


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (150.0, 150, True),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        (None, False, False),
        (None, None, True),
        ("1", 1, False),
        ([1], [1], True),
        ([], {}, False),
    ],
)
def test_numbers_are_compared_by_value_and_never_with_truth_values(
    left: Json, right: Json, equal: bool
) -> None:
    assert same(left, right) is equal
    assert same(right, left) is equal


def test_a_truth_value_inside_a_list_is_not_a_number_either() -> None:
    assert not same([1], [True])
