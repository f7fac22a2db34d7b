"""The reference of the files that people write: their keys, read off their classes."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter

Schema = Mapping[str, Any]
"""A part of a JSON Schema, whose shape its own standard says."""

_BOUNDS = {
    "minimum": "from",
    "maximum": "to",
    "exclusiveMinimum": "above",
    "exclusiveMaximum": "below",
}


def keys_page(title: str, text: str, form: TypeAdapter[Any]) -> str:
    """Markdown: the keys of a file with type, default and meaning, blocks in sections."""
    # As it is after reading: a single value has become a list.
    schema = form.json_schema(mode="serialization")
    definitions = schema.get("$defs", {})
    parts = [f"# {title}", text, _keys_table(schema, definitions)]
    for name, block in definitions.items():
        if "properties" in block:
            keys = [key for key, value in schema["properties"].items() if name in json.dumps(value)]
            heading = ", ".join(f"`{key}`" for key in keys) or _plain(name)
            parts += [
                f"## {heading}",
                _first(block.get("description", "")),
                _keys_table(block, definitions),
            ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _keys_table(schema: Schema, definitions: Schema) -> str:
    required = schema.get("required", [])
    rows = ["| key | value | default | meaning |", "|---|---|---|---|"]
    for key, value in schema["properties"].items():
        default = "needed" if key in required else _default(value)
        cells = (f"`{key}`", type_text(value, definitions), default, value.get("description", ""))
        rows.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(rows)


def type_text(schema: Schema, definitions: Schema) -> str:
    """A JSON Schema in words: `one of a, b`, `whole number from 1`, `list of text`."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        found = definitions[name]
        return "see below" if "properties" in found else type_text(found, definitions)
    if "anyOf" in schema:
        texts = [
            type_text(one, definitions) for one in schema["anyOf"] if one.get("type") != "null"
        ]
        if "number" in texts:
            texts = [text for text in texts if text != "whole number"]
        return " or ".join(dict.fromkeys(texts))
    if "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    return " ".join([_kind(schema, definitions), *_limits(schema)])


def _kind(schema: Schema, definitions: Schema) -> str:
    kind = schema.get("type")
    if kind == "array":
        inner = schema.get("items")
        return f"list of {type_text(inner, definitions)}" if inner else "list"
    if kind == "object":
        patterns = schema.get("patternProperties", {})
        inner = next(iter(patterns.values()), schema.get("additionalProperties"))
        names = schema.get("propertyNames") or (
            {"type": "string", "pattern": next(iter(patterns))} if patterns else None
        )
        key = type_text(names, definitions) if names else "name"
        value = type_text(inner, definitions) if isinstance(inner, Mapping) else "any"
        return f"map from {key} to {value}"
    words = {
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "string": "text",
    }
    return words.get(str(kind), "any")


def _limits(schema: Schema) -> Iterator[str]:
    for bound, word in _BOUNDS.items():
        if bound in schema:
            yield f"{word} {schema[bound]}"
    if "pattern" in schema:
        yield f"matching `{schema['pattern']}`"


def _default(schema: Schema) -> str:
    value = schema.get("default")
    if value in (None, "", {}):
        return ""
    if isinstance(value, dict):
        return "see below"
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list):
        return ", ".join(f"`{one}`" for one in value)
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _first(description: str) -> str:
    return description.partition("\n\n")[0].replace("\n", " ")


def _plain(name: str) -> str:
    return name.removesuffix("Spec")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
