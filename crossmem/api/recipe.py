"""The recipe domain: its request, its three rules as pure functions, and its one endpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter

from crossmem.api.domain import ApiDomain
from crossmem.api.fields import RequestPart, Text, whole
from crossmem.api.problem import (
    PolicyVerdict,
    Problem,
    Refusal,
    Value,
    Versions,
    Violation,
    pointer,
    refused,
)
from crossmem.api.tables import ServedTables, TableSpec, TableStore, versions_of

if TYPE_CHECKING:
    from crossmem.api.payments.payments import Payments

BRANDS = "celiac_brands"
PAIRS = "incompatible_ingredients"


# The limits keep every suggested amount (base x 1000 at most) inside what a request may carry.
Servings = Annotated[int, Field(strict=True, ge=1, le=1000), BeforeValidator(whole)]
BaseAmount = Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False)]
Amount = Annotated[float, Field(strict=True, gt=0, le=1e9, allow_inf_nan=False)]


class Ingredient(RequestPart):
    """One ingredient of the recipe to convert."""

    name: Text
    amount: Amount
    unit: Text
    brand: Text | None = None
    base_amount: Annotated[
        BaseAmount | None,
        Field(description="The amount for `servings.from`; makes the ingredient scale exactly."),
    ] = None


class ServingsChange(RequestPart):
    """How many people the recipe feeds, before and after."""

    from_: Annotated[Servings, Field(alias="from")]
    to: Servings


class ConvertRequest(RequestPart):
    """A recipe to convert. Names are compared without regard to case and surrounding blanks."""

    recipe: Text
    cuisine: Text
    dietary: Annotated[list[Text], Field(max_length=20)]
    servings: ServingsChange
    ingredients: Annotated[list[Ingredient], Field(min_length=1, max_length=100)]


class ConvertedIngredient(BaseModel):
    """One ingredient of the accepted recipe."""

    name: str
    amount: float
    unit: str
    brand: str | None = None


class ConvertedRecipe(BaseModel):
    """The accepted recipe."""

    recipe: str
    cuisine: str
    servings: int
    ingredients: list[ConvertedIngredient]


class Converted(BaseModel):
    """The answer to an accepted request."""

    result: ConvertedRecipe
    table_versions: Versions


Brands = Annotated[list[Text], Field(min_length=1)]
BrandRows = Annotated[dict[Literal["flour", "oats"], Brands], Field(min_length=2)]
"""`celiac_brands`: of both categories the certified brands, the one to suggest first."""

PairKey = Annotated[str, Field(pattern=r"^[^|]+\|[^|]+$")]
"""`<ingredient>|<cuisine>`: a pair that is forbidden; the row's value replaces the ingredient."""


def judge(request: ConvertRequest, tables: ServedTables) -> PolicyVerdict:
    """Check a request against all rules: celiac, incompatible, scaling, each by ingredient."""
    verdict = PolicyVerdict()
    _celiac(request, tables[BRANDS].rows, verdict)
    _incompatible(request, tables[PAIRS].rows, verdict)
    _scaling(request, verdict)
    return verdict


def _celiac(request: ConvertRequest, brands: Mapping[str, list[str]], verdict: PolicyVerdict) -> None:
    """With `celiac` in dietary, flour and oats need a certified brand.

    The table is consulted where this condition holds, whatever the brand.
    """
    if "celiac" not in map(_fold, request.dietary):
        return
    for index, item in enumerate(request.ingredients):
        certified = brands.get(_fold(item.name))
        if certified is None:
            continue
        verdict.consult(BRANDS)
        if _fold(item.brand or "") not in map(_fold, certified):
            rule = "must carry a brand certified for celiac diets."
            broken = _violation(index, item, "brand", rule, certified[0])
            verdict.add(replace(broken, action="USE_SPECIFIC_BRAND", table=BRANDS))


def _incompatible(request: ConvertRequest, rows: Mapping[str, str], verdict: PolicyVerdict) -> None:
    """Refuse a pair of ingredient and cuisine that the table forbids.

    Our reading of "consulted": some ingredient of the request occurs in a row of its cuisine, as
    the forbidden ingredient or as its replacement. So a request that already carries the
    replacement still shows the table's version, and one that has nothing to do with it does not.
    """
    replacements = _replacements(rows, _fold(request.cuisine))
    known = {*replacements, *map(_fold, replacements.values())}
    for index, item in enumerate(request.ingredients):
        if _fold(item.name) in known:
            verdict.consult(PAIRS)
        if (wanted := replacements.get(_fold(item.name))) is not None:
            rule = "is not compatible with the cuisine asked for."
            broken = _violation(index, item, "name", rule, wanted)
            verdict.add(replace(broken, action="REPLACE_INCOMPATIBLE_INGREDIENT", table=PAIRS))


def _scaling(request: ConvertRequest, verdict: PolicyVerdict) -> None:
    """An ingredient with a base amount needs base_amount x to / from, to two decimals.

    The amount belongs to this request alone: no table, not cacheable.
    """
    ratio = Fraction(request.servings.to, request.servings.from_)
    for index, item in enumerate(request.ingredients):
        if item.base_amount is None:
            continue
        wanted = _hundredths(_exact(item.base_amount) * ratio)
        if _hundredths(_exact(item.amount)) != wanted:
            rule = "must be scaled exactly to the servings asked for."
            verdict.add(_violation(index, item, "amount", rule, wanted / 100))


def _violation(index: int, item: Ingredient, field: str, rule: str, suggested: Value) -> Violation:
    place = pointer("ingredients", index, field)
    return Violation(("Ingredient", item.name), rule, place, getattr(item, field), suggested)


def _replacements(rows: Mapping[str, str], cuisine: str) -> dict[str, str]:
    pairs = ((key.partition("|"), value) for key, value in rows.items())
    return {_fold(name): value for (name, _, of), value in pairs if _fold(of) == cuisine}


def _fold(name: str) -> str:
    return name.strip().casefold()


def _exact(amount: float) -> Fraction:
    # The shortest text of a float is the decimal the client wrote; the float itself is not.
    return Fraction(str(amount))


def _hundredths(amount: Fraction) -> int:
    """Round half up to two decimals; a trace counts as 0.01, for an amount is never zero.

    >>> _hundredths(Fraction("1.005")), _hundredths(Fraction(1, 1000))
    (101, 1)
    """
    return max(1, math.floor(amount * 100 + Fraction(1, 2)))


def routes(store: TableStore, _payments: Payments | None = None) -> APIRouter:
    """Return the domain's endpoint, bound to the tables of one server."""
    router = APIRouter()

    @router.post(
        "/recipes/convert",
        response_model=Converted,
        response_model_exclude_none=True,
        responses={
            200: {"description": "Accepted: the converted recipe."},
            400: {"model": Problem, "description": "The body is not JSON."},
            422: {
                "model": Refusal | Problem,
                "description": "Refused by policy, with `recovery_feedback`; or off the schema.",
            },
        },
    )
    async def convert(body: ConvertRequest) -> Converted | Response:
        """Convert a recipe to another number of servings, a cuisine and dietary needs."""
        tables = store.tables
        verdict = judge(body, tables)
        versions = versions_of(tables, verdict.consulted)
        if not verdict.accepted:
            return refused(verdict, versions)
        converted = ConvertedRecipe(
            recipe=body.recipe,
            cuisine=body.cuisine,
            servings=body.servings.to,
            ingredients=[
                ConvertedIngredient(**item.model_dump(exclude={"base_amount"}))
                for item in body.ingredients
            ],
        )
        return Converted(result=converted, table_versions=versions)

    return router


DOMAIN = ApiDomain(
    title="Recipe conversion",
    tables=(
        TableSpec(BRANDS, "list", TypeAdapter(BrandRows)),
        TableSpec(PAIRS, "dict", TypeAdapter(dict[PairKey, Text])),
    ),
    routes=routes,
)
