"""The Jinja environment in which chat templates run, as Hugging Face's templates expect it.

A template comes with the model, so it is a stranger's program: the sandbox keeps it from Python's internals and from
changing what it is given. Knows no message and no model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace


class GenerationTag(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; here only its content counts."""

    tags = {"generation"}  # noqa: RUF012 - Jinja reads the class attribute

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        # A scope, because assignments inside do not reach the rest of the template where the tag is tracked.
        return nodes.Scope(body, lineno=line)


class PlainDict:
    """`dict(...)` in a template, without the type behind it."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


class PlainNamespace(Namespace):
    """`namespace(...)` in a template; names that begin with an underscore could reach Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        # As in Jinja: `self` must stay free as a name that a template may give.
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            _refuse_underscore(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def chat_environment(now: Callable[[], datetime]) -> jinja2.Environment:
    """now: the date that `strftime_now` shows."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals.update(
        raise_exception=_raise_exception,
        strftime_now=lambda format: now().strftime(format),
        dict=PlainDict(),
        namespace=PlainNamespace,
    )
    return environment


def _refuse_underscore(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace may not hold {name!r}: it begins with an underscore")


def _raise_exception(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes for HTML, which no model has been trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
