"""The OpenAPI document of each domain tells the truth (schemathesis), and no value of a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from crossmem.api import tables_of
from crossmem.api.app import create_app
from crossmem.api.problem import ACTIONS
from crossmem.api.server import ApiServer, serving

from .acme import ALL_CODES, CHARGES, PROMO, REFUNDS, charge, refund, rows
from .acme import copied as acme_tables
from .helpers import BRANDS, CONVERT, body, client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis import Case, CheckContext, Response

# Read at import: schemathesis' own way to a schema from a fixture does not work with pytest 9.2.
# The cases go to a real server, and `test_the_server_serves_it` holds it to this document.
DOCUMENTS = {name: create_app(name, tables_of(name), "unused").openapi() for name in ("recipe", "acme")}
# A well-formed request may be refused by policy, or by Stripe: no lie of the document.
STATUSES = {
    "recipe": ["2xx", "403", "422"],
    "acme": ["2xx", "400", "402", "403", "404", "409", "422"],
}


def schema_of(domain: str) -> schemathesis.schemas.BaseSchema:
    config = {"checks": {"positive_data_acceptance": {"expected-statuses": STATUSES[domain]}}}
    return schemathesis.openapi.from_dict(
        DOCUMENTS[domain], config=schemathesis.Config.from_dict(config)
    )


recipe_schema, acme_schema = schema_of("recipe"), schema_of("acme")
thorough = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ApiServer]]:
    """A server of each domain; none of these tests changes its tables."""
    folder = acme_tables(tmp_path_factory.mktemp("tables") / "acme")
    with serving("recipe", tables_of("recipe")) as recipe, serving("acme", folder) as acme:
        yield {"recipe": recipe, "acme": acme}


@pytest.fixture(params=DOCUMENTS)
def domain(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(live: dict[str, ApiServer], domain: str) -> Iterator[httpx.Client]:
    with client_of(live[domain]) as opened:
        yield opened


def policy_judges_well_formed_requests_only(
    _ctx: CheckContext, response: Response, case: Case[Any]
) -> None:
    """A refused request shows table versions if and only if it was on the schema, feedback likewise."""
    judging = case.path in (CHARGES, REFUNDS, CONVERT) and case.method == "POST"
    if judging and response.status_code == 422:
        assert case.meta is not None
        content = json.loads(response.content)
        on_schema = case.meta.generation.mode.is_positive
        assert ("table_versions" in content) == on_schema
        assert case.path != CONVERT or ("recovery_feedback" in content) == on_schema


def check(case: Case[Any], server: ApiServer) -> None:
    case.call_and_validate(
        base_url=server.url, additional_checks=[policy_judges_well_formed_requests_only]
    )


@recipe_schema.parametrize()
@thorough
def test_every_answer_of_recipe_is_as_documented(case: Case[Any], live: dict[str, ApiServer]) -> None:
    check(case, live["recipe"])


@acme_schema.parametrize()
@thorough
def test_every_answer_of_acme_is_as_documented(case: Case[Any], live: dict[str, ApiServer]) -> None:
    check(case, live["acme"])


def test_the_server_serves_it_at_its_root_too(client: httpx.Client, domain: str) -> None:
    page = client.get("/", follow_redirects=True)
    assert page.url.path == "/openapi.json"
    assert page.json() == DOCUMENTS[domain]


def test_the_document_discloses_the_action_vocabulary(domain: str) -> None:
    action = DOCUMENTS[domain]["components"]["schemas"]["Suggestion"]["properties"]["action"]
    assert action["enum"] == list(ACTIONS)


@pytest.mark.parametrize(
    ("of", "name", "request_"),
    [
        ("recipe", "ConvertRequest", body()),
        ("acme", "ChargeRequest", charge()),
        ("acme", "RefundRequest", refund("pi_1")),
    ],
)
def test_the_document_discloses_the_request(of: str, name: str, request_: dict[str, Any]) -> None:
    schema = DOCUMENTS[of]["components"]["schemas"][name]
    assert set(schema["required"]) == set(request_)
    assert schema["additionalProperties"] is False
    assert of == "recipe" or schema["properties"]["amount"]["type"] == "integer"


def test_errors_are_documented_as_problems(domain: str) -> None:
    operations = [of for path in DOCUMENTS[domain]["paths"].values() for of in path.values()]
    kinds = {
        (status, kind)
        for operation in operations
        for status, response in operation["responses"].items()
        for kind in response["content"]
    }
    statuses = ["400", "403", "409", "422"] + ["402", "404", "502", "503"] * (domain == "acme")
    problems = {(status, "application/problem+json") for status in statuses}
    assert kinds == {("200", "application/json"), *problems}


def test_no_value_of_a_table_is_told_by_the_document(client: httpx.Client, domain: str) -> None:
    told = client.get("/openapi.json").text
    snapshots = (tables_of("recipe") / f"{BRANDS}.snapshots").glob("*.json")
    brands = [
        brand
        for path in snapshots
        for listed in json.loads(path.read_text())["rows"].values()
        for brand in listed
    ]
    words = brands if domain == "recipe" else [*rows(PROMO), *ALL_CODES]
    assert [word for word in words if word in told] == []
