"""The grammars of our tool call parsers on both grammar backends: what a parser reads as calls each lets a model write, and what
breaks a schema or calls something else, none does."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from jackfield.hookspecs import GrammarBackend, GrammarSpec, ToolCallParser
from jackfield.managers.chat.call_grammar import calls_or_answer
from jackfield.managers.chat.tools import ToolUse
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.grammar import Grammars
from jackfield.stack.discovery.scan import discover
from jackfield.stack.loading.load import INLINE, LoadedStack, load_stack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.selection.single import select_one
from jackfield.testing.conformance.parser import TOOLS
from jackfield.testing.conformance.structural_texts import texts_of

TEMPLATES = {"hermes": [""], "llama3-json": [""], "mistral": ["", "[ARGS]"], "deepseek-v3": ["", "```json"]}
STOP = 256
VOCAB = [bytes([number]) for number in range(STOP)] + [b""]


def loaded(kind: str, name: str) -> LoadedStack:
    return load_stack(ResolvedStack(plugins=(select_one(discover(), kind, name, {}),)), INLINE)


def grammars() -> Iterator[tuple[str, bool, GrammarSpec]]:
    for name, templates in TEMPLATES.items():
        for template in templates:
            parser: ToolCallParser = loaded("parser", name).make("parser", chat_template=template)
            for required in (True, False):
                spec = parser.grammar(TOOLS, required=required, parallel=True)
                if spec is not None:
                    yield f"{name} {template}".strip(), required, spec


@pytest.fixture(scope="module", params=["llguidance", "xgrammar"])
def backend(request: pytest.FixtureRequest) -> GrammarBackend:
    made: GrammarBackend = loaded("grammar", request.param).make(
        "grammar", vocab_size=len(VOCAB), stop_ids=(STOP,), vocab=lambda: VOCAB
    )
    return made


def takes(backend: GrammarBackend, compiled: bytes, text: str) -> bool:
    matcher = backend.load(compiled).matcher()
    return all(matcher.accept(byte) for byte in text.encode())


def test_calls_can_be_written_and_others_cannot(backend: GrammarBackend) -> None:
    for name, required, spec in grammars():
        backend.check(spec)
        compiled = backend.compile(spec)
        texts = list(texts_of(json.loads(spec.source)["format"]))
        assert len(texts) >= 3
        for text in texts:
            assert takes(backend, compiled, text), f"{name} {required}: {text!r}"
        for text in texts:
            if '"days": 7' in text:
                assert not takes(backend, compiled, text.replace('"days": 7', '"days": "7"')), f"{name}: {text!r}"
            assert not takes(backend, compiled, text.replace("get_weather", "get_whatever").replace("f", "g")), text
        assert takes(backend, compiled, "Just words.") is not required


ANSWER = GrammarSpec(
    form="json_schema", source='{"type":"object","properties":{"n":{"enum":[41,42]}},"required":["n"]}'
)


@pytest.mark.parametrize("name", ["hermes", "mistral", "deepseek-v3"])
def test_beside_calls_an_answer_keeps_to_its_format(backend: GrammarBackend, name: str) -> None:
    parser: ToolCallParser = loaded("parser", name).make("parser", chat_template="")
    use = ToolUse(callable=TOOLS)
    _, spec = calls_or_answer(use, parser, Grammars(backend=backend), ANSWER)
    backend.check(spec)
    compiled = backend.compile(spec)
    calls = parser.grammar(TOOLS, required=True, parallel=True)
    assert calls is not None
    for text in ('{"n": 42}', next(iter(texts_of(json.loads(calls.source)["format"])))):
        assert takes(backend, compiled, text), text
    for text in ('{"n": 43}', "Just words."):
        assert not takes(backend, compiled, text), text


def test_a_format_whose_calls_look_like_answers_is_refused(backend: GrammarBackend) -> None:
    parser: ToolCallParser = loaded("parser", "llama3-json").make("parser", chat_template="")
    with pytest.raises(RequestError, match="response_format cannot be kept"):
        calls_or_answer(ToolUse(callable=TOOLS), parser, Grammars(backend=backend), ANSWER)
