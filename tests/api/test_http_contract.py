"""What a client sees over real HTTP: shapes, statuses, and errors without a traceback."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from crossmem.api import recipe

from .helpers import BRANDS, CONVERT, PAIRS, body, celiac, item, merged, snapshot, suggestions

PROBLEM = "application/problem+json"
JSON = {"Content-Type": "application/json"}


def assert_problem(response: httpx.Response, status: int) -> dict[str, Any]:
    content: dict[str, Any] = response.json()
    assert response.status_code == status
    assert response.headers["content-type"] == PROBLEM
    assert content["status"] == status
    assert content["type"] == "about:blank"
    assert "recovery_feedback" not in content
    assert "Traceback" not in response.text
    return content


def test_an_accepted_request_tells_the_result_and_the_tables_consulted(
    client: httpx.Client,
) -> None:
    brand = snapshot("1.0.0")["rows"]["oats"][0]
    request = celiac(item("oats", 40, brand=brand), item("sugar", 1.5, base_amount=1))
    request["servings"] = {"from": 2, "to": 3}
    response = client.post(CONVERT, json=request)
    assert response.status_code == 200
    assert response.json() == {
        "result": {
            "recipe": "Stew",
            "cuisine": "nordic",
            "servings": 3,
            "ingredients": [item("oats", 40, brand=brand), item("sugar", 1.5)],
        },
        "table_versions": {BRANDS: "1.0.0"},
    }


def test_a_refusal_has_exactly_the_shape_of_the_contract(client: httpx.Client) -> None:
    response = client.post(CONVERT, json=celiac(item("oats")))
    assert response.headers["content-type"] == PROBLEM
    content = response.json()
    assert content["recovery_feedback"].pop("message")
    assert content == {
        "type": "about:blank",
        "title": "Validation failed",
        "status": 422,
        "detail": "Ingredient 'oats' must carry a brand certified for celiac diets.",
        "recovery_feedback": {
            "type": "recovery_guidance",
            "suggestions": [
                {
                    "action": "USE_SPECIFIC_BRAND",
                    "parameters": {
                        "field": "/ingredients/0/brand",
                        "current_value": None,
                        "suggested_value": snapshot("1.0.0")["rows"]["oats"][0],
                    },
                    "table": BRANDS,
                    "cache_hint": {"cacheable": True, "scope": "table"},
                }
            ],
        },
        "table_versions": {BRANDS: "1.0.0"},
    }


def test_a_fix_without_a_table_is_not_cacheable_and_its_amount_is_a_number(
    client: httpx.Client,
) -> None:
    request = body(item("sugar", 10, base_amount=10), servings={"from": 4, "to": 6})
    response = client.post(CONVERT, json=request)
    assert response.json()["table_versions"] == {}
    assert suggestions(response) == [
        {
            "action": "MODIFY_PARAMS",
            "parameters": {
                "field": "/ingredients/0/amount",
                "current_value": 10,
                "suggested_value": 15,
            },
            "table": None,
            "cache_hint": {"cacheable": False, "scope": "request"},
        }
    ]


def test_merging_what_was_suggested_is_accepted(client: httpx.Client) -> None:
    request = body(
        item("flour", brand="no such"),
        item("cream"),
        item("sugar", 3, base_amount=3),
        dietary=["celiac"],
        cuisine="thai",
        servings={"from": 3, "to": 7},
    )
    refused = client.post(CONVERT, json=request)
    assert len(suggestions(refused)) == 3
    accepted = client.post(CONVERT, json=merged(request, suggestions(refused)))
    assert accepted.status_code == 200
    assert accepted.json()["table_versions"] == {BRANDS: "1.0.0", PAIRS: "1.0.0"}


@pytest.mark.parametrize(
    "content", [b"{", b"\xff", b"[" * 100_000, b"1" * 5000], ids=["cut", "bytes", "deep", "long"]
)
def test_malformed_json_is_a_400(client: httpx.Client, content: bytes) -> None:
    assert_problem(client.post(CONVERT, content=content, headers=JSON), 400)


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (b"", ""),
        (b"[]", ""),
        (b'{"recipe": "\\ud800"}', "/recipe"),
        (json.dumps(body(item("salt", colour="white"))).encode(), "/ingredients/0/colour"),
        (json.dumps(body(**{"a/b": 1})).encode(), "/a~1b"),
        (json.dumps(body(item("salt", float("nan")))).encode(), "/ingredients/0/amount"),
    ],
)
def test_a_body_off_the_schema_is_a_422_that_points_at_the_place_and_suggests_nothing(
    client: httpx.Client, content: bytes, field: str
) -> None:
    response = client.post(CONVERT, content=content, headers=JSON)
    assert field in [error["field"] for error in assert_problem(response, 422)["errors"]]


def test_a_body_that_says_it_is_no_json_is_a_422(client: httpx.Client) -> None:
    headers = {"Content-Type": "text/plain"}
    assert_problem(client.post(CONVERT, content=b"{}", headers=headers), 422)


def test_a_name_that_is_no_unicode_does_not_break_the_answer(client: httpx.Client) -> None:
    # json.loads lets a lone surrogate through, which no UTF-8 body could carry back.
    content = json.dumps(body(**{"x\ud800": 1})).encode()
    assert_problem(client.post(CONVERT, content=content, headers=JSON), 422)


def test_unknown_routes_are_404_and_wrong_methods_405(client: httpx.Client) -> None:
    assert_problem(client.get("/nope"), 404)
    assert_problem(client.get("/tables/"), 404)
    refused = client.get(CONVERT)
    assert_problem(refused, 405)
    assert refused.headers["allow"] == "POST"


def test_an_unexpected_failure_is_a_500_without_a_traceback(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the inside of the server")

    monkeypatch.setattr(recipe, "judge", broken)
    response = client.post(CONVERT, json=body())
    assert_problem(response, 500)
    assert "inside" not in response.text
    monkeypatch.undo()
    # On the same client: a connection the server closed must not be used again.
    assert client.post(CONVERT, json=body()).status_code == 200


def test_health_and_versions_are_told(client: httpx.Client) -> None:
    assert client.get("/healthz").json() == {"name": "crossmem reference API", "domain": "recipe"}
    assert client.get("/tables").json() == {"table_versions": {BRANDS: "1.0.0", PAIRS: "1.0.0"}}
