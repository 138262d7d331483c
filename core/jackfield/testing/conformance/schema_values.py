"""Values that a pydantic model takes, made up from its JSON schema: the defaults where there are any, else the least ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError


class Unmade(Exception):
    """No values were found that the model takes."""


def made_values(model: type[BaseModel]) -> dict[str, Any]:
    """Fields without a default, filled in. Raises Unmade if the model refuses them."""
    schema = model.model_json_schema()
    values = {name: _made(schema["properties"][name], schema) for name in schema.get("required", ())}
    try:
        model.model_validate(values)
    except ValidationError as error:
        raise Unmade(f"{model.__name__} takes none of the values that could be made up: {values}") from error
    return values


def _made(entry: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    if "$ref" in entry:
        entry = schema["$defs"][entry["$ref"].rpartition("/")[2]]
    for key in ("const", "default"):
        if key in entry:
            return entry[key]
    if entry.get("enum"):
        return entry["enum"][0]
    if arms := entry.get("anyOf") or entry.get("oneOf"):
        return _made(arms[0], schema)
    match entry.get("type"):
        case "integer":
            return int(entry.get("minimum", entry.get("exclusiveMinimum", 0) + 1))
        case "number":
            return float(entry.get("minimum", entry.get("exclusiveMinimum", 0) + 1))
        case "boolean":
            return True
        case "array":
            return [_made(entry.get("items", {}), schema)] * max(1, int(entry.get("minItems", 1)))
        case "object":
            return {name: _made(entry["properties"][name], schema) for name in entry.get("required", ())}
        case _:
            return "a" * max(1, int(entry.get("minLength", 1)))
