"""The recipe domain's `combined` family: tasks that break the rules of several families at once.

They stand in one stream, `experience_m1`: the ladder of Phase 3 with such a task after every four.
"""

from __future__ import annotations

from itertools import cycle

from crossmem.domains.base import Body, Task
from crossmem.streams.plan import Authored, Plan
from crossmem.streams.plans.recipe import LADDER, PAIRS, scaled, tasks

_EVERY = 4
_COMBINED: tuple[tuple[str, int, str | None], ...] = (
    ("flour", 0, None),
    ("oats", 1, None),
    ("flour", 2, "sugar"),
    ("oats", 3, None),
    ("flour", 4, None),
    ("oats", 0, "butter"),
)
"""Grain, forbidden pair, and an ingredient that comes in with the amount of another ratio."""


def _ladder() -> list[Authored]:
    """Return 60 tasks: 48 of the ladder, 12 combined ones, the last of each five."""
    combined = cycle([_author(number, *each) for number, each in enumerate(_COMBINED)])
    plain = tasks() * 2
    mixed = []
    for index, each in enumerate(plain, start=1):
        mixed.append(each)
        if index % _EVERY == 0:
            mixed.append(next(combined))
    return mixed


def _author(number: int, grain: str, pair: int, amount: str | None) -> Authored:
    forbidden, cuisine, dish, other = PAIRS[pair]
    listed: list[Body] = [
        {"name": grain, "amount": 180.0, "unit": "g"},
        {"name": forbidden, "amount": 60.0, "unit": "g"},
        {"name": other, "amount": 20.0, "unit": "g"},
    ]
    servings = {"from": 4, "to": 4}
    if amount:
        servings = {"from": 4, "to": 14}
        listed.append(scaled(amount, 4, 14, right=False))
    body = {
        "recipe": dish,
        "cuisine": cuisine,
        "dietary": ["celiac"],
        "servings": servings,
        "ingredients": listed,
    }
    text = f"Convert the {dish} to {cuisine} cuisine for a guest with celiac disease. It uses {grain}."
    criterion = {
        "family": "combined",
        "cuisine": cuisine,
        "servings": servings,
        "ingredients": len(listed),
        "keep": [each["name"] for each in listed if each["name"] != forbidden],
    }
    return Authored(Task(id=f"c{number:02}", description=text, input=body), criterion)


def _moved(before: int) -> int:
    """Return where an episode of the ladder stands among the combined ones."""
    return before + before // _EVERY


PLANS = (
    Plan(
        "experience_m1",
        "recipe",
        "experience",
        _ladder,
        tuple((_moved(before), snapshot) for before, snapshot in LADDER),
        (39, 42),
    ),
)
