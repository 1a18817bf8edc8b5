"""The Acme policies as pure functions: what is refused, with which fix, and which tables it shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import pytest
from pydantic import ValidationError

from crossmem.api.acme import DOMAIN
from crossmem.api.acme.requests import ChargeRequest, RefundRequest, StripeReason, Tier
from crossmem.api.payments.cards import CARDS
from crossmem.api.problem import PolicyVerdict
from crossmem.api.tables import ServedTables, read_tables

from .acme import (
    BASE,
    CODES,
    CSM,
    ENTERPRISE,
    FUNDING,
    PROMO,
    REFUND,
    WORLD,
    charge,
    copied,
    judged,
    judged_refund,
    refund,
    rows,
)

if TYPE_CHECKING:
    from pathlib import Path


def fixes(request: dict[str, Any], tables: ServedTables = BASE) -> list[tuple[str, object]]:
    return [(broken.field, broken.suggested) for broken in judged(request, tables).violations]


def test_the_charge_of_these_tests_is_accepted() -> None:
    assert judged(charge()) == PolicyVerdict(consulted=[FUNDING])


@pytest.mark.parametrize("tier", get_args(Tier))
@pytest.mark.parametrize("token", CARDS)
def test_a_tier_takes_the_funding_types_of_its_row_and_suggests_its_card(tier: str, token: str) -> None:
    row = rows(FUNDING)[tier]
    request = charge(tier=tier, billing_interval="annual", seats=30, payment_method=token)
    expected = [] if CARDS[token].funding in row["accepts"] else [("/payment_method", row["use"])]
    assert fixes(request) == expected


def test_a_token_that_is_no_known_card_is_a_funding_violation() -> None:
    assert fixes(charge(payment_method="pm_card_nope")) == [("/payment_method", "pm_card_visa")]


def test_the_enterprise_tier_has_its_own_terms() -> None:
    request = charge(tier="enterprise", seats=24)
    assert fixes(request) == [("/billing_interval", "annual"), ("/seats", 25)]
    assert fixes({**request, "seats": 25, "billing_interval": "annual"}) == []


def test_the_suggested_number_of_seats_is_an_integer() -> None:
    (violation,) = judged(charge(tier="enterprise", billing_interval="annual")).violations
    assert '"suggested_value":25}' in violation.suggestion().model_dump_json()


@pytest.mark.parametrize(
    ("plan", "sent", "wanted"),
    [
        ("starter", ["GROW20"], ["GROW20"]),
        ("starter", ["SPRING24"], ["GROW20"]),
        ("starter", ["NOPE"], []),
        ("scale", ["GROW20"], []),
        # What came after SPRING24 is not for this plan either.
        ("scale", ["SPRING24"], []),
        ("growth", ["LAUNCH50", "GROW20"], ["GROW20"]),
        ("starter", ["GROW20", "LAUNCH50"], ["GROW20"]),
        ("starter", ["LAUNCH50", "GROW20"], ["LAUNCH50"]),
        ("starter", ["LAUNCH50"], ["LAUNCH50"]),
        ("starter", ["SPRING24", "GROW20", "NOPE"], ["GROW20"]),
        ("starter", ["GROW20", "GROW20"], ["GROW20"]),
        ("starter", ["grow20"], []),
    ],
)
def test_promo_codes_are_mended_as_a_list(plan: str, sent: list[str], wanted: list[str]) -> None:
    request = charge(plan_id=plan, promo_codes=sent)
    assert fixes(request) == ([] if sent == wanted else [("/promo_codes", wanted)])


def test_codes_that_replace_each_other_end_in_none(tmp_path: Path) -> None:
    folder = copied(tmp_path / "acme")
    path = folder / f"{PROMO}.json"
    table = json.loads(path.read_text())
    for code, heir in (("A", "B"), ("B", "A"), ("C", "GONE")):
        table["rows"][code] = {"plans": [], "stackable": True, "replaced_by": heir}
    path.write_text(json.dumps(table))
    tables = read_tables(folder, DOMAIN.tables)
    assert fixes(charge(promo_codes=["A", "C"]), tables) == [("/promo_codes", [])]


@pytest.mark.parametrize("plan", CODES)
def test_a_csm_plan_needs_the_code_of_its_row(plan: str) -> None:
    other = next(code for of, code in CODES.items() if of != plan)
    for wrong in ({}, {"csm_code": None}, {"csm_code": "CSM-X"}, {"csm_code": other}):
        assert fixes(charge(plan_id=plan, **wrong), WORLD) == [("/csm_code", CODES[plan])]
    assert judged(charge(plan_id=plan, csm_code=CODES[plan]), WORLD).accepted


def test_a_right_csm_code_that_is_no_promo_code_is_refused_for_good() -> None:
    verdict = judged(charge(plan_id="partner", csm_code=CODES["partner"]))
    assert verdict == PolicyVerdict(consulted=[FUNDING, CSM, PROMO], final=verdict.final)
    assert len(verdict.final) == 1


def test_a_csm_code_that_is_a_promo_code_for_another_plan_is_refused_for_good(
    tmp_path: Path,
) -> None:
    folder = copied(tmp_path / "acme")
    path = folder / f"{PROMO}.json"
    path.write_text(path.read_text().replace('["partner"]', '["scale"]'))
    tables = read_tables(folder, DOMAIN.tables)
    assert judged(charge(plan_id="partner", csm_code=CODES["partner"]), tables).final


@pytest.mark.parametrize(
    ("changes", "consulted"),
    [
        ({}, (FUNDING,)),
        ({"payment_method": "pm_card_nope"}, (FUNDING,)),
        ({"tier": "enterprise"}, (FUNDING, ENTERPRISE)),
        ({"tier": "enterprise", "billing_interval": "annual", "seats": 99}, (FUNDING, ENTERPRISE)),
        ({"promo_codes": ["GROW20"]}, (FUNDING, PROMO)),
        ({"promo_codes": ["NOPE"]}, (FUNDING, PROMO)),
        ({"csm_code": CODES["partner"]}, (FUNDING,)),
        ({"plan_id": "partner"}, (FUNDING, CSM)),
        ({"plan_id": "partner", "csm_code": "wrong"}, (FUNDING, CSM)),
        ({"plan_id": "partner", "csm_code": CODES["partner"]}, (FUNDING, CSM, PROMO)),
        ({"plan_id": "partner", "promo_codes": ["NOPE"]}, (FUNDING, PROMO, CSM)),
    ],
)
def test_a_table_is_consulted_where_its_rule_applies_passed_or_not(
    changes: dict[str, Any], consulted: tuple[str, ...]
) -> None:
    assert tuple(judged(charge(**changes), WORLD).consulted) == consulted


def test_violations_come_all_at_once_in_the_order_of_the_policies() -> None:
    request = charge(
        plan_id="partner",
        tier="enterprise",
        payment_method="pm_card_mastercard_prepaid",
        promo_codes=["SPRING24"],
    )
    assert [field for field, _ in fixes(request)] == [
        "/payment_method",
        "/billing_interval",
        "/seats",
        "/promo_codes",
        "/csm_code",
    ]


def test_each_suggestion_may_be_kept_as_long_as_its_table() -> None:
    request = charge(plan_id="partner", tier="enterprise", promo_codes=["SPRING24"])
    found = [violation.suggestion() for violation in judged(request).violations]
    assert [one.table for one in found] == [ENTERPRISE, ENTERPRISE, PROMO, CSM]
    assert all(one.action == "MODIFY_PARAMS" for one in found)
    assert all((one.cache_hint.cacheable, one.cache_hint.scope) == (True, "table") for one in found)


@pytest.mark.parametrize(
    "wrong",
    [
        {"plan_id": "gold"},
        {"tier": "growth"},
        {"billing_interval": "weekly"},
        {"currency": "gbp"},
        {"seats": 0},
        {"seats": 2.5},
        {"seats": "3"},
        {"amount": -100},
        {"amount": 0},
        {"amount": 49},
        {"amount": 49.5},
        {"amount": 100.5},
        {"amount": "100"},
        {"amount": True},
        {"amount": 100_000_000},
        {"promo_codes": "GROW20"},
        {"promo_codes": [""]},
        {"promo_codes": ["X"] * 21},
        {"csm_code": ""},
        {"note": "x"},
    ],
)
def test_a_charge_off_the_schema_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ChargeRequest.model_validate(charge(**wrong))


@pytest.mark.parametrize("wrong", [{"amount": 0}, {"amount": 1.5}, {"days_since_charge": -1}])
def test_a_refund_off_the_schema_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RefundRequest.model_validate(refund("pi_1", **wrong))


def test_a_refund_always_consults_its_policy() -> None:
    assert judged_refund(refund("pi_1")) == PolicyVerdict(consulted=[REFUND])


@pytest.mark.parametrize("reason", get_args(StripeReason))
def test_a_reason_in_the_words_of_stripe_passes(reason: str) -> None:
    assert judged_refund(refund("pi_1", reason=reason)).accepted


@pytest.mark.parametrize(
    ("reason", "wanted"), [("changed_mind", "requested_by_customer"), ("ordered_twice", "duplicate")]
)
def test_a_reason_of_ours_is_put_into_the_words_of_stripe(reason: str, wanted: str) -> None:
    (violation,) = judged_refund(refund("pi_1", reason=reason)).violations
    assert (violation.field, violation.suggested) == ("/reason", wanted)
    assert violation.suggestion().cache_hint.cacheable


@pytest.mark.parametrize("changes", [{"reason": "boredom"}, {"days_since_charge": 31}])
def test_a_refund_that_nothing_can_mend_is_refused_for_good(changes: dict[str, Any]) -> None:
    assert judged_refund(refund("pi_1", **changes)).final
    assert judged_refund(refund("pi_1", **changes)).violations == []
    assert judged_refund(refund("pi_1", days_since_charge=30)).accepted


def test_the_limit_of_a_refund_is_suggested_for_this_request_only() -> None:
    (violation,) = judged_refund(refund("pi_1", amount=50_001)).violations
    suggestion = violation.suggestion()
    assert (violation.field, violation.suggested) == ("/amount", 50_000)
    assert suggestion.table == REFUND
    assert (suggestion.cache_hint.cacheable, suggestion.cache_hint.scope) == (False, "request")
    assert judged_refund(refund("pi_1", amount=50_000)).accepted
