"""The parsers of a run are made from its stack, told in the log, and of the sort that they declare."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackfield.entrypoints.engine import Engine
from jackfield.entrypoints.guarded_parsers import FAILED
from jackfield.entrypoints.parsers import make_parsers
from jackfield.hookspecs import ToolCallParser
from jackfield.managers.errors import RequestError
from jackfield.stack.discovery.scan import discover
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.load import INLINE, load_stack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.metering import Meter
from jackfield.stack.selection.single import select_one

WRONG = """
from jackfield.hookspecs import Parser, hookimpl

PLUGIN = {"kind": "parser", "name": "wrong", "summary": "Neither", "contract": {"parser": "0.1"}, "features": ["reasoning"]}


@hookimpl
def jackfield_parser():
    return Parser()
"""

FALLS = """
from jackfield.hookspecs import Content, ReasoningParser, TextStream, hookimpl

PLUGIN = {"kind": "parser", "name": "falls", "summary": "Falls over X", "contract": {"parser": "0.1"}, "features": ["reasoning"]}


class Stream(TextStream):
    def feed(self, text):
        for letter in text:
            if letter == "X":
                raise SystemExit("X is too much")
            yield Content(text=letter)

    def finish(self):
        return []


class Falls(ReasoningParser):
    end = "</think>"

    def opened(self, prompt_end):
        return False

    def stream(self, *, opened):
        return Stream()


@hookimpl
def jackfield_parser():
    return Falls()
"""


def test_they_are_made_and_told(caplog: pytest.LogCaptureFixture) -> None:
    stack = ResolvedStack(plugins=(select_one(discover(), "parser", "mistral", {}),))
    with caplog.at_level("INFO", logger="jackfield"):
        parsers = make_parsers(load_stack(stack, INLINE), "", FaultLedger(), Meter())
    assert isinstance(parsers.tool_calls, ToolCallParser)
    assert parsers.reasoning is None
    assert parsers.keeps_special_tokens
    assert "parser mistral reads tool calls: asked for by name" in caplog.text


def test_one_of_the_other_sort_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    stack = ResolvedStack(plugins=(select_one(discover(files=[file]), "parser", "wrong", {}),))
    with pytest.raises(PluginLoadError, match=r"declares the feature 'reasoning'.* which is no ReasoningParser"):
        make_parsers(load_stack(stack, INLINE), "", FaultLedger(), Meter())


@pytest.mark.parametrize("streams", [False, True])
def test_one_that_fails_ends_its_request_alone(tmp_path: Path, streams: bool) -> None:
    file = tmp_path / "falls.py"
    file.write_text(FALLS)
    script = {"worker.simulated": {"script": ["a X b", "good"]}}
    messages = [{"role": "user", "content": "hello"}]
    with Engine(worker="simulated", plugin=[file], reasoning_parser="falls", options=script) as engine:
        with pytest.raises(RequestError, match=FAILED):
            for _ in engine.chat(messages, stream=True) if streams else [engine.chat(messages)]:
                pass
        assert engine.chat(messages).text == "good"
        told = engine.get_server_info()
    assert told["faults"]["parser.falls"]["count"] == 1
