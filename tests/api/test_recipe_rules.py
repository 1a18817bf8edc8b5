"""The recipe rules as pure functions: what is refused, with which fix, and which tables it shows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crossmem.api import tables_of
from crossmem.api.problem import PolicyVerdict, refused
from crossmem.api.recipe import DOMAIN, ConvertRequest, judge
from crossmem.api.tables import ServedTables, read_tables

from .helpers import BRANDS, PAIRS, body, celiac, item, merged, snapshot, unhurried

TABLES: ServedTables = read_tables(tables_of("recipe"), DOMAIN.tables)
FLOUR, OATS = snapshot("1.0.0")["rows"]["flour"], snapshot("1.0.0")["rows"]["oats"]


def judged(request: dict[str, Any]) -> PolicyVerdict:
    return judge(ConvertRequest.model_validate(request), TABLES)


def fixes(request: dict[str, Any]) -> list[tuple[str, str, object]]:
    found = judged(request).violations
    return [(broken.action, broken.field, broken.suggested) for broken in found]


@pytest.mark.parametrize(("name", "brand"), [("flour", FLOUR[0]), (" OATS ", OATS[0])])
def test_celiac_flour_and_oats_get_the_first_certified_brand(name: str, brand: str) -> None:
    assert fixes(celiac(item(name))) == [("USE_SPECIFIC_BRAND", "/ingredients/0/brand", brand)]


def test_every_certified_brand_of_the_category_passes() -> None:
    assert not any(fixes(celiac(item("flour", brand=brand))) for brand in FLOUR)


def test_a_brand_certified_for_another_category_is_refused() -> None:
    assert fixes(celiac(item("flour", brand=OATS[0])))


@pytest.mark.parametrize(
    ("request_", "consulted"),
    [
        (celiac(item("flour")), (BRANDS,)),
        (celiac(item("flour", brand=FLOUR[0])), (BRANDS,)),
        (body(item("flour"), dietary=[" Celiac "]), (BRANDS,)),
        (body(item("flour")), ()),
        (celiac(item("turnip")), ()),
        (body(item("cream"), cuisine="thai"), (PAIRS,)),
        (body(item("Coconut Milk"), cuisine="Thai"), (PAIRS,)),
        (body(item("cream"), cuisine="persian"), ()),
        (body(item("coconut milk"), cuisine="persian"), ()),
        (body(item("sugar", base_amount=100)), ()),
        (body(item("oats"), item("lard"), dietary=["celiac"], cuisine="persian"), (BRANDS, PAIRS)),
    ],
)
def test_a_table_is_consulted_where_its_rule_applies_passed_or_not(
    request_: dict[str, Any], consulted: tuple[str, ...]
) -> None:
    assert tuple(judged(request_).consulted) == consulted


@pytest.mark.parametrize("pair", snapshot("1.0.0", PAIRS)["rows"].items())
def test_a_forbidden_pair_gets_the_replacement_of_its_row(pair: tuple[str, str]) -> None:
    name, cuisine = pair[0].split("|")
    assert fixes(body(item("turnip"), item(name.upper()), cuisine=cuisine)) == [
        ("REPLACE_INCOMPATIBLE_INGREDIENT", "/ingredients/1/name", pair[1])
    ]


@pytest.mark.parametrize(
    ("base", "before", "after", "amount"),
    [
        (100, 4, 6, 150),
        (1, 3, 1, 0.33),
        # Half up, in decimals: as floats, 1.005 lies under and 0.615 over the half.
        (1.005, 1, 1, 1.01),
        (0.615, 1, 1, 0.62),
        (0.1, 1, 3, 0.3),
        (1e6, 1, 1000, 1e9),
        (0.001, 1000, 1, 0.01),
    ],
)
def test_a_base_amount_scales_exactly_to_two_decimals(
    base: float, before: int, after: int, amount: float
) -> None:
    def request(sent: float) -> dict[str, Any]:
        servings = {"from": before, "to": after}
        return body(item("sugar", sent, base_amount=base), servings=servings)

    assert fixes(request(77)) == [("MODIFY_PARAMS", "/ingredients/0/amount", amount)]
    assert fixes(request(amount)) == []


def test_an_ingredient_without_base_amount_need_not_scale() -> None:
    assert fixes(body(item("sugar"), servings={"from": 2, "to": 9})) == []


def test_violations_come_all_at_once_by_rule_then_by_ingredient() -> None:
    request = body(
        item("sugar", base_amount=1),
        item("cream"),
        item("oats"),
        item("flour"),
        dietary=["celiac"],
        cuisine="thai",
    )
    assert [field for _, field, _ in fixes(request)] == [
        "/ingredients/2/brand",
        "/ingredients/3/brand",
        "/ingredients/1/name",
        "/ingredients/0/amount",
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"extra": 1},
        {"ingredients": []},
        {"ingredients": [item("salt", 0)]},
        {"ingredients": [item("salt", -1)]},
        {"ingredients": [item("salt", float("inf"))]},
        {"ingredients": [item("salt", float("nan"))]},
        {"ingredients": [item("salt", "1")]},  # type: ignore[arg-type]
        {"ingredients": [item("")]},
        {"ingredients": [item("x" * 201)]},
        {"ingredients": [item("salt", colour="white")]},
        {"servings": {"from": 0, "to": 4}},
        {"servings": {"from": 4, "to": 2.5}},
        {"servings": {"from": 4, "to": True}},
        {"servings": {"from_": 4, "to": 4}},
        {"dietary": "celiac"},
    ],
)
def test_a_body_off_the_schema_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ConvertRequest.model_validate(body(**wrong))


def test_a_whole_number_may_be_written_as_a_decimal() -> None:
    request = ConvertRequest.model_validate(body(servings={"from": 4.0, "to": 6}))
    assert request.servings.from_ == 4


# Table words, words that a fix may hold, and digits that an amount may hold.
names = st.sampled_from(
    ["flour", " Oats", "cream", "LARD", "parmesan", "ghee", "coconut milk", "sugar", "7up", FLOUR[0]]
) | st.text(min_size=1, max_size=8)
items = st.builds(
    item,
    names,
    st.floats(0, 1e9, exclude_min=True),
    brand=st.none() | st.sampled_from([*FLOUR, *OATS]) | st.text(min_size=1, max_size=8),
    base_amount=st.none()
    | st.floats(0, 1e6, exclude_min=True)
    | st.integers(1, 10_000).map(lambda n: n / 100),
)
requests = st.builds(
    lambda ingredients, cuisine, dietary, before, after: body(
        *ingredients, cuisine=cuisine, dietary=dietary, servings={"from": before, "to": after}
    ),
    st.lists(items, min_size=1, max_size=6),
    st.sampled_from(["thai", "Persian ", "japanese", "nordic"]),
    st.lists(st.sampled_from(["celiac", "CELIAC ", "vegan"]), max_size=2),
    st.integers(1, 1000),
    st.integers(1, 1000),
)


def refusal(request: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(bytes(refused(judged(request), {}).body))
    return content


@unhurried
@given(request=requests)
def test_merging_all_suggestions_is_accepted_in_one_go(request: dict[str, Any]) -> None:
    if judged(request).violations:
        feedback = refusal(request)["recovery_feedback"]
        assert judged(merged(request, feedback["suggestions"])).accepted


@unhurried
@given(request=requests)
def test_an_amended_request_consults_the_same_tables(request: dict[str, Any]) -> None:
    if judged(request).violations:
        amended = merged(request, refusal(request)["recovery_feedback"]["suggestions"])
        assert judged(amended).consulted == judged(request).consulted


@unhurried
@given(request=requests)
def test_the_prose_of_a_refusal_never_holds_a_suggested_value(request: dict[str, Any]) -> None:
    if judged(request).violations:
        said = refusal(request)
        prose = f"{said['detail']} {said['recovery_feedback']['message']}".casefold()
        for suggestion in said["recovery_feedback"]["suggestions"]:
            value = suggestion["parameters"]["suggested_value"]
            text = value if isinstance(value, str) else str(value).removesuffix(".0")
            assert text.casefold() not in prose


def test_a_name_that_gives_a_fix_away_is_not_repeated() -> None:
    request = body(item("7up", 1, base_amount=3.5), servings={"from": 1, "to": 2})
    assert refusal(request)["detail"] == (
        "Ingredient must be scaled exactly to the servings asked for."
    )
