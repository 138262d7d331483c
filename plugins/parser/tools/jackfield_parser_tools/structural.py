"""Tool calls as a structural tag: JSON that tells a grammar backend where a schema begins and ends within the text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.hookspecs import GrammarSpec, Tool

ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True)
class Tag:
    """One call as the model is to write it: `begin`, arguments that keep to the tool's schema, `end`."""

    begin: str
    tool: Tool
    end: str

    def spec(self) -> dict[str, Any]:
        return {
            "type": "tag",
            "begin": self.begin,
            "content": {"type": "json_schema", "json_schema": schema_of(self.tool)},
            "end": self.end,
        }


def named(tools: Iterable[Tool]) -> list[tuple[str, Tool]]:
    """Each tool with its name as a JSON string."""
    return [(json.dumps(tool.name, ensure_ascii=False), tool) for tool in tools]


def schema_of(tool: Tool) -> Mapping[str, Any]:
    """Its parameters' schema; arguments are an object whatever it says."""
    schema = dict(tool.parameters) or dict(ANY_OBJECT)
    schema.setdefault("type", "object")
    return schema


def tags(
    each: Sequence[Tag], *, trigger: str, separator: str, required: bool, parallel: bool, head: str = "", tail: str = ""
) -> GrammarSpec:
    """required: the calls alone, with `separator` between two, between `head` and `tail`. Else free text in which what begins
    with `trigger` is a call."""
    specs = [tag.spec() for tag in each]
    if required:
        calls: dict[str, Any] = {
            "type": "tags_with_separator",
            "tags": specs,
            "separator": separator,
            "at_least_one": True,
            "stop_after_first": not parallel,
        }
        ends = [{"type": "const_string", "value": text} for text in (head, tail)]
        layout = calls if not head + tail else {"type": "sequence", "elements": [ends[0], calls, ends[1]]}
    else:
        layout = {
            "type": "triggered_tags",
            "triggers": [trigger],
            "tags": specs,
            "at_least_one": False,
            "stop_after_first": not parallel,
        }
    return structural_tag(layout)


def structural_tag(layout: Mapping[str, Any]) -> GrammarSpec:
    """layout: a format in xgrammar's terms."""
    return GrammarSpec(
        form="structural_tag", source=json.dumps({"type": "structural_tag", "format": layout}, ensure_ascii=False)
    )
