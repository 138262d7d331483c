"""Three real servers that all clients share: one that says a think, a sentence and a call to everything, the real model, which
grammars constrain, and a small encoder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from jackfield.testing.tiny_encoders import write_encoder
from tests.e2e.http.servers import SIMULATED, Server, serving

KEY, ADMIN = "sk-clients", "sk-admin"
THOUGHT, SAID, CITY = "Hm, 😀.", "It is sunny.", {"city": "Paris"}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
ANSWER = f"<think>\n{THOUGHT}\n</think>\n\n{SAID}\n{CALL}"


@dataclass(frozen=True)
class Served:
    """A server as a client knows it."""

    server: Server
    model: str

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def v1(self) -> str:
        return f"{self.server.url}/v1"


def _served(*flags: str, model: str) -> Iterator[Served]:
    with serving(
        *flags, "--served-model-name", model, "--api-key", KEY, "--admin-api-key", ADMIN, check=False
    ) as server:
        yield Served(server, model)
        assert "Traceback" not in server.log


@pytest.fixture(scope="package")
def scripted() -> Iterator[Served]:
    text = ("--option", f"worker.simulated.script={json.dumps(ANSWER, ensure_ascii=False)}")
    parsers = ("--tool-call-parser", "hermes", "--reasoning-parser", "think")
    yield from _served(*SIMULATED, *text, *parsers, "--max-total-tokens", "20000", model="scripted")


@pytest.fixture(scope="package")
def constrained() -> Iterator[Served]:
    yield from _served("--max-total-tokens", "8192", "--skip-server-warmup", model="real")


@pytest.fixture(scope="package")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("embedder")
    write_encoder(folder, pooling={"pooling_mode_mean_tokens": True}, max_seq_length=48)
    yield from _served("--model-path", str(folder), "--dtype", "float32", model="embedder")
