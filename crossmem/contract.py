"""A response of the API, read: feedback, suggestions, version stamps, table diffs.

The reader is tolerant, since servers differ in what the published contract leaves open: a suggestion's
verb stands under `action` or `type`, the feedback at top level, under `error` or under `detail`, the
cache hint is an object, a string or absent (absent = not cacheable); unknown members are ignored. What
cannot be read is treated as missing, never guessed. Nothing here knows a domain or a memory arm.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jsonpointer import JsonPointerException, resolve_pointer
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

Json = Any
"""A JSON value: null, bool, number, string, list or object."""


class _Tolerant(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Suggestion(_Tolerant):
    """One literal fix: put `suggested_value` at the JSON Pointer `field` of the request sent."""

    action: str
    field: str
    suggested_value: Json
    current_value: Json = None
    table: str | None = None
    cacheable: bool = False


def read_suggestion(item: Json) -> Suggestion | None:
    """Read one item of `suggestions[]`; None for one that names no place or no value.

    Its members stand beside `parameters` or in it, its verb never in it; the cache hint is reduced to
    one bit.
    """
    if not isinstance(item, Mapping):
        return None
    parameters = item.get("parameters")
    inner = parameters if isinstance(parameters, Mapping) else {}
    members = {**{name: inner[name] for name in inner if name not in {"action", "type"}}, **item}
    table = item.get("table")
    try:
        return Suggestion(
            action=members["action"] if "action" in members else members["type"],
            field=members["field"],
            suggested_value=members["suggested_value"],
            current_value=members.get("current_value"),
            table=table if isinstance(table, str) else None,
            cacheable=_cacheable(item.get("cache_hint")),
        )
    except (KeyError, ValidationError):
        return None  # it can be neither merged nor learned


def _cacheable(hint: Json) -> bool:
    match hint:
        case {"cacheable": bool(flag)}:
            return flag
        case str(word):
            return word.strip().lower() in {"cacheable", "cache", "table", "true", "yes"}
        case bool(flag):
            return flag
        case _:
            return False


@dataclass(frozen=True)
class Response:
    """What came back for one request.

    `stamps` maps each consulted table to its version; a table that is missing there has an unknown
    version, which equals no other. `body` is the JSON as received (None where it was no object).
    """

    status: int
    body: dict[str, Json] | None = None
    suggestions: tuple[Suggestion, ...] = ()
    stamps: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the API took the request."""
        return 200 <= self.status < 300

    @property
    def final(self) -> bool:
        """Whether no other request can change the outcome: taken, or failed beyond its form.

        A refusal by policy (it has stamps) without a suggestion cannot be mended, nor can one by the
        payment provider (it has a `code`); a body off the schema can.
        """
        if self.status not in {400, 422}:
            return True
        return not self.suggestions and (bool(self.stamps) or "code" in (self.body or {}))

    def refuses(self, pointers: Iterable[str]) -> bool:
        """Tell whether a suggestion wants one of the JSON `pointers`, or what holds it, changed."""
        return any(
            f"{pointer}/".startswith(f"{suggestion.field}/")
            for suggestion in self.suggestions
            for pointer in pointers
        )


def read_response(status: int, body: Json) -> Response:
    """Read the HTTP `status` and decoded JSON `body` of an answer; never raises on odd bodies."""
    if not isinstance(body, dict):
        return Response(status=status)
    held = (body.get("error"), body.get("detail"))  # the latter by FastAPI's own HTTPException
    nested = next((each for each in held if isinstance(each, dict)), {})
    feedback = body.get("recovery_feedback") or nested.get("recovery_feedback") or nested
    versions = body.get("table_versions") or nested.get("table_versions")
    return Response(
        status=status,
        body=body,
        suggestions=_suggestions(feedback) if not 200 <= status < 300 else (),
        stamps=_stamps(versions),
        detail=str(nested.get("message") or body.get("detail") or ""),
    )


def _suggestions(feedback: Json) -> tuple[Suggestion, ...]:
    listed = feedback.get("suggestions") if isinstance(feedback, Mapping) else None
    return tuple(filter(None, map(read_suggestion, listed if isinstance(listed, list) else ())))


def _stamps(versions: Json) -> dict[str, str]:
    if not isinstance(versions, Mapping):
        return {}
    return {
        str(table): str(stamp)
        for table, stamp in versions.items()
        if isinstance(stamp, str | int | float) and not isinstance(stamp, bool)
    }


class ListDiff(_Tolerant):
    """Change of a list-shaped table: category -> values that came or went."""

    shape: Literal["list"]
    added: dict[str, list[Json]] = Field(default_factory=dict)
    removed: dict[str, list[Json]] = Field(default_factory=dict)


class DictDiff(_Tolerant):
    """Change of a dict-shaped table: the row keys that came, went or hold another value now."""

    shape: Literal["dict"]
    added: list[str] = Field(default_factory=list)
    removed: list[str] = Field(default_factory=list)
    changed: list[str] = Field(default_factory=list)


def difference(
    old_rows: Mapping[str, Json],
    new_rows: Mapping[str, Json],
    shape: Literal["list", "dict"] | None = None,
) -> ListDiff | DictDiff:
    """Return what changed from `old_rows` to `new_rows`, two states of one table.

    A table is list-shaped where every row on both sides is a list, unless its `shape` is given.

    * list (category -> values): per category the values that one side has and the other has not. The
      order of values and how often one is listed do not count; a category without a change is absent.
    * dict (row key -> value): the keys that one side lacks, and those whose values are not equal.

    What came and what changed is in the order of `new_rows`, what went in that of `old_rows`.

    >>> difference({"oats": ["A", "B"]}, {"oats": ["B", "C"]})
    ListDiff(shape='list', added={'oats': ['C']}, removed={'oats': ['A']})
    >>> difference({"a": 1, "b": 2}, {"b": 3, "c": 4})
    DictDiff(shape='dict', added=['c'], removed=['a'], changed=['b'])
    """
    rows = [*old_rows.values(), *new_rows.values()]
    if shape == "list" or (shape is None and all(isinstance(row, list) for row in rows)):
        return ListDiff(
            shape="list",
            added=_values_beyond(old_rows, new_rows),
            removed=_values_beyond(new_rows, old_rows),
        )
    return DictDiff(
        shape="dict",
        added=[key for key in new_rows if key not in old_rows],
        removed=[key for key in old_rows if key not in new_rows],
        changed=[key for key in new_rows if key in old_rows and old_rows[key] != new_rows[key]],
    )


def _values_beyond(known: Mapping[str, Json], rows: Mapping[str, Json]) -> dict[str, list[Json]]:
    """Return per category the values of `rows` that `known` has not."""
    found = {
        category: [value for value in values if value not in known.get(category, ())]
        for category, values in rows.items()
    }
    return {category: values for category, values in found.items() if values}


class TableDiff(_Tolerant):
    """One table's change under a reload; `diff` is None where none of a known shape was given."""

    table: str
    from_version: str | None = None
    to_version: str | None = None
    diff: ListDiff | DictDiff | None = None
    source: Literal["server", "harness"] = "server"

    @field_validator("diff", mode="wrap")
    @classmethod
    def _unknown_shape_is_none(cls, value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError:
            return None


def read_reload(body: Json) -> tuple[TableDiff, ...]:
    """Read the answer of the admin reload: the tables that changed, in the server's order."""
    listed = body.get("reloaded") if isinstance(body, Mapping) else None
    found = []
    for item in listed if isinstance(listed, list) else []:
        try:
            found.append(TableDiff.model_validate(item))
        except ValidationError:
            continue  # a change without a table name concerns no entry
    return tuple(found)


@dataclass(frozen=True)
class Disclosure:
    """What an API says of itself in advance: its action vocabulary and the schema of a request."""

    actions: tuple[str, ...]
    request_schema: dict[str, Json] = field(default_factory=dict)


def read_disclosure(document: Json, endpoint: str) -> Disclosure:
    """Read from an OpenAPI `document` what it says of `POST endpoint`; the schema stands by itself."""
    schemas = _at(document, "/components/schemas") or {}
    actions = _at(schemas, "/Suggestion/properties/action/enum") or []
    path = endpoint.replace("~", "~0").replace("/", "~1")
    schema = _at(document, f"/paths/{path}/post/requestBody/content/application~1json/schema") or {}
    if "$ref" in schema:  # a tool's schema must be an object by itself, not a reference to one
        schema = schemas.get(schema["$ref"].rsplit("/", 1)[-1], {})
    if used := _referenced(schema, schemas):
        schema = {**schema, "$defs": used}
    alone = json.dumps(schema).replace("#/components/schemas/", "#/$defs/")
    return Disclosure(tuple(map(str, actions)), json.loads(alone))


def _at(document: Json, pointer: str) -> Json:
    try:
        return resolve_pointer(document, pointer)
    except JsonPointerException:
        return None


def _referenced(schema: Json, schemas: Mapping[str, Json]) -> dict[str, Json]:
    """Return the named schemas that `schema` refers to, directly or through others."""
    found: dict[str, Json] = {}
    waiting = [schema]
    while waiting:
        match waiting.pop():
            case {"$ref": str(reference)}:
                name = reference.rsplit("/", 1)[-1]
                if name in schemas and name not in found:
                    found[name] = schemas[name]
                    waiting.append(schemas[name])
            case dict(members):
                waiting.extend(members.values())
            case list(items):
                waiting.extend(items)
    return dict(sorted(found.items()))
