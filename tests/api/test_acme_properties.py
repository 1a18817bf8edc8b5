"""What holds for every Acme request: fixes suffice, prose tells none, consulted tables follow."""

from __future__ import annotations

import json
from typing import Any, get_args

from hypothesis import example, given
from hypothesis import strategies as st

from crossmem.api.acme.requests import PlanId, Tier
from crossmem.api.payments.cards import CARDS
from crossmem.api.problem import PolicyVerdict, refused

from .acme import CODES, CSM, ENTERPRISE, FUNDING, PROMO, WORLD, charge, judged, judged_refund, refund
from .helpers import merged, unhurried

# Words of the tables, words that are part of a fix, and anything else.
codes = st.sampled_from(
    ["GROW20", "SPRING24", "LAUNCH50", *CODES.values(), "annual", "25", "NOPE", "GROW20X"]
) | st.text(min_size=1, max_size=6)
charges = st.builds(
    charge,
    customer=st.text(min_size=1, max_size=6),
    plan_id=st.sampled_from(get_args(PlanId)),
    tier=st.sampled_from(get_args(Tier)),
    billing_interval=st.sampled_from(["monthly", "annual"]),
    seats=st.integers(1, 60),
    amount=st.integers(50, 99_999_999),
    currency=st.sampled_from(["usd", "eur"]),
    payment_method=st.sampled_from([*CARDS, "pm_card_visa_annual_25"]) | codes,
    promo_codes=st.lists(codes, max_size=5),
    csm_code=st.none() | codes,
)
refunds = st.builds(
    refund,
    payment_intent=codes,
    amount=st.integers(1, 99_999_999) | st.sampled_from([49_999, 50_000, 50_001]),
    reason=st.sampled_from(["changed_mind", "ordered_twice", "duplicate"]) | codes,
    days_since_charge=st.integers(0, 40),
)


def said_by(verdict: PolicyVerdict) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(bytes(refused(verdict, {}).body))
    return content


def holds_no_fix(said: dict[str, Any]) -> bool:
    prose = f"{said['detail']} {said['recovery_feedback']['message']}".casefold()
    values = [one["parameters"]["suggested_value"] for one in said["recovery_feedback"]["suggestions"]]
    texts = [str(text) for value in values for text in (value if isinstance(value, list) else [value])]
    return not any(text.casefold() in prose for text in texts)


@unhurried
@given(request=charges)
def test_merging_all_suggestions_is_accepted_in_one_go(request: dict[str, Any]) -> None:
    verdict = judged(request, WORLD)
    if not verdict.accepted:
        suggestions = said_by(verdict)["recovery_feedback"]["suggestions"]
        assert judged(merged(request, suggestions), WORLD).accepted


@unhurried
@given(request=charges)
@example(request=charge(promo_codes=["GROW20X", "GROW20"]))
def test_the_prose_of_a_refused_charge_never_holds_a_suggested_value(request: dict[str, Any]) -> None:
    verdict = judged(request, WORLD)
    assert verdict.accepted or holds_no_fix(said_by(verdict))


@unhurried
@given(request=charges)
def test_what_is_consulted_follows_from_the_request(request: dict[str, Any]) -> None:
    plan, right = request["plan_id"], CODES.get(request["plan_id"])
    expected = {FUNDING}
    expected |= {ENTERPRISE} if request["tier"] == "enterprise" else set()
    expected |= {CSM} if plan in CODES else set()
    checked = right is not None and request["csm_code"] == right
    expected |= {PROMO} if request["promo_codes"] or checked else set()
    consulted = judged(request, WORLD).consulted
    assert set(consulted) == expected
    assert len(consulted) == len(expected)


@unhurried
@given(request=refunds)
def test_a_refund_that_is_suggested_something_is_accepted_with_it(request: dict[str, Any]) -> None:
    verdict = judged_refund(request)
    if verdict.final:
        assert "recovery_feedback" not in said_by(verdict)
    elif verdict.violations:
        said = said_by(verdict)
        assert holds_no_fix(said)
        mended = merged(request, said["recovery_feedback"]["suggestions"])
        assert judged_refund(mended).accepted
