"""The reader of responses takes every shape that servers may use, and never fails on another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossmem.contract import (
    DictDiff,
    Json,
    ListDiff,
    Response,
    read_disclosure,
    read_reload,
    read_response,
)

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
junk: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
words = st.text(min_size=1, max_size=8)
pointers = st.from_regex(r"(/[a-z0-9]{1,4}){1,3}", fullmatch=True)
statuses = st.sampled_from([400, 402, 404, 409, 422, 500])


def names_of(*names: str) -> st.SearchStrategy[str]:
    """Names that the contract gives a meaning, and others."""
    return st.sampled_from(names) | st.text(max_size=8)


odd_suggestions = st.dictionaries(
    names_of("action", "type", "parameters", "field", "suggested_value", "table", "cache_hint"),
    junk | st.dictionaries(names_of("field", "suggested_value", "current_value", "action"), junk),
    max_size=5,
)
odd_feedback = junk | st.dictionaries(
    names_of("suggestions"), junk | st.lists(junk | odd_suggestions, max_size=3), max_size=2
)
odd_bodies = junk | st.dictionaries(
    names_of("recovery_feedback", "error", "table_versions", "detail"),
    odd_feedback | st.dictionaries(names_of("recovery_feedback", "table_versions"), odd_feedback),
    max_size=4,
)


def suggestion(**members: Json) -> dict[str, Json]:
    parameters = {"field": "/a/0", "current_value": None, "suggested_value": "x"}
    return {"action": "MODIFY_PARAMS", "parameters": parameters, "table": "T", **members}


def refusal(*suggestions: Json, **members: Json) -> Response:
    return read_response(422, {"recovery_feedback": {"suggestions": list(suggestions)}, **members})


# -- what a suggestion may look like ---------------------------------------------------------------


PLACES: dict[str, Any] = {
    "at top level": lambda feedback: {"recovery_feedback": feedback},
    "under error": lambda feedback: {"error": {"recovery_feedback": feedback}},
    "as the error": lambda feedback: {"error": feedback},
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("verb", ["action", "type"])
@given(word=words, pointer=pointers, value=junk, table=st.none() | words, status=statuses)
def test_a_fix_reads_the_same_wherever_a_server_puts_it(place: Any, verb: str, **drawn: Any) -> None:
    word, pointer, value, table = (drawn[name] for name in ("word", "pointer", "value", "table"))
    fix = {verb: word, "parameters": {"field": pointer, "suggested_value": value}, "table": table}
    (read,) = read_response(drawn["status"], place({"suggestions": [fix]})).suggestions

    assert (read.action, read.field, read.table) == (word, pointer, table)
    assert read.suggested_value == value
    assert not read.cacheable


@pytest.mark.parametrize(
    ("hint", "cacheable"),
    [
        ({"cacheable": True, "scope": "table"}, True),
        ({"cacheable": False}, False),
        ({"cacheable": "yes"}, False),
        ({"cacheable": 1}, False),
        ({"scope": "table"}, False),
        ("cacheable", True),
        (" Table ", True),
        ("no", False),
        ("no-store", False),
        ("", False),
        (True, True),
        (False, False),
        (1, False),
        ([True], False),
        (None, False),
    ],
)
def test_a_cache_hint_is_read_from_an_object_a_string_or_a_truth_value(
    hint: Json, cacheable: bool
) -> None:
    (read,) = refusal(suggestion(cache_hint=hint)).suggestions

    assert read.cacheable is cacheable


def test_an_absent_cache_hint_is_not_cacheable() -> None:
    (read,) = refusal(suggestion()).suggestions

    assert not read.cacheable


def test_a_member_called_cacheable_is_not_the_hint() -> None:
    (read,) = refusal(suggestion(cacheable=True)).suggestions

    assert not read.cacheable


@given(st.dictionaries(st.text(max_size=8).map("x-{}".format), junk))
def test_unknown_members_change_nothing(extra: dict[str, Json]) -> None:
    plain = suggestion(cache_hint="cacheable")
    parameters = {**plain["parameters"], **extra}
    rich = refusal({**plain, **extra, "parameters": parameters}, table_versions={"T": "1"}, **extra)

    assert rich.suggestions == refusal(plain).suggestions
    assert rich.stamps == {"T": "1"}


@pytest.mark.parametrize("verb", ["type", "action"])
@pytest.mark.parametrize("value", ["string", 7])
def test_a_parameter_that_is_called_like_the_verb_does_not_replace_it(verb: str, value: Json) -> None:
    parameters = {"field": "/a/0", "suggested_value": "x", verb: value}
    read = refusal({verb: "MODIFY_PARAMS", "parameters": parameters}).suggestions

    assert [each.action for each in read] == ["MODIFY_PARAMS"]


def test_a_parameter_called_action_does_not_hide_a_verb_under_type() -> None:
    parameters = {"field": "/a/0", "suggested_value": "x", "action": "string"}
    read = refusal({"type": "MODIFY_PARAMS", "parameters": parameters}).suggestions

    assert [each.action for each in read] == ["MODIFY_PARAMS"]


@pytest.mark.parametrize(
    "broken",
    [
        {"action": None},
        {"action": 7},
        {"parameters": None},
        {"parameters": {"field": "/a"}},
        {"parameters": {"suggested_value": 1}},
        {"parameters": {"field": 3, "suggested_value": 1}},
    ],
)
def test_a_suggestion_without_verb_place_or_value_is_passed_over(broken: dict[str, Json]) -> None:
    read = refusal(suggestion(), {**suggestion(), **broken}, "text", None, suggestion(table="U"))

    assert [each.table for each in read.suggestions] == ["T", "U"]


def test_a_null_that_is_suggested_is_a_value() -> None:
    (read,) = refusal(suggestion(parameters={"field": "/a", "suggested_value": None})).suggestions

    assert read.suggested_value is None


def test_suggestions_keep_the_servers_order() -> None:
    listed = [suggestion(table=name) for name in "zyxa"]

    assert [each.table for each in refusal(*listed).suggestions] == list("zyxa")


@pytest.mark.parametrize(
    ("pointer", "refused"),
    [("/a/0", True), ("/b", True), ("/b/2", True), ("/bb", False), ("/a", False), ("/a/01", False)],
)
def test_a_place_is_refused_with_what_holds_it(pointer: str, refused: bool) -> None:
    other = suggestion(parameters={"field": "/b", "suggested_value": 1})

    assert refusal(suggestion(), other).refuses([pointer]) is refused


# -- the response as a whole -----------------------------------------------------------------------


@given(st.integers(100, 599), odd_bodies)
def test_no_body_makes_the_reader_fail(status: int, body: Json) -> None:
    read = read_response(status, body)

    assert read.status == status
    assert read.body == (body if isinstance(body, dict) else None)
    assert all(isinstance(stamp, str) for stamp in read.stamps.values())
    assert not (read.accepted and read.suggestions)


@given(odd_bodies)
def test_a_response_reads_the_same_after_a_journal(body: Json) -> None:
    once = read_response(422, body)

    assert read_response(422, json.loads(json.dumps(once.body))) == once


@given(st.integers(200, 299))
def test_an_accepted_response_suggests_nothing(status: int) -> None:
    read = read_response(status, {"recovery_feedback": {"suggestions": [suggestion()]}})

    assert read.accepted
    assert read.final
    assert read.suggestions == ()


@pytest.mark.parametrize(
    ("status", "final"),
    [(200, True), (400, False), (402, True), (404, True), (422, False), (500, True)],
)
def test_only_a_refused_form_can_be_mended(status: int, final: bool) -> None:
    assert read_response(status, {}).final is final


def test_a_number_is_a_stamp_as_well_and_one_that_is_missing_or_neither_is_unknown() -> None:
    read = refusal(table_versions={"T": "1", "U": None, "V": 2, "W": ["1"], "X": 1.5, "Y": True})

    assert read.stamps == {"T": "1", "V": "2", "X": "1.5"}


@pytest.mark.parametrize("versions", [None, [], "1.0.0", {}, 0])
def test_without_table_versions_every_stamp_is_unknown(versions: Json) -> None:
    assert read_response(422, {"table_versions": versions}).stamps == {}
    assert read_response(422, {}).stamps == {}


def test_stamps_are_read_from_an_accepted_response_and_under_error_too() -> None:
    assert read_response(200, {"table_versions": {"T": "1"}}).stamps == {"T": "1"}
    assert read_response(422, {"error": {"table_versions": {"T": "1"}}}).stamps == {"T": "1"}


def test_the_detail_is_found_at_top_level_or_in_the_error() -> None:
    assert read_response(422, {"detail": "no"}).detail == "no"
    assert read_response(402, {"error": {"message": "declined"}}).detail == "declined"
    assert read_response(500, None).detail == ""


# -- reloads and their diffs -----------------------------------------------------------------------


def reloaded(*items: Json) -> Any:
    return read_reload({"reloaded": list(items)})


def test_diffs_of_both_shapes_are_read_in_the_servers_order() -> None:
    lists, rows = reloaded(
        {
            "table": "L",
            "from_version": "1",
            "to_version": "2",
            "diff": {"shape": "list", "added": {"a": ["x"]}, "removed": {"a": ["y"]}},
        },
        {"table": "D", "diff": {"shape": "dict", "added": ["r"], "removed": [], "changed": ["s"]}},
    )

    assert (lists.table, lists.from_version, lists.to_version) == ("L", "1", "2")
    assert lists.diff == ListDiff(shape="list", added={"a": ["x"]}, removed={"a": ["y"]})
    assert rows.diff == DictDiff(shape="dict", added=["r"], changed=["s"])
    assert rows.from_version is None


@pytest.mark.parametrize(
    "diff",
    [
        None,
        "everything",
        {},
        {"shape": "tree", "added": {}},
        {"added": ["r"]},
        {"shape": "list", "added": ["r"]},
        {"shape": "dict", "changed": {"r": 1}},
        {"shape": "list", "removed": {"a": "x"}},
        {"shape": ["list"]},
    ],
)
def test_a_diff_of_an_unknown_shape_is_none_and_the_change_still_counts(diff: Json) -> None:
    (change,) = reloaded({"table": "T", "from_version": "1", "to_version": "2", "diff": diff})

    assert change.diff is None
    assert (change.table, change.to_version) == ("T", "2")


@given(junk | st.fixed_dictionaries({"reloaded": junk | st.lists(junk, max_size=3)}))
def test_no_reload_answer_makes_the_reader_fail(body: Json) -> None:
    assert all(isinstance(change.table, str) for change in read_reload(body))


@given(
    st.fixed_dictionaries(
        {"table": words},
        optional={
            "from_version": words,
            "to_version": words,
            "diff": st.dictionaries(names_of("shape", "added", "removed", "changed"), junk),
        },
    )
)
def test_a_change_reads_the_same_after_a_journal(item: dict[str, Json]) -> None:
    (change,) = reloaded(item)

    assert reloaded(json.loads(json.dumps(change.model_dump()))) == (change,)


# -- what an API discloses -------------------------------------------------------------------------

DOCUMENT: dict[str, Json] = {
    "paths": {
        "/x/{id}": {
            "post": {
                "requestBody": {
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}
                }
            }
        }
    },
    "components": {
        "schemas": {
            "Order": {
                "type": "object",
                "properties": {
                    "lines": {"type": "array", "items": {"$ref": "#/components/schemas/Line"}}
                },
            },
            "Line": {"properties": {"parent": {"$ref": "#/components/schemas/Order"}}},
            "Unrelated": {"type": "string"},
            "Suggestion": {"properties": {"action": {"enum": ["A", "B"]}}},
        }
    },
}


def references(schema: Json) -> Iterator[str]:
    match schema:
        case dict():
            if isinstance(schema.get("$ref"), str):
                yield schema["$ref"]
            for each in schema.values():
                yield from references(each)
        case list():
            for each in schema:
                yield from references(each)


def test_a_disclosed_schema_stands_by_itself_even_where_it_refers_in_a_circle() -> None:
    schema = read_disclosure(DOCUMENT, "/x/{id}").request_schema

    assert set(references(schema)) == {"#/$defs/Order", "#/$defs/Line"}
    assert set(schema["$defs"]) == {"Order", "Line"}


def test_the_action_vocabulary_is_disclosed() -> None:
    assert read_disclosure(DOCUMENT, "/x/{id}").actions == ("A", "B")


@pytest.mark.parametrize("document", [None, 3, "x", [], {}, {"components": [1]}, {"paths": None}])
def test_a_document_that_discloses_nothing_is_read_as_that(document: Json) -> None:
    read = read_disclosure(document, "/x")

    assert read.actions == ()
    assert read.request_schema == {}


def test_the_reference_apis_own_schema_stands_by_itself() -> None:
    from crossmem.api import tables_of
    from crossmem.api.app import create_app

    document = create_app("recipe", tables_of("recipe"), "token").openapi()
    read = read_disclosure(document, "/recipes/convert")
    names = {reference.removeprefix("#/$defs/") for reference in references(read.request_schema)}

    assert names
    assert names <= set(read.request_schema["$defs"])
    assert "USE_SPECIFIC_BRAND" in read.actions


def test_feedback_under_detail_is_read_as_fastapi_wraps_it() -> None:
    fix = {"action": "A", "parameters": {"field": "/a", "suggested_value": 1}}
    body = {"detail": {"message": "no", "suggestions": [fix], "table_versions": {"t": "1"}}}

    read = read_response(422, body)

    assert [each.field for each in read.suggestions] == ["/a"]
    assert read.stamps == {"t": "1"}
    assert read.detail == "no"


def test_a_refusal_that_can_be_mended_is_not_final_whatever_its_code() -> None:
    fix = {"action": "A", "parameters": {"field": "/a", "suggested_value": 1}}
    body = {"code": "x", "recovery_feedback": {"suggestions": [fix]}}

    assert not read_response(422, body).final
    assert read_response(422, {"code": "x"}).final
