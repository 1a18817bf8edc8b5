"""The policies of Acme billing, written anew from the contract; a clean charge is answered here."""

from __future__ import annotations

from typing import Any

Found = tuple[list[tuple[str, str, Any, Any, str | None]], list[str]]

FUNDING = {
    "pm_card_visa": "credit",
    "pm_card_mastercard": "credit",
    "pm_card_amex": "credit",
    "pm_card_visa_debit": "debit",
    "pm_card_mastercard_prepaid": "prepaid",
}


def judge(body: dict[str, Any], tables: dict[str, Any]) -> Found:
    """Return what is wrong, each with its fix, and the tables that were consulted."""
    rows = {name: table["rows"] for name, table in tables.items()}
    wanted, consulted = terms(body, rows)
    promos, plan = rows["promo_eligibility"], body["plan_id"]
    if sent := body["promo_codes"]:
        consulted.append("promo_eligibility")
        heirs = [heir(code, plan, promos) for code in sent]
        wanted.append(("promo_codes", [code for code in heirs if code], "promo_eligibility"))
    if plan in (codes := rows["active_csm_codes"]):
        consulted.append("active_csm_codes")
        wanted.append(("csm_code", codes[plan], "active_csm_codes"))
        if body.get("csm_code") == codes[plan]:
            consulted.append("promo_eligibility")
            assert plan in promos[codes[plan]]["plans"], "the companion table was not derived"
    found = [
        ("MODIFY_PARAMS", f"/{name}", body.get(name), value, table)
        for name, value, table in wanted
        if body.get(name) != value
    ]
    return [*found], consulted


def terms(body: dict[str, Any], rows: dict[str, Any]) -> tuple[list[tuple[str, Any, str]], list[str]]:
    """Return what the tier wants of a charge."""
    funding, policy = rows["funding_policy"][body["tier"]], rows["enterprise_policy"]
    wanted: list[tuple[str, Any, str]] = []
    if FUNDING.get(body["payment_method"]) not in funding["accepts"]:
        wanted.append(("payment_method", funding["use"], "funding_policy"))
    if body["tier"] != "enterprise":
        return wanted, ["funding_policy"]
    wanted += [
        ("billing_interval", policy["enterprise.billing_interval"], "enterprise_policy"),
        ("seats", max(body["seats"], policy["enterprise.seats"]), "enterprise_policy"),
    ]
    return wanted, ["funding_policy", "enterprise_policy"]


def heir(code: str | None, plan: str, promos: dict[str, Any]) -> str | None:
    while code in promos and plan not in promos[code]["plans"]:
        code = promos[code]["replaced_by"]
    return code if code in promos else None
