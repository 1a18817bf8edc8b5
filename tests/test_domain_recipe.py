"""The recipe domain: keys, lessons, places, application, judgement, and the facts of its stream."""

from __future__ import annotations

import copy
import json
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import suggestion_of

from crossmem.api import tables_of
from crossmem.contract import Json, Suggestion
from crossmem.domains import DOMAINS, domain
from crossmem.domains.base import Body, Domain, Keying, Task, merged, value_at
from crossmem.errors import InputError
from crossmem.harness.table_files import read_table
from crossmem.memory.entry import Entry
from crossmem.streams.plan import Plan
from crossmem.streams.plans.recipe import PLANS, tasks

RECIPE = domain("recipe")
KEYINGS: tuple[Keying, ...] = ("task", "request")
PAIRS = read_table(tables_of("recipe") / "incompatible_ingredients.json").rows
GRAINS = ("flour", "oats")


def ingredient(name: str, **members: Json) -> Body:
    return {"name": name, "amount": 1.0, "unit": "g", **members}


def task(*ingredients: Body, dietary: tuple[str, ...] = ("celiac",), cuisine: str = "Thai") -> Task:
    body = {
        "recipe": "dish",
        "cuisine": cuisine,
        "dietary": list(dietary),
        "servings": {"from": 4, "to": 6},
        "ingredients": list(ingredients),
    }
    return Task(id="t", description="", input=body)


def fix(field: str, value: Json, table: str | None = "celiac_brands") -> Suggestion:
    return suggestion_of(
        {
            "action": "MODIFY_PARAMS",
            "parameters": {"field": field, "suggested_value": value},
            "table": table,
            "cache_hint": {"cacheable": table is not None},
        }
    )


def lesson(
    asks: Task, field: str, value: Json = "X", *, keying: Keying = "task", request: Body | None = None
) -> Entry:
    found = RECIPE.lesson(asks, request or asks.input, fix(field, value), keying)
    assert found is not None
    return found


def brand(grain: str, value: Json, key: str | None = None) -> Entry:
    return Entry(("brand", key or grain), "celiac_brands", grain, value, "1.0.0", cacheable=True)


# -- keys and places -------------------------------------------------------------------------------


def test_places_of_a_celiac_task() -> None:
    asks = task(ingredient(" Flour "), ingredient("salt"), ingredient("oats"), ingredient("FLOUR"))

    assert RECIPE.places(asks) == {
        ("brand", "flour"): ["/ingredients/0/brand", "/ingredients/3/brand"],
        ("name", "flour", "thai"): ["/ingredients/0/name", "/ingredients/3/name"],
        ("name", "salt", "thai"): ["/ingredients/1/name"],
        ("brand", "oats"): ["/ingredients/2/brand"],
        ("name", "oats", "thai"): ["/ingredients/2/name"],
    }


def test_brands_match_celiac_tasks_only() -> None:
    asks = task(ingredient("flour"), dietary=("vegan",))

    assert RECIPE.keys(asks) == [("name", "flour", "thai")]


def test_amounts_match_ingredients_that_scale_only() -> None:
    asks = task(ingredient("sugar", base_amount=1.0), ingredient("water"), dietary=())

    assert ("amount", "sugar") in RECIPE.keys(asks)
    assert ("amount", "water") not in RECIPE.keys(asks)


def test_a_key_of_one_cuisine_does_not_match_another() -> None:
    here, there = task(ingredient("cream")), task(ingredient("cream"), cuisine="korean")

    assert set(RECIPE.keys(here)).isdisjoint(RECIPE.keys(there))


@pytest.mark.parametrize(
    ("asks", "drift_row"),
    [
        (task(ingredient("salt"), ingredient("oats")), "oats"),
        (task(ingredient("flour")), "flour"),
        (task(ingredient("salt")), None),
        (task(ingredient("oats"), dietary=()), None),
    ],
)
def test_the_drift_row_is_the_grain_of_a_celiac_task(asks: Task, drift_row: str | None) -> None:
    assert RECIPE.drift_row(asks) == drift_row


# -- lessons ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("keying", KEYINGS)
@pytest.mark.parametrize(
    ("field", "key", "row"),
    [
        ("/ingredients/0/brand", ("brand", "flour"), "flour"),
        ("/ingredients/1/name", ("name", "cream", "thai"), "cream|thai"),
        ("/ingredients/2/amount", ("amount", "sugar"), None),
    ],
)
def test_a_lesson_from_the_raw_task_is_keyed_by_its_words_under_both_keyings(
    keying: Keying, field: str, key: tuple[str, ...], row: str | None
) -> None:
    asks = task(ingredient("Flour"), ingredient("Cream"), ingredient("Sugar", base_amount=1.0))
    entry = lesson(asks, field, keying=keying)

    assert (entry.key, entry.row) == (key, row)
    assert entry.key in RECIPE.keys(asks)
    assert (entry.value, entry.version) == ("X", None)


def test_keying_by_request_keys_a_brand_by_the_brand_that_failed() -> None:
    asks = task(ingredient("flour"))
    request = merged(asks.input, [fix("/ingredients/0/brand", "Stale 1")])
    by_task, by_request = (
        lesson(asks, "/ingredients/0/brand", keying=keying, request=request) for keying in KEYINGS
    )

    assert by_task.key == ("brand", "flour")
    assert by_request.key == ("brand", "Stale 1")
    assert by_request.row == by_task.row == "flour"
    assert by_request.key not in RECIPE.keys(asks)


@pytest.mark.parametrize("empty", ["", None])
def test_a_request_that_holds_an_empty_brand_holds_none(empty: str | None) -> None:
    asks = task(ingredient("flour"))
    request = merged(asks.input, [fix("/ingredients/0/brand", empty)])

    assert lesson(asks, "/ingredients/0/brand", keying="request", request=request).key == (
        "brand",
        "flour",
    )


@pytest.mark.parametrize("keying", KEYINGS)
def test_other_families_are_keyed_by_task_under_both_keyings(keying: Keying) -> None:
    asks = task(ingredient("cream", brand="B"), ingredient("sugar", base_amount=1.0, brand="B"))
    request = merged(asks.input, [fix("/ingredients/0/name", "stale milk")])

    assert lesson(asks, "/ingredients/0/name", keying=keying, request=request).key == (
        "name",
        "cream",
        "thai",
    )
    assert lesson(asks, "/ingredients/1/amount", keying=keying, request=request).key == (
        "amount",
        "sugar",
    )


@pytest.mark.parametrize(
    "field",
    [
        "",
        "/",
        "/cuisine",
        "/ingredients",
        "/ingredients/0",
        "/ingredients/0/unit",
        "/ingredients/-/name",
        "/ingredients/7/brand",
        "/ingredients/0/brand/x",
        "ingredients/0/brand",
        "/ingredients/x/name",
    ],
)
def test_a_suggestion_for_another_place_teaches_nothing(field: str) -> None:
    asks = task(ingredient("flour"))

    assert RECIPE.lesson(asks, asks.input, fix(field, "X"), "task") is None


def test_a_lesson_takes_table_value_and_hint_from_the_suggestion() -> None:
    asks = task(ingredient("sugar", base_amount=1.0))
    entry = RECIPE.lesson(asks, asks.input, fix("/ingredients/0/amount", 1.5, table=None), "task")

    assert entry == Entry(("amount", "sugar"), None, None, 1.5, None, cacheable=False)


@given(
    position=st.integers(0, 3),
    member=st.sampled_from(["brand", "name", "amount"]),
    keying=st.sampled_from(KEYINGS),
    sent=st.none() | st.text(max_size=5),
)
def test_a_key_never_holds_a_json_pointer_or_an_index(
    position: int, member: str, keying: Keying, sent: str | None
) -> None:
    """The same ingredient at another index teaches the same lesson."""
    others = [ingredient("salt") for _ in range(3)]
    flour = ingredient("flour", base_amount=1.0)
    found = []
    for index in (position, 0):
        asks = task(*others[:index], flour, *others[index:])
        request = merged(asks.input, [fix(f"/ingredients/{index}/brand", sent)])
        found.append(lesson(asks, f"/ingredients/{index}/{member}", keying=keying, request=request))
    assert found[0] == found[1]
    assert "ingredients" not in found[0].canonical


# -- application -----------------------------------------------------------------------------------


def test_an_entry_is_put_at_every_place_that_matches() -> None:
    asks = task(ingredient("flour"), ingredient("salt"), ingredient("Flour"))
    draft = RECIPE.apply([brand("flour", "B 1")], asks)

    assert [each.get("brand") for each in draft.body["ingredients"]] == ["B 1", None, "B 1"]
    assert draft.carried == (brand("flour", "B 1"),)


def test_the_last_listed_of_several_values_stands_and_alone_is_carried() -> None:
    asks = task(ingredient("flour"))
    old, new = brand("flour", "old"), brand("flour", "new")

    assert RECIPE.apply([old, new], asks).carried == (new,)
    assert RECIPE.apply([new, old], asks).body["ingredients"][0]["brand"] == "old"


def test_application_is_never_chained() -> None:
    """What an entry puts in matches no further entry: places come from the raw task alone."""
    asks = task(ingredient("cream"))
    first = Entry(("name", "cream", "thai"), "t", "cream|thai", "flour")
    then = Entry(("name", "flour", "thai"), "t", "flour|thai", "rice")
    draft = RECIPE.apply([first, brand("flour", "B"), then], asks)

    assert draft.body["ingredients"] == [ingredient("flour")]
    assert draft.carried == (first,)


def test_entries_of_other_tasks_change_nothing() -> None:
    asks = task(ingredient("salt"), dietary=())
    draft = RECIPE.apply([brand("flour", "B"), Entry(("amount", "salt"), None, None, 2.0)], asks)

    assert draft.body == asks.input
    assert draft.carried == ()


names = st.sampled_from(["flour", "oats", "cream", "sugar"])
recipes = st.lists(
    st.builds(
        lambda name, base: ingredient(name, **({"base_amount": 1.0} if base else {})),
        names,
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
)
pool = st.builds(
    lambda kind, name, value: Entry(
        (kind, name) if kind != "name" else (kind, name, "thai"), "t", name, value
    ),
    st.sampled_from(["brand", "name", "amount"]),
    names,
    st.sampled_from(["v", "w", 2.5]),
)
held = st.lists(pool, max_size=6, unique_by=lambda entry: (entry.key, str(entry.value)))


@given(recipes, held, st.booleans())
def test_what_application_says_it_carried_is_what_stands_in_the_request(
    listed: list[Body], entries: list[Entry], celiac: bool
) -> None:
    asks = task(*listed, dietary=("celiac",) if celiac else ())
    draft = RECIPE.apply(entries, asks)
    found = RECIPE.carried(entries, asks, draft.body)

    assert tuple(entry for entry, _ in found) == draft.carried
    for entry, pointers in found:
        assert pointers == RECIPE.places(asks)[entry.key]
        assert all(value_at(draft.body, each) == entry.value for each in pointers)


@given(recipes, held)
def test_application_leaves_the_task_and_all_other_places_as_they_were(
    listed: list[Body], entries: list[Entry]
) -> None:
    asks = task(*listed)
    before = copy.deepcopy(asks.input)
    body = RECIPE.apply(entries, asks).body
    assert asks.input == before
    for pointer in (p for e in entries for p in RECIPE.places(asks).get(e.key, ())):
        index, member = pointer.split("/")[2:]
        for changed in (body, before):
            changed["ingredients"][int(index)].pop(member, None)
    assert body == before


def test_nothing_is_carried_by_a_request_that_holds_other_values() -> None:
    asks = task(ingredient("flour"))

    assert RECIPE.carried([brand("flour", "B")], asks, asks.input) == []
    assert RECIPE.carried([brand("flour", "B")], asks, {}) == []


def test_a_remembered_1_is_not_carried_by_a_true() -> None:
    asks = task(ingredient("sugar", base_amount=1.0))
    request = merged(asks.input, [fix("/ingredients/0/amount", True)])

    assert RECIPE.carried([Entry(("amount", "sugar"), None, None, 1)], asks, request) == []


def test_merging_keeps_the_request_and_skips_what_cannot_be_placed() -> None:
    body = task(ingredient("flour")).input
    before = copy.deepcopy(body)
    unusable = [fix(field, 1) for field in ("", "x", "/ingredients/9", "/ingredients/9/name", "/a/b")]
    amended = merged(body, [*unusable, fix("/ingredients/0/brand", "B")])

    assert body == before
    assert amended == RECIPE.apply([brand("flour", "B")], task(ingredient("flour"))).body


# -- judgement -------------------------------------------------------------------------------------

ROWS: dict[str, Json] = {"flour": ["A 1", "B 2"], "oats": ["C 3"], "cream|thai": "coconut milk"}
REPLACED = Entry(("name", "cream", "thai"), "t", "cream|thai", "coconut milk")


@pytest.mark.parametrize(
    ("entry", "holds"),
    [
        (brand("flour", "A 1"), True),
        (brand("flour", "B 2"), True),
        (brand("flour", "C 3"), False),
        (brand("flour", "A 1", key="Stale 1"), True),
        (brand("rye", "A 1"), False),
        (REPLACED, True),
        (Entry(REPLACED.key, "t", REPLACED.row, "soy milk"), False),
        (Entry(("amount", "sugar"), None, None, 1.5), False),
    ],
)
def test_a_table_holds_a_value_in_its_own_row_only(entry: Entry, holds: bool) -> None:
    assert RECIPE.holds(entry, ROWS) is holds


def authored(family: str) -> tuple[Task, dict[str, Any]]:
    found = next(each for each in tasks() if each.criterion["family"] == family)
    return found.task, found.criterion


@pytest.mark.parametrize("family", ["celiac", "incompatible", "scaling"])
def test_the_fixed_request_keeps_its_tasks_intent(family: str) -> None:
    asks, criterion = authored(family)
    mended = {
        "celiac": fix("/ingredients/0/brand", "B"),
        "incompatible": fix("/ingredients/0/name", "ghee"),
        "scaling": fix("/ingredients/0/amount", 150.0),
    }[family]

    assert RECIPE.intent_kept(criterion, asks.input)
    assert RECIPE.intent_kept(criterion, merged(asks.input, [mended]))


@pytest.mark.parametrize("family", ["celiac", "incompatible", "scaling"])
@pytest.mark.parametrize("index", [0, 1])
def test_a_dropped_ingredient_breaks_the_intent(family: str, index: int) -> None:
    asks, criterion = authored(family)
    request = copy.deepcopy(asks.input)
    del request["ingredients"][index]

    assert not RECIPE.intent_kept(criterion, request)


@pytest.mark.parametrize("family", ["celiac", "incompatible", "scaling"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("/servings", {"from": 4, "to": 99}),
        ("/servings/from", 99),
        ("/cuisine", "elsewhere"),
        ("/ingredients/1/name", "sand"),
    ],
)
def test_other_servings_cuisine_or_ingredients_break_the_intent(
    family: str, field: str, value: Json
) -> None:
    asks, criterion = authored(family)

    assert not RECIPE.intent_kept(criterion, merged(asks.input, [fix(field, value)]))


@pytest.mark.parametrize("family", ["celiac", "scaling"])
def test_only_a_forbidden_ingredient_may_be_replaced(family: str) -> None:
    asks, criterion = authored(family)

    assert not RECIPE.intent_kept(criterion, merged(asks.input, [fix("/ingredients/0/name", "sand")]))


def test_every_key_is_described_in_words_of_its_own() -> None:
    keys = {key for each in tasks() for key in RECIPE.keys(each.task)}
    described = {RECIPE.describe(key) for key in keys}

    assert len(described) == len(keys)
    assert all(word in RECIPE.describe(key) for key in keys for word in key if word == key[1])


def test_an_unknown_domain_is_refused_with_the_choices() -> None:
    with pytest.raises(InputError, match="recipe"):
        domain("recipes")


@pytest.mark.parametrize("each", DOMAINS.values(), ids=list(DOMAINS))
def test_a_domain_says_what_the_study_asks_of_it(each: Domain) -> None:
    assert each.slot_family in each.families
    assert set(each.keyings) <= set(KEYINGS)


# -- the stream's plan (CONTRACT.md) ---------------------------------------------------------------

FAMILIES = (
    "celiac incompatible celiac incompatible scaling celiac incompatible celiac incompatible scaling "
    "celiac incompatible celiac incompatible scaling incompatible celiac incompatible celiac scaling "
    "celiac incompatible celiac incompatible"
).split()
GRAIN_AT = {0: "flour", 2: "oats", 5: "flour", 7: "oats", 10: "flour", 12: "oats"} | {
    16: "flour",
    18: "oats",
    20: "flour",
    22: "oats",
}
PAIR_AT = {1: 0, 3: 1, 6: 2, 8: 0, 11: 3, 13: 1, 15: 4, 17: 2, 21: 0, 23: 3}
SCALED = {4: ("sugar", 4, 6), 9: ("butter", 4, 10), 14: ("sugar", 4, 5), 19: ("butter", 4, 7)}
STREAM = [each.task for each in tasks()]


def listed(asks: Task) -> list[str]:
    return [each["name"] for each in asks.input["ingredients"]]


def test_families_stand_where_the_plan_has_them() -> None:
    assert [each.criterion["family"] for each in tasks()] == FAMILIES


def test_a_raw_celiac_task_carries_no_brand_and_exactly_one_grain() -> None:
    for index, grain in GRAIN_AT.items():
        assert [name for name in listed(STREAM[index]) if name in GRAINS] == [grain]
        assert STREAM[index].input["dietary"] == ["celiac"]
        assert RECIPE.drift_row(STREAM[index]) == grain


def test_no_raw_task_carries_a_brand() -> None:
    assert not [each for asks in STREAM for each in asks.input["ingredients"] if "brand" in each]


def test_grains_and_the_celiac_diet_occur_in_their_own_family_only() -> None:
    for index, asks in enumerate(STREAM):
        celiac = FAMILIES[index] == "celiac"
        assert bool(set(GRAINS).intersection(listed(asks))) is celiac
        assert ("celiac" in asks.input["dietary"]) is celiac


def test_forbidden_pairs_occur_in_their_own_family_only_one_a_task() -> None:
    for index, asks in enumerate(STREAM):
        cuisine = asks.input["cuisine"]
        forbidden = [name for name in listed(asks) if f"{name}|{cuisine}" in PAIRS]
        assert len(forbidden) == (FAMILIES[index] == "incompatible")


def test_the_forbidden_pairs_recur_as_planned() -> None:
    pair_of = {
        index: f"{listed(STREAM[index])[0]}|{STREAM[index].input['cuisine']}" for index in PAIR_AT
    }
    first_at = {number: pair_of[index] for index, number in reversed(PAIR_AT.items())}

    assert pair_of == {index: first_at[number] for index, number in PAIR_AT.items()}
    assert len(set(first_at.values())) == 5


def test_a_replacement_stands_in_no_task() -> None:
    texts = " ".join(each.model_dump_json() for each in STREAM)

    assert not [value for value in PAIRS.values() if value in texts]


def test_scaling_ingredients_occur_in_their_own_family_only() -> None:
    for index, asks in enumerate(STREAM):
        scaling = FAMILIES[index] == "scaling"
        based = [each["name"] for each in asks.input["ingredients"] if "base_amount" in each]
        assert based == ([SCALED[index][0]] if scaling else [])
        assert bool({"sugar", "butter"}.intersection(listed(asks))) is scaling


def test_two_wrong_amounts_come_in_and_then_two_right_ones_at_another_ratio() -> None:
    for index, (name, before, after) in SCALED.items():
        asks = STREAM[index]
        scaled = asks.input["ingredients"][0]
        right = Fraction(str(scaled["base_amount"])) * after / before
        assert scaled["name"] == name
        assert asks.input["servings"] == {"from": before, "to": after}
        assert (Fraction(str(scaled["amount"])) == right) is (index in {14, 19})


def test_a_remembered_amount_would_break_the_right_ones() -> None:
    for wrong, right in ((4, 14), (9, 19)):
        (first, then) = (STREAM[index].input["ingredients"][0] for index in (wrong, right))
        remembered = first["base_amount"] * SCALED[wrong][2] / SCALED[wrong][1]
        assert ("amount", first["name"]) in RECIPE.keys(STREAM[right])
        assert remembered != then["amount"]


def test_ids_are_unique_and_plans_are_reproducible() -> None:
    assert len({each.id for each in STREAM}) == 24
    assert tasks() == tasks()


DRIFTS: dict[str, list[tuple[int, str]]] = {
    "phase1": [(16, "2.0.0")],
    "phase2_v2": [(16, "2.0.0")],
    "phase2_v4": [(16, "4.0.0")],
    "phase3_m1": [(10, "2.0.0"), (18, "3.0.0"), (27, "4.0.0"), (38, "5.0.0")],
    "churn": [(16, "churn")],
    "silent": [(16, "silent")],
    "rollback": [(10, "2.0.0"), (16, "1.0.0")],
}


def test_every_stream_drifts_where_the_contract_says() -> None:
    assert {plan.name: list(plan.drifts) for plan in PLANS} == DRIFTS


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_the_budget_window_crosses_no_drift(plan: Plan) -> None:
    assert plan.budget_window is not None
    first, last = plan.budget_window

    assert not [before for before, _ in plan.drifts if first < before <= last]


def windows(plan: Plan) -> list[tuple[str, list[str]]]:
    """The snapshot of each drift and the grains of the celiac tasks from it to the next one."""
    grains = [RECIPE.drift_row(each.task) for each in plan.tasks()]
    bounds = [*(before for before, _ in plan.drifts), len(grains)]
    return [
        (name, [grain for grain in grains[start:end] if grain])
        for (_, name), (start, end) in zip(plan.drifts, pairwise(bounds), strict=True)
    ]


ROTATING = [plan for plan in PLANS if plan.name not in {"churn", "rollback"}]


@pytest.mark.parametrize("plan", ROTATING, ids=lambda plan: plan.name)
def test_a_window_after_a_drift_opens_with_a_grain_whose_brand_is_gone(plan: Plan) -> None:
    snapshots = tables_of("recipe") / "celiac_brands.snapshots"
    old = read_table(snapshots / "1.0.0.json").rows
    for name, (slot, *_) in windows(plan):
        rows = read_table(snapshots / f"{name}.json").rows
        assert old[slot][0] not in rows[slot]
        old = rows


@pytest.mark.parametrize("plan", ROTATING, ids=lambda plan: plan.name)
def test_a_window_after_a_drift_holds_its_first_grain_twice_and_the_other_once(plan: Plan) -> None:
    for _, grains in windows(plan):
        assert grains.count(grains[0]) >= 2
        assert set(grains) == set(GRAINS)


def test_the_slots_of_m1_are_flour_oats_flour_flour() -> None:
    m1 = next(plan for plan in PLANS if plan.name == "phase3_m1")

    assert [grains[0] for _, grains in windows(m1)] == ["flour", "oats", "flour", "flour"]


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_the_written_stream_holds_the_planned_tasks(plan: Plan) -> None:
    from crossmem import streams

    stream = streams.load(plan.name)

    assert [each.task for each in stream.episodes] == [each.task for each in plan.tasks()]
    assert json.loads(stream.dumped())["criteria"] == {
        each.task.id: each.criterion for each in plan.tasks()
    }
