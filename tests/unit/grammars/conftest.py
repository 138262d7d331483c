"""The backends on two vocabularies: one token a byte, and the embedded model's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackfield.hookspecs import GrammarBackend
from jackfield.managers.text.tokenizer import Tokenizer
from tests.unit.grammars.backends import BACKENDS, BYTES, END, make


@pytest.fixture(scope="session", params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> GrammarBackend:
    """Its tokens are bytes, and id 256 ends."""
    return make(request.param, BYTES, (END,))


@pytest.fixture(scope="session")
def vocabulary(embedded_model: Path) -> list[bytes]:
    from jackfield_models_loaders.gguf_source import GgufSource

    tokenizer = Tokenizer.from_files(GgufSource(embedded_model).tokenizer())
    return tokenizer.vocabulary(tokenizer.vocab_size)
