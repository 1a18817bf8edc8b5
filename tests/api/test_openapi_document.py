"""The OpenAPI document tells the truth (schemathesis)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from crossmem.api import tables_of
from crossmem.api.app import create_app
from crossmem.api.problem import VOCABULARY
from crossmem.api.recipe import DOMAIN
from crossmem.api.server import Server, serving

from .helpers import CONVERT, body

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemathesis import Case, CheckContext, Response

# A well-formed request may be refused by policy: schemathesis alone would call that a lie.
CONFIG = {"checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", "403", "422"]}}}

# Read at import: schemathesis' own way to a schema from a fixture does not work with pytest 9.2.
# The cases go to a real server, and `test_the_server_serves_it` holds it to this document.
DOCUMENT = create_app("recipe", tables_of("recipe"), "unused").openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT, config=schemathesis.Config.from_dict(CONFIG))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tables") / "recipe"
    with serving("recipe", Path(shutil.copytree(tables_of("recipe"), folder))) as running:
        yield running


def feedback_is_for_well_formed_requests_only(
    _ctx: CheckContext, response: Response, case: Case[Any]
) -> None:
    """A refused request gets feedback if and only if it was on the schema."""
    if case.path == CONVERT and case.method == "POST" and response.status_code == 422:
        assert case.meta is not None
        given = "recovery_feedback" in json.loads(response.content)
        assert given == case.meta.generation.mode.is_positive


@schema.parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_documented(case: Case[Any], live: Server) -> None:
    case.call_and_validate(
        base_url=live.url, additional_checks=[feedback_is_for_well_formed_requests_only]
    )


def openapi(client: httpx.Client) -> dict[str, Any]:
    content: dict[str, Any] = client.get("/openapi.json").json()
    return content


def test_the_server_serves_it(client: httpx.Client) -> None:
    assert openapi(client) == DOCUMENT


def test_the_document_discloses_the_action_vocabulary(client: httpx.Client) -> None:
    action = openapi(client)["components"]["schemas"]["Suggestion"]["properties"]["action"]
    assert action["enum"] == list(VOCABULARY)


def test_the_document_discloses_the_request(client: httpx.Client) -> None:
    request = openapi(client)["components"]["schemas"]["ConvertRequest"]
    assert set(request["required"]) == set(body())
    assert request["additionalProperties"] is False


def test_errors_are_documented_as_problems(client: httpx.Client) -> None:
    operations = [of for path in openapi(client)["paths"].values() for of in path.values()]
    kinds = {
        (status, kind)
        for operation in operations
        for status, response in operation["responses"].items()
        for kind in response["content"]
    }
    problems = {(status, "application/problem+json") for status in ("400", "403", "409", "422")}
    assert kinds == {("200", "application/json"), *problems}


def test_no_brand_is_told_by_the_document_which_is_what_the_root_leads_to(client: httpx.Client) -> None:
    told = client.get("/", follow_redirects=True).text
    for path in (tables_of("recipe") / "celiac_brands.snapshots").glob("*.json"):
        for brands in json.loads(path.read_text())["rows"].values():
            assert [brand for brand in brands if brand in told] == []


def test_the_example_of_the_domain_is_refused_with_a_fix(client: httpx.Client) -> None:
    path, request = DOMAIN.example
    assert client.post(path, json=request).json()["recovery_feedback"]["suggestions"]
