"""The recipe domain's streams: 24 tasks in which lessons recur, and where the brands drift.

F is a celiac task with flour, O one with oats, I0 to I4 hold a forbidden pair, `sugar!4>6` comes in
with the wrong amount for its servings and `sugar=4>5` with the right one.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from crossmem.domains.base import Task
from crossmem.streams.plan import Authored, Plan

_PLAN = (
    "F I0 O I1 sugar!4>6 F I2 O I0 butter!4>10 F I3 O I1 sugar=4>5 I4 F I2 O butter=4>7 F I0 O I3"
).split()

_FLOUR_DISHES = ("griddle cakes", "shortbread", "dumpling wrappers", "apple crumble", "flatbread")
_OATS_DISHES = ("porridge", "muesli bars", "oatcakes", "granola", "baked pears")
PAIRS = (
    ("cream", "thai", "green curry", "eggplant"),
    ("parmesan", "japanese", "cold noodles", "cucumber"),
    ("lard", "persian", "jewelled rice", "saffron"),
    ("soy sauce", "italian", "braised beans", "sage"),
    ("wine vinegar", "korean", "cold broth", "radish"),
)
_BASE_AMOUNTS = {"sugar": 100.0, "butter": 85.0}
_SCALED_DISHES = {"sugar": "lemon syrup", "butter": "pan sauce"}


def tasks() -> list[Authored]:
    """Return the 24 tasks in order."""
    dishes = {"F": iter(_FLOUR_DISHES), "O": iter(_OATS_DISHES)}
    return [_author(f"r{index:02}", step, dishes) for index, step in enumerate(_PLAN)]


def _author(name: str, step: str, dishes: dict[str, Iterator[str]]) -> Authored:
    if step in dishes:
        return _celiac(name, {"F": "flour", "O": "oats"}[step], next(dishes[step]))
    if step.startswith("I"):
        return _incompatible(name, *PAIRS[int(step[1])])
    right = "=" in step
    ingredient, _, servings = step.partition("=" if right else "!")
    before, after = map(int, servings.split(">"))
    return _scaling(name, ingredient, before, after, right=right)


def _celiac(name: str, grain: str, dish: str) -> Authored:
    return _authored(
        name,
        "celiac",
        f"Convert the {dish} for a guest with celiac disease. The recipe uses {grain}.",
        {
            "recipe": dish,
            "cuisine": "home style",
            "dietary": ["celiac"],
            "servings": {"from": 4, "to": 4},
            "ingredients": [
                {"name": grain, "amount": 180.0, "unit": "g"},
                {"name": "salt", "amount": 3.0, "unit": "g"},
            ],
        },
    )


def _incompatible(name: str, ingredient: str, cuisine: str, dish: str, other: str) -> Authored:
    return _authored(
        name,
        "incompatible",
        f"Convert the {dish} to {cuisine} cuisine. The kitchen has {ingredient} and {other}.",
        {
            "recipe": dish,
            "cuisine": cuisine,
            "dietary": [],
            "servings": {"from": 4, "to": 4},
            "ingredients": [
                {"name": ingredient, "amount": 60.0, "unit": "g"},
                {"name": other, "amount": 20.0, "unit": "g"},
            ],
        },
        replaceable=ingredient,
    )


def _scaling(name: str, ingredient: str, before: int, after: int, *, right: bool) -> Authored:
    dish = _SCALED_DISHES[ingredient]
    return _authored(
        name,
        "scaling",
        f"Convert the {dish} from {before} to {after} servings.",
        {
            "recipe": dish,
            "cuisine": "home style",
            "dietary": [],
            "servings": {"from": before, "to": after},
            "ingredients": [
                scaled(ingredient, before, after, right=right),
                {"name": "water", "amount": 50.0, "unit": "g"},
            ],
        },
    )


def scaled(ingredient: str, before: int, after: int, *, right: bool) -> dict[str, Any]:
    """Return an ingredient that scales, with the right amount or the one it had before."""
    base = _BASE_AMOUNTS[ingredient]
    amount = float(round(Fraction(base) * after / before, 2))
    return {
        "name": ingredient,
        "amount": amount if right else base,
        "unit": "g",
        "base_amount": base,
    }


def _authored(
    name: str, family: str, text: str, body: dict[str, Any], replaceable: str | None = None
) -> Authored:
    """Pair a task with its criterion: all that was asked for, and no fix."""
    listed = [ingredient["name"] for ingredient in body["ingredients"]]
    criterion = {
        "family": family,
        "cuisine": body["cuisine"],
        "servings": body["servings"],
        "ingredients": len(listed),
        "keep": [each for each in listed if each != replaceable],
    }
    return Authored(Task(id=name, description=text, input=body), criterion)


def _twice() -> list[Authored]:
    return tasks() * 2


LADDER = ((10, "2.0.0"), (18, "3.0.0"), (27, "4.0.0"), (38, "5.0.0"))
_ROLLBACK = ((10, "2.0.0"), (16, "1.0.0"))

PLANS = (
    Plan("phase1", "recipe", "phase1", tasks, ((16, "2.0.0"),), (6, 13), keying="request"),
    Plan("phase2_v2", "recipe", "phase2", tasks, ((16, "2.0.0"),), (6, 13)),
    Plan("phase2_v4", "recipe", "phase2", tasks, ((16, "4.0.0"),), (6, 13)),
    Plan("churn", "recipe", "phase2", tasks, ((16, "churn"),), (6, 13)),
    Plan("silent", "recipe", "phase2", tasks, ((16, "silent"),), (6, 13)),
    Plan("rollback", "recipe", "phase2", tasks, _ROLLBACK, (3, 8)),
    Plan("phase3_m1", "recipe", "phase3", _twice, LADDER, (19, 26)),
)
