"""The reference of the server's JSON API, read off its OpenAPI document."""

from collections.abc import Iterator, Mapping
from typing import Any

Document = Mapping[str, Any]
"""A part of an OpenAPI document: JSON, whose shape its own standard says."""


def http_page(document: Document) -> str:
    """Markdown: each path with its parameters and answers."""
    info = document["info"]
    parts = [
        "# HTTP API",
        str(info.get("description", "")),
        "Made from the server's own OpenAPI document, which it serves at `/api/openapi.json`.",
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts += [f"## `{method.upper()} {path}`", *_operation_parts(operation)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _operation_parts(operation: Document) -> Iterator[str]:
    yield operation.get("description") or operation.get("summary", "")
    if parameters := operation.get("parameters"):
        rows = [f"| `{one['name']}` | {one['in']} | {_description(one)} |" for one in parameters]
        yield "\n".join(["| parameter | in | meaning |", "|---|---|---|", *rows])
    rows = [
        f"| {status} | {_line(answer.get('description', ''))} |"
        for status, answer in operation.get("responses", {}).items()
    ]
    yield "\n".join(["| answer | |", "|---|---|", *rows])


def _description(parameter: Document) -> str:
    text = parameter.get("description") or parameter.get("schema", {}).get("description", "")
    default = parameter.get("schema", {}).get("default")
    return _line(text) + (f" Default: `{default}`." if default is not None else "")


def _line(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")
