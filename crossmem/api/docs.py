"""The page at /docs: an OpenAPI document as one HTML page that needs nothing from the network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .25rem; }
pre { padding: .75rem; overflow-x: auto; border: 1px solid #8886; border-radius: 6px; }
code, pre { font: 14px/1.45 ui-monospace, monospace; }
.method { display: inline-block; min-width: 3.5rem; font-weight: bold; }
table { border-collapse: collapse; } td { padding: .15rem 1rem .15rem 0; vertical-align: top; }
details { margin: .5rem 0; } summary { cursor: pointer; }
"""


def page(document: Mapping[str, Any], base: str, example: tuple[str, dict[str, Any]]) -> str:
    """Return the HTML page of an OpenAPI `document` whose server answers at the URL `base`.

    `example` is a request as (path, body); the page shows how to send it with curl.
    """
    info = document["info"]
    parts = [
        f"<h1>{escape(info['title'])}</h1>",
        f"<p>{_prose(info['description'])}</p>",
        '<p>The machine-readable document: <a href="/openapi.json">/openapi.json</a></p>',
        "<h2>Try it</h2>",
        _curl(base, *example),
        "<h2>Actions a suggestion may name</h2>",
        *_actions(document["components"]["schemas"]),
        "<h2>Endpoints</h2>",
        *_endpoints(document["paths"]),
        "<h2>Schemas</h2>",
        *_schemas(document["components"]["schemas"]),
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        # Without this, a browser asks for /favicon.ico and logs its 404 as an error.
        f'<link rel="icon" href="data:,">'
        f"<title>{escape(info['title'])}</title><style>{STYLE}</style></head>\n"
        f"<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _curl(base: str, path: str, body: dict[str, Any]) -> str:
    # Single quotes hold for any body without an apostrophe, which the examples do not have.
    command = (
        f"curl -X POST {base}{path} \\\n  -H 'Content-Type: application/json' \\\n"
        f"  -d '{json.dumps(body, indent=2)}'"
    )
    return f"<pre>{escape(command)}</pre>"


def _actions(schemas: Mapping[str, Any]) -> Iterator[str]:
    yield "<ul>"
    for action in schemas["Suggestion"]["properties"]["action"]["enum"]:
        yield f"<li><code>{escape(action)}</code></li>"
    yield "</ul>"


def _endpoints(paths: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in paths.items():
        for method, operation in operations.items():
            verb = f'<span class="method">{method.upper()}</span>'
            yield f"<h3>{verb} <code>{escape(path)}</code></h3>"
            yield f"<p>{_prose(operation.get('description', ''))}</p>"
            if "security" in operation:
                yield "<p>Needs the header <code>X-Admin-Token</code>.</p>"
            yield "<table>"
            for sent in operation.get("parameters", ()):
                named, told = escape(sent["name"]), _prose(sent.get("description", ""))
                yield f"<tr><td>{escape(sent['in'])}</td><td>{told}</td><td>{named}</td></tr>"
            if "requestBody" in operation:
                content = operation["requestBody"]["content"]
                yield f"<tr><td>body</td><td></td><td>{_link(content)}</td></tr>"
            for status, response in operation["responses"].items():
                told, shape = _prose(response["description"]), _link(response.get("content", {}))
                yield f"<tr><td>{escape(status)}</td><td>{told}</td><td>{shape}</td></tr>"
            yield "</table>"


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        text = escape(json.dumps(schema, indent=2))
        yield f'<details id="{escape(name)}"><summary><code>{escape(name)}</code> '
        yield f"{_prose(schema.get('description', ''))}</summary><pre>{text}</pre></details>"


def _link(content: Mapping[str, Any]) -> str:
    """Name the schemas of a body, each with a link to its place on the page."""
    described = (kind["schema"] for kind in content.values())
    options = [option for schema in described for option in schema.get("anyOf", [schema])]
    names = [option["$ref"].rpartition("/")[2] for option in options if "$ref" in option]
    return " or ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in names)


def _prose(text: str) -> str:
    """Escape a text and set what stands between backticks as code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))
