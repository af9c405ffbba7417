"""The OpenAPI document as a page that needs no script and nothing from elsewhere."""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

__all__ = ["page"]

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color-scheme:light dark}code,pre{font:14px/1.4 ui-monospace,monospace}"
    "pre{overflow:auto;padding:.75rem;border:1px solid #8886;border-radius:6px}"
    "h2 code{font-size:1.1rem}table{border-collapse:collapse}td{padding:.1rem .75rem .1rem 0}"
)


def page(document: Mapping[str, Any]) -> str:
    """The page; every word of it comes from the document."""
    info = document["info"]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"<p>{escape(info['description'])}</p>"
        '<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>'
        f"{''.join(_operations(document))}<h1>Schemas</h1>{''.join(_schemas(document))}</html>"
    )


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
            yield f"<p>{escape(operation['summary'])}</p>"
            for parameter in operation.get("parameters", ()):
                needed = "required" if parameter["required"] else "optional"
                yield f"<p>Query: <code>{escape(parameter['name'])}</code>, {needed}.</p>"
            if "requestBody" in operation:
                yield f"<p>Body: {_schema(operation['requestBody'])}</p>"
            yield "<table>"
            for status, answer in operation["responses"].items():
                words = f"{escape(answer['description'])}</td><td>{_schema(answer)}"
                yield f"<tr><td><code>{status}</code></td><td>{words}</td></tr>"
            yield "</table>"


def _schemas(document: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in document["components"]["schemas"].items():
        text = escape(json.dumps(schema, indent=1))
        yield (
            f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
            f"<pre>{text}</pre></details>"
        )


def _schema(answer: Mapping[str, Any]) -> str:
    schema = answer["content"]["application/json"]["schema"]
    listed = "items" in schema
    found = schema["items"].get("$ref") if listed else schema.get("$ref")
    if found is None:
        return "a list of answers, each with its status"
    name = escape(found.rsplit("/", 1)[1])
    return f'{"a list of " if listed else ""}<a href="#{name}"><code>{name}</code></a>'
