"""The grammars of our tool call parsers on both grammar backends: what a parser reads as calls each lets a model write, and what
breaks a schema or calls something else, none does."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from jackfield.hookspecs import GrammarBackend, GrammarSpec, ToolCallParser
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
