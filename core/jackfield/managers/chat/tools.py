"""The tools of a chat and the choice among them, checked. Knows OpenAI's shape of both, no format in which a model writes calls.

Policies
  names          1 to 128 letters, digits and `_ . : / -`, each once
  parameters     null or absent is any object; what a schema says is checked where it is used, in a grammar
  tool_choice    none: the model is not even told of the tools, and no call is read. A named function: it alone may be called, and
                 the model is told of all. allowed_tools: as if the others had not been sent
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jackfield.hookspecs.parser import Tool
from jackfield.managers.errors import RequestError, shown
from jackfield.managers.text.tokenizer import check_unicode

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,128}")


@dataclass(frozen=True, kw_only=True)
class ToolUse:
    """shown      what the template is told of, of OpenAI's shape
    callable   what may be called; empty: no call is read in the answer
    required   the answer is calls and nothing else
    parallel   it may hold more than one
    """

    shown: tuple[Mapping[str, Any], ...] = ()
    callable: tuple[Tool, ...] = ()
    required: bool = False
    parallel: bool = True


def tool_use(tools: Any, choice: Any, *, parallel: Any = True, most: int) -> ToolUse:
    """Raises RequestError naming the place. most: tools of one request."""
    if not isinstance(parallel, bool):
        raise RequestError("parallel_tool_calls must be true or false", param="parallel_tool_calls")
    given = checked_tools(tools, most)
    mode, names = _choice(choice, bool(given))
    known = {tool.name for tool, _ in given}
    for name in names or ():
        if name not in known:
            raise RequestError(
                f"tool_choice names the function {shown(name)}, which is not among the tools", param="tool_choice"
            )
    if mode == "none" or not given:
        return ToolUse()
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        given = [(tool, raw) for tool, raw in given if tool.name in (names or ())]
    return ToolUse(
        shown=tuple(raw for _, raw in given),
        callable=tuple(tool for tool, _ in given if names is None or tool.name in names),
        required=mode == "required",
        # A named function is called once: that is what whoever names it means.
        parallel=parallel and not (isinstance(choice, Mapping) and choice.get("type") == "function"),
    )


def checked_tools(tools: Any, most: int) -> list[tuple[Tool, dict[str, Any]]]:
    """Each tool as a record, and as a template reads it."""
    if tools is None:
        return []
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise RequestError("tools must be a list of tools", param="tools")
    if len(tools) > most:
        raise RequestError(f"tools holds {len(tools)} entries; at most {most} are allowed", param="tools")
    found = [_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)]
    names = [tool.name for tool, _ in found]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise RequestError(f"tools[{i}].function.name {name!r} stands twice", param=f"tools[{i}].function.name")
    return found


def _tool(tool: Any, where: str) -> tuple[Tool, dict[str, Any]]:
    if not isinstance(tool, Mapping):
        raise RequestError(f"{where} must be an object with type and function", param=where)
    if tool.get("type") != "function":
        raise RequestError(
            f"{where}.type {shown(tool.get('type'))} is not supported: 'function' is", param=f"{where}.type"
        )
    function = tool.get("function")
    if not isinstance(function, Mapping):
        raise RequestError(f"{where}.function must be an object with a name", param=f"{where}.function")
    name, description = function.get("name"), function.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"{where}.function.name must be 1 to 128 letters, digits, '_', '.', ':', '/' or '-'",
            param=f"{where}.function.name",
        )
    if description is not None and not isinstance(description, str):
        raise RequestError(f"{where}.function.description must be a text", param=f"{where}.function.description")
    check_unicode(description or "", f"{where}.function.description")
    parameters, strict = function.get("parameters"), function.get("strict")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise RequestError(
            f"{where}.function.parameters must be a JSON schema, an object", param=f"{where}.function.parameters"
        )
    if strict is not None and not isinstance(strict, bool):
        raise RequestError(f"{where}.function.strict must be true or false", param=f"{where}.function.strict")
    record = Tool(name=name, description=description or "", parameters=dict(parameters or {}), strict=bool(strict))
    shape = {"name": name, "description": record.description, "parameters": record.parameters}
    if parameters is None:
        shape["parameters"] = {"type": "object", "properties": {}}
    return record, {"type": "function", "function": shape}


def _choice(choice: Any, any_tools: bool) -> tuple[str, Sequence[str] | None]:
    """(auto, none or required; the names that may be called, or None for all)"""
    mode, names = "auto", None
    match choice:
        case None | "auto" | "none":
            mode = choice or "auto"
        case "required":
            mode = "required"
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            mode, names = "required", [name]
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": [*listed]}}:
            names = [_allowed(one, i) for i, one in enumerate(listed)]
            if not names:
                raise RequestError("tool_choice.allowed_tools.tools is empty", param="tool_choice")
        case _:
            raise RequestError(
                'tool_choice must be "auto", "none", "required" or {"type": "function", "function": {"name": ...}}',
                param="tool_choice",
            )
    if not any_tools and (mode == "required" or names):
        raise RequestError("tool_choice asks for a call, but there are no tools to call", param="tool_choice")
    return mode, names


def _allowed(one: Any, i: int) -> str:
    match one:
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return name
    raise RequestError(
        f"tool_choice.allowed_tools.tools[{i}] must be a function with a name",
        param=f"tool_choice.allowed_tools.tools[{i}]",
    )
