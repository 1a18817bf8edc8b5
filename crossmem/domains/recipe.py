"""The recipe-conversion domain: how its lessons are keyed and applied, and the plan of its streams.

Keys: `(brand, term)` for celiac tasks, `(name, ingredient, cuisine)`, `(amount, ingredient)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from crossmem.contract import Json, Suggestion
from crossmem.domains.base import Body, Domain, Keying, Task, value_at
from crossmem.memory.entry import Entry, Key, same

_FIELD = re.compile(r"/ingredients/(\d+)/(brand|name|amount)")
_CERTIFIED = frozenset({"flour", "oats"})


class Recipe(Domain):
    """`POST /recipes/convert`."""

    name: ClassVar[str] = "recipe"
    families: ClassVar[tuple[str, ...]] = ("celiac", "incompatible", "scaling")
    drifting_table: ClassVar[str] = "celiac_brands"
    slot_family: ClassVar[str] = "celiac"
    role: ClassVar[str] = (
        "You convert recipes by calling a recipe-conversion API. You are given a task and its Input "
        "Data; you answer with the JSON body of one request to the API."
    )

    def endpoint(self, task: Task) -> str:  # noqa: ARG002
        """Every task of this domain is a conversion."""
        return "/recipes/convert"

    def places(self, task: Task) -> dict[Key, list[str]]:
        """Brands match flour and oats of celiac tasks, names an ingredient under a cuisine."""
        cuisine = _word(task.input.get("cuisine"))
        celiac = "celiac" in map(_word, task.input.get("dietary", ()))
        found: dict[Key, list[str]] = {}
        for index, ingredient in enumerate(task.input.get("ingredients", ())):
            term = _word(ingredient.get("name"))
            at = f"/ingredients/{index}"
            if celiac and term in _CERTIFIED:
                found.setdefault(("brand", term), []).append(f"{at}/brand")
            found.setdefault(("name", term, cuisine), []).append(f"{at}/name")
            if "base_amount" in ingredient:
                found.setdefault(("amount", term), []).append(f"{at}/amount")
        return found

    def lesson(self, task: Task, request: Body, suggestion: Suggestion, keying: Keying) -> Entry | None:
        """Key a lesson by the raw task's ingredient at the suggestion's place.

        Under `keying="request"` a brand lesson is keyed by the brand that the failing request held, if
        it held one: after a drift that is the remembered, now stale, value.
        """
        match = _FIELD.fullmatch(suggestion.field)
        sent = _ingredient(request, int(match[1])) if match else None
        if match is None or sent is None:
            return None
        name = _word(sent.get("name"))
        term = _word((_ingredient(task.input, int(match[1])) or sent).get("name"))
        cuisine = _word(task.input.get("cuisine"))
        key: Key
        row: str | None = None
        match match[2]:
            case "brand":
                remembered = sent.get("brand") if keying == "request" else None
                key, row = ("brand", str(remembered or term)), name
            case "name":
                key, row = ("name", term, cuisine), f"{name}|{cuisine}"
            case _:
                key = ("amount", term)
        return Entry(
            key=key,
            table=suggestion.table,
            row=row,
            value=suggestion.suggested_value,
            cacheable=suggestion.cacheable,
        )

    def holds(self, entry: Entry, rows: Mapping[str, Json]) -> bool:
        """A brand must be in its category's list, a replacement in its row."""
        live = rows.get(entry.row or "")
        if isinstance(live, list):
            return any(same(value, entry.value) for value in live)
        return live is not None and same(live, entry.value)

    def current(self, entry: Entry, rows: Mapping[str, Json]) -> Entry | None:
        """The first brand of the category, as the API suggests it; the replacement in its row."""
        live = rows.get(entry.row or "")
        value = next(iter(live), None) if isinstance(live, list) else live
        return None if value is None else replace(entry, value=value)

    def intent_kept(self, criterion: Mapping[str, Json], request: Body) -> bool:
        """Cuisine and servings as asked, no ingredient dropped, and those named still there."""
        ingredients = request.get("ingredients", [])
        names = [_word(each.get("name")) for each in ingredients]
        return bool(
            _word(request.get("cuisine")) == criterion["cuisine"]
            and request.get("servings") == criterion["servings"]
            and len(ingredients) >= criterion["ingredients"]
            and all(name in names for name in criterion["keep"])
        )

    def drift_row(self, task: Task) -> str | None:
        """The grain of a celiac task."""
        return next((key[1] for key in self.keys(task) if key[0] == "brand"), None)

    def describe(self, key: Key) -> str:
        """Say which member of which ingredient the entry amends."""
        match key:
            case ("brand", term):
                return f"brand of {term!r} in celiac recipes"
            case ("name", ingredient, cuisine):
                return f"{ingredient!r} in {cuisine} recipes, name"
            case (what, term):
                return f"{what} of {term!r}"
            case _:
                return " ".join(key)


DOMAIN = Recipe()


def _word(value: Json) -> str:
    return str(value or "").strip().lower()


def _ingredient(body: Body, index: int) -> Body | None:
    found = value_at(body, f"/ingredients/{index}")
    return found if isinstance(found, dict) else None
