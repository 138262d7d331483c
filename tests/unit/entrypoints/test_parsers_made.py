"""The parsers of a run are made from its stack, told in the log, and of the sort that they declare."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackfield.entrypoints.parsers import make_parsers
from jackfield.hookspecs import ToolCallParser
from jackfield.stack.discovery.scan import discover
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.load import INLINE, load_stack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.selection.single import select_one

WRONG = """
from jackfield.hookspecs import Parser, hookimpl

PLUGIN = {"kind": "parser", "name": "wrong", "summary": "Neither", "contract": {"parser": "0.1"}, "features": ["reasoning"]}


@hookimpl
def jackfield_parser():
    return Parser()
"""


def test_they_are_made_and_told(caplog: pytest.LogCaptureFixture) -> None:
    stack = ResolvedStack(plugins=(select_one(discover(), "parser", "mistral", {}),))
    with caplog.at_level("INFO", logger="jackfield"):
        parsers = make_parsers(load_stack(stack, INLINE), "")
    assert isinstance(parsers.tool_calls, ToolCallParser)
    assert parsers.reasoning is None
    assert parsers.keeps_special_tokens
    assert "parser mistral reads tool calls: asked for by name" in caplog.text


def test_one_of_the_other_sort_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    stack = ResolvedStack(plugins=(select_one(discover(files=[file]), "parser", "wrong", {}),))
    with pytest.raises(PluginLoadError, match=r"declares the feature 'reasoning'.* which is no ReasoningParser"):
        make_parsers(load_stack(stack, INLINE), "")
