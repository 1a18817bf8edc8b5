"""The rules of recipe conversion, written anew from the contract."""

from __future__ import annotations

from typing import Any

Found = tuple[list[tuple[str, str, Any, Any, str | None]], list[str]]


def judge(body: dict[str, Any], tables: dict[str, Any]) -> Found:
    """Return what is wrong, each with its fix, and the tables that were consulted."""
    brands, pairs = tables["celiac_brands"]["rows"], tables["incompatible_ingredients"]["rows"]
    cuisine = body["cuisine"]
    celiac, forbidden, scaling = [], [], []
    consulted = []
    for index, item in enumerate(body["ingredients"]):
        at = f"/ingredients/{index}"
        name, brand = item["name"], item.get("brand")
        if "celiac" in body["dietary"] and name in brands:
            consulted.append("celiac_brands")
            if brand not in brands[name]:
                fix = brands[name][0]
                celiac.append(("USE_SPECIFIC_BRAND", f"{at}/brand", brand, fix, "celiac_brands"))
        there = {pair.split("|")[0]: new for pair, new in pairs.items() if pair.endswith(f"|{cuisine}")}
        if name in there or name in there.values():
            consulted.append("incompatible_ingredients")
        if name in there:
            action = "REPLACE_INCOMPATIBLE_INGREDIENT"
            fix = there[name]
            forbidden.append((action, f"{at}/name", name, fix, "incompatible_ingredients"))
        if item.get("base_amount"):
            exact = round(item["base_amount"] * body["servings"]["to"] / body["servings"]["from"], 2)
            if exact != item["amount"]:
                scaling.append(("MODIFY_PARAMS", f"{at}/amount", item["amount"], exact, None))
    return [*celiac, *forbidden, *scaling], consulted
