"""The OpenAPI document of the Acme API tells the truth (schemathesis), and its page tells no code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from crossmem.api import tables_of
from crossmem.api.acme import DOMAIN
from crossmem.api.app import create_app
from crossmem.api.server import Server, serving

from .acme import CHARGES, PROMO, REFUNDS, charge, copied, csm, refund, rows
from .helpers import client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis import Case, CheckContext, Response

# A well-formed request may be refused by policy, or by Stripe.
STATUSES = ["2xx", "400", "402", "403", "404", "409", "422"]
CONFIG = {"checks": {"positive_data_acceptance": {"expected-statuses": STATUSES}}}

DOCUMENT = create_app("acme", tables_of("acme"), "unused").openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT, config=schemathesis.Config.from_dict(CONFIG))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving("acme", copied(tmp_path_factory.mktemp("tables") / "acme")) as running:
        yield running


@pytest.fixture
def client(live: Server) -> Iterator[httpx.Client]:
    with client_of(live) as opened:
        yield opened


def policy_judges_well_formed_requests_only(
    _ctx: CheckContext, response: Response, case: Case[Any]
) -> None:
    """A refused request shows table versions if and only if it was on the schema."""
    if case.path in (CHARGES, REFUNDS) and response.status_code == 422:
        assert case.meta is not None
        judged = "table_versions" in json.loads(response.content)
        assert judged == case.meta.generation.mode.is_positive


@schema.parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_documented(case: Case[Any], live: Server) -> None:
    case.call_and_validate(
        base_url=live.url, additional_checks=[policy_judges_well_formed_requests_only]
    )


def test_the_server_serves_it(client: httpx.Client) -> None:
    assert client.get("/openapi.json").json() == DOCUMENT


def test_the_document_discloses_both_requests() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert set(schemas["ChargeRequest"]["required"]) == set(charge())
    assert set(schemas["RefundRequest"]["required"]) == set(refund("pi_1"))
    for name in ("ChargeRequest", "RefundRequest"):
        assert schemas[name]["additionalProperties"] is False
        assert schemas[name]["properties"]["amount"]["type"] == "integer"


def test_no_code_is_told_by_the_document(client: httpx.Client) -> None:
    told = client.get("/openapi.json").text
    codes = [*rows(PROMO), *(code for version in range(1, 5) for code in csm(version).values())]
    assert [code for code in codes if code in told] == []


def test_the_example_of_the_domain_is_refused_with_a_fix(client: httpx.Client) -> None:
    path, request = DOMAIN.example
    assert client.post(path, json=request).json()["recovery_feedback"]["suggestions"]
