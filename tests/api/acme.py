"""Small requests, table files and servers for the tests of the Acme domain."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from crossmem.api import tables_of
from crossmem.api.acme import DOMAIN
from crossmem.api.acme.requests import ChargeRequest, RefundRequest
from crossmem.api.acme.rules import judge_charge, judge_refund
from crossmem.api.problem import PolicyVerdict
from crossmem.api.tables import ServedTables, read_tables

CHARGES = "/billing/charges"
REFUNDS = "/billing/refunds"

FUNDING = "funding_policy"
ENTERPRISE = "enterprise_policy"
PROMO = "promo_eligibility"
CSM = "active_csm_codes"
REFUND = "refund_policy"


def charge(**changes: Any) -> dict[str, Any]:
    """A charge that every policy accepts."""
    request = {
        "customer": "Fernhill Optics",
        "plan_id": "growth",
        "tier": "team",
        "billing_interval": "monthly",
        "seats": 3,
        "amount": 4900,
        "currency": "usd",
        "payment_method": "pm_card_visa",
        "promo_codes": [],
    }
    return {**request, **changes}


def refund(payment_intent: str, **changes: Any) -> dict[str, Any]:
    """A refund that policy accepts."""
    request = {
        "payment_intent": payment_intent,
        "amount": 1000,
        "reason": "duplicate",
        "days_since_charge": 3,
    }
    return {**request, **changes}


def content(name: str) -> dict[str, Any]:
    """A packaged table file, by its path without the ending."""
    found: dict[str, Any] = json.loads((tables_of("acme") / f"{name}.json").read_text())
    return found


def rows(name: str) -> dict[str, Any]:
    found: dict[str, Any] = content(name)["rows"]
    return found


def csm(version: int) -> dict[str, str]:
    """The codes of a snapshot, by plan."""
    return rows(f"{CSM}.snapshots/v{version}")


def rotate(folder: Path, version: int) -> None:
    """Serve the csm codes of a snapshot, and the companion that makes them eligible."""
    shutil.copy(folder / f"{CSM}.snapshots" / f"v{version}.json", folder / f"{CSM}.json")
    base = content(PROMO)
    for plan, code in csm(version).items():
        base["rows"][code] = {"plans": [plan], "stackable": True, "replaced_by": None}
    base["version"] = f"{version}.1.0"
    (folder / f"{PROMO}.json").write_text(json.dumps(base))


def copied(folder: Path) -> Path:
    """The packaged tables in a folder of their own, with the companion of the base codes."""
    shutil.copytree(tables_of("acme"), folder)
    rotate(folder, 1)
    return folder


BASE: ServedTables = read_tables(tables_of("acme"), DOMAIN.tables)
CODES = csm(1)
ALL_CODES = sorted({code for version in range(1, 5) for code in csm(version).values()})

with TemporaryDirectory() as _folder:
    WORLD: ServedTables = read_tables(copied(Path(_folder) / "acme"), DOMAIN.tables)
    """The tables as the study serves them: with the companion."""


def judged(request: dict[str, Any], tables: ServedTables = BASE) -> PolicyVerdict:
    return judge_charge(ChargeRequest.model_validate(request), tables)


def judged_refund(request: dict[str, Any]) -> PolicyVerdict:
    return judge_refund(RefundRequest.model_validate(request), BASE)
