"""What a client of the Acme API sees over real HTTP: payments, refusals, and Stripe in trouble."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from crossmem.api import tables_of
from crossmem.api.payments.access import StripeAccess
from crossmem.api.payments.cards import CARDS
from crossmem.api.server import serving

from .acme import (
    CHARGES,
    CSM,
    ENTERPRISE,
    FUNDING,
    PROMO,
    REFUND,
    REFUNDS,
    charge,
    copied,
    csm,
    refund,
    rotate,
)
from .helpers import client_of, merged, reload, served, suggestions
from .test_http_contract import assert_problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return copied(tmp_path / "acme")


@pytest.fixture
def client(tables: Path) -> Iterator[httpx.Client]:
    with serving("acme", tables) as server, client_of(server) as opened:
        yield opened


def paid(client: httpx.Client, **changes: Any) -> str:
    response = client.post(CHARGES, json=charge(**changes)).raise_for_status()
    return str(response.json()["result"]["payment_intent"])


def test_an_accepted_charge_is_paid(client: httpx.Client) -> None:
    response = client.post(CHARGES, json=charge(promo_codes=["GROW20"]))
    assert response.status_code == 200
    content = response.json()
    assert content["result"].pop("payment_intent").startswith("pi_")
    assert content == {
        "result": {
            "status": "succeeded",
            "amount": 4900,
            "currency": "usd",
            "customer": "Fernhill Optics",
            "plan_id": "growth",
            "tier": "team",
            "billing_interval": "monthly",
            "seats": 3,
            "promo_codes": ["GROW20"],
        },
        "table_versions": {FUNDING: "1.0.0", PROMO: "1.1.0"},
    }


def test_merging_what_was_suggested_is_paid(client: httpx.Client) -> None:
    request = charge(
        plan_id="enterprise-pilot",
        tier="enterprise",
        payment_method="pm_card_mastercard_prepaid",
        promo_codes=["SPRING24"],
    )
    refused = client.post(CHARGES, json=request)
    assert len(suggestions(refused)) == 5
    accepted = client.post(CHARGES, json=merged(request, suggestions(refused)))
    assert accepted.status_code == 200
    assert set(accepted.json()["table_versions"]) == {FUNDING, ENTERPRISE, PROMO, CSM}


def test_what_policy_refuses_never_reaches_stripe(tables: Path) -> None:
    # Nothing listens on this port.
    nowhere = StripeAccess("test", "http://127.0.0.1:1", "sk_test_unused")
    with serving("acme", tables, nowhere) as server, client_of(server) as client:
        assert client.post(CHARGES, json=charge(tier="enterprise")).status_code == 422
        assert client.post(REFUNDS, json=refund("pi_1", amount=60_000)).status_code == 422


@pytest.mark.parametrize(
    "wrong",
    [{"plan_id": "gold"}, {"amount": -5}, {"amount": 50.5}, {"amount": 0}, {"seats": None}],
)
def test_a_charge_off_the_schema_is_a_422_without_suggestions(
    client: httpx.Client, wrong: dict[str, Any]
) -> None:
    content = assert_problem(client.post(CHARGES, json=charge(**wrong)), 422)
    assert [error["field"] for error in content["errors"]] == [f"/{name}" for name in wrong]


@pytest.mark.parametrize("token", [token for token, card in CARDS.items() if card.decline])
def test_a_declined_card_is_a_402_with_the_words_of_stripe(client: httpx.Client, token: str) -> None:
    content = assert_problem(client.post(CHARGES, json=charge(payment_method=token)), 402)
    declined = CARDS[token].decline
    assert declined is not None
    assert (content["code"], content["decline_code"]) == (declined.code, declined.decline_code)
    assert content["table_versions"] == {FUNDING: "1.0.0"}


def test_a_contradiction_of_two_tables_is_refused_without_a_suggestion(
    client: httpx.Client, tables: Path
) -> None:
    shutil.copy(tables_of("acme") / f"{PROMO}.json", tables / f"{PROMO}.json")
    reload(client)
    request = charge(plan_id="partner", csm_code=csm(1)["partner"])
    content = assert_problem(client.post(CHARGES, json=request), 422)
    assert content["table_versions"] == {FUNDING: "1.0.0", CSM: "1.0.0", PROMO: "1.0.0"}
    assert csm(1)["partner"] not in content["detail"]


def test_a_rotation_with_its_companion_is_one_reload(client: httpx.Client, tables: Path) -> None:
    rotate(tables, 2)
    changes = {change["table"]: change for change in reload(client)}
    assert changes[CSM]["diff"] == {
        "shape": "dict",
        "added": [],
        "removed": [],
        "changed": ["partner"],
    }
    assert changes[PROMO]["diff"]["added"] == [csm(2)["partner"]]
    assert changes[PROMO]["diff"]["removed"] == [csm(1)["partner"]]
    stale = client.post(CHARGES, json=charge(plan_id="partner", csm_code=csm(1)["partner"]))
    (fix,) = suggestions(stale)
    assert fix["parameters"]["suggested_value"] == csm(2)["partner"]
    assert stale.json()["table_versions"][CSM] == "2.0.0"
    request = charge(plan_id="partner", csm_code=csm(2)["partner"])
    assert client.post(CHARGES, json=request).status_code == 200


def test_the_same_key_pays_once(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "run/A2/0/7/1"}
    answers = [client.post(CHARGES, json=charge(), headers=headers).json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert paid(client) != paid(client)


def test_the_same_key_for_another_charge_is_a_409(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "run/A2/0/7/1"}
    client.post(CHARGES, json=charge(), headers=headers).raise_for_status()
    conflict = client.post(CHARGES, json=charge(amount=60), headers=headers)
    assert assert_problem(conflict, 409)["code"] == "idempotency_error"


@pytest.mark.parametrize("key", ["", "a b", "k" * 256, "schlüssel"])
def test_a_key_that_stripe_could_not_take_is_a_422(client: httpx.Client, key: str) -> None:
    response = client.post(CHARGES, json=charge(), headers={b"Idempotency-Key": key.encode()})
    (error,) = assert_problem(response, 422)["errors"]
    assert error["field"] == ""
    assert "Idempotency-Key" in error["message"]


def test_a_charge_is_refunded_in_parts_until_nothing_is_left(client: httpx.Client) -> None:
    intent = paid(client)
    response = client.post(REFUNDS, json=refund(intent))
    assert response.status_code == 200
    content = response.json()
    assert content["result"].pop("refund").startswith("re_")
    assert content == {
        "result": {
            "status": "succeeded",
            "payment_intent": intent,
            "amount": 1000,
            "currency": "usd",
            "reason": "duplicate",
        },
        "table_versions": {REFUND: "1.0.0"},
    }
    over = assert_problem(client.post(REFUNDS, json=refund(intent, amount=3901)), 400)
    assert "code" not in over
    assert client.post(REFUNDS, json=refund(intent, amount=3900)).status_code == 200
    again = assert_problem(client.post(REFUNDS, json=refund(intent, amount=1)), 400)
    assert again["code"] == "charge_already_refunded"
    assert again["table_versions"] == {REFUND: "1.0.0"}


def test_a_refund_in_our_words_is_mended(client: httpx.Client) -> None:
    request = refund(paid(client), reason="changed_mind")
    refused = client.post(REFUNDS, json=request)
    mended = merged(request, suggestions(refused))
    assert client.post(REFUNDS, json=mended).json()["result"]["reason"] == "requested_by_customer"


@pytest.mark.parametrize("changes", [{"days_since_charge": 31}, {"reason": "boredom"}])
def test_a_refund_that_nothing_can_mend_is_a_422_without_suggestions(
    client: httpx.Client, changes: dict[str, Any]
) -> None:
    content = assert_problem(client.post(REFUNDS, json=refund("pi_1", **changes)), 422)
    assert content["title"] == "Refused by policy"
    assert content["table_versions"] == {REFUND: "1.0.0"}


def test_a_refund_of_an_unknown_intent_is_a_404(client: httpx.Client) -> None:
    content = assert_problem(client.post(REFUNDS, json=refund("pi_unknown")), 404)
    assert content["code"] == "resource_missing"


def test_two_servers_share_no_payments(client: httpx.Client, tmp_path: Path) -> None:
    intent = paid(client)
    with (
        serving("acme", copied(tmp_path / "other")) as server,
        client_of(server) as stranger,
    ):
        assert_problem(stranger.post(REFUNDS, json=refund(intent)), 404)
    assert client.post(REFUNDS, json=refund(intent)).status_code == 200


def test_stopping_closes_the_connections_to_stripe(
    tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[httpx.Client] = []
    monkeypatch.setattr(httpx.Client, "close", lambda self: closed.append(self))  # noqa: PLW0108
    with serving("acme", tables):
        assert closed == []
    assert len(closed) == 1


def test_serve_shows_a_person_how_to_make_a_drift() -> None:
    with served("acme") as (words, copied):
        assert shlex.split(copied)[1].endswith(f"{CSM}.snapshots/v2.json")
        with httpx.Client(base_url=words["serving"], trust_env=False) as client:
            assert client.post(CHARGES, json=charge()).status_code == 200
