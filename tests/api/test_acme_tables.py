"""The packaged tables of the Acme domain, and what the server refuses to serve."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from crossmem.api.acme import DOMAIN
from crossmem.api.tables import TableError, read_tables

from .acme import (
    ALL_CODES,
    BASE,
    CSM,
    ENTERPRISE,
    FUNDING,
    PROMO,
    REFUND,
    content,
    copied,
    csm,
    rotate,
    rows,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return copied(tmp_path / "acme")


def test_the_packaged_tables_can_be_served_and_are_all_dict_shaped() -> None:
    assert set(BASE) == {FUNDING, ENTERPRISE, PROMO, CSM, REFUND}
    assert {(table.shape, table.version) for table in BASE.values()} == {("dict", "1.0.0")}


def test_the_base_of_the_csm_codes_is_their_snapshot_v1() -> None:
    assert content(CSM) == content(f"{CSM}.snapshots/v1")


def test_each_snapshot_rotates_what_the_contract_says() -> None:
    one, two, three, four = (csm(version) for version in range(1, 5))
    assert [content(f"{CSM}.snapshots/v{n}")["version"] for n in range(1, 5)] == [
        f"{n}.0.0" for n in range(1, 5)
    ]
    assert two["enterprise-pilot"] == one["enterprise-pilot"]
    assert three["partner"] == two["partner"]
    codes = [
        *(one["partner"], one["enterprise-pilot"], two["partner"]),
        *(three["enterprise-pilot"], *four.values()),
    ]
    assert len(set(codes)) == len(codes) == 6


def test_no_code_is_part_of_another_or_of_a_word_of_the_requests() -> None:
    codes = ALL_CODES
    assert not [pair for pair in itertools.permutations(codes, 2) if pair[0] in pair[1]]
    words = {word for code in codes for word in code.casefold().split("-")[1:]}
    assert len(words) == 2 * len(codes)


def test_the_base_promo_table_holds_no_csm_code() -> None:
    assert set(ALL_CODES).isdisjoint(rows(PROMO))


@pytest.mark.parametrize("version", range(1, 5))
def test_every_snapshot_can_be_served_with_its_companion(tables: Path, version: int) -> None:
    rotate(tables, version)
    read = read_tables(tables, DOMAIN.tables)
    assert dict(read[CSM].rows) == csm(version)
    assert set(csm(version).values()) <= set(read[PROMO].rows)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (FUNDING, {"team": {"accepts": ["credit"], "use": "pm_card_visa_debit"}}),
        (FUNDING, {"team": {"accepts": ["credit"], "use": "pm_card_nope"}}),
        (FUNDING, {"team": {"accepts": ["gold"], "use": "pm_card_visa"}}),
        (FUNDING, {"team": None}),
        (FUNDING, {"guest": {"accepts": ["credit"], "use": "pm_card_visa"}}),
        (ENTERPRISE, {"enterprise.seats": 0}),
        (ENTERPRISE, {"enterprise.seats": "25"}),
        (ENTERPRISE, {"enterprise.billing_interval": "weekly"}),
        (ENTERPRISE, {"enterprise.colour": "red"}),
        (PROMO, {"X": {"plans": ["gold"], "stackable": True, "replaced_by": None}}),
        (PROMO, {"X": {"plans": [], "stackable": 1, "replaced_by": None}}),
        (PROMO, {"X": {"plans": [], "stackable": True}}),
        (CSM, {"gold": "CSM-X"}),
        (CSM, {"partner": ""}),
        (REFUND, {"window_days": -1}),
        (REFUND, {"max_amount": "50000"}),
        (REFUND, {"reason.changed_mind": "boredom"}),
        (REFUND, {"boredom": "duplicate"}),
    ],
)
def test_a_table_that_could_not_be_judged_by_is_not_served(
    tables: Path, name: str, changes: dict[str, Any]
) -> None:
    path = tables / f"{name}.json"
    table = json.loads(path.read_text())
    table["rows"] = {key: row for key, row in (table["rows"] | changes).items() if row is not None}
    path.write_text(json.dumps(table))
    with pytest.raises(TableError, match=f"{name}.json"):
        read_tables(tables, DOMAIN.tables)
