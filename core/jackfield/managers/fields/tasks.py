"""What a run is for: text, embeddings or labels. One question of one kind of run gets one refusal, whatever way it came."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from jackfield.hookspecs import CLASSIFICATION, EMBEDDING, Pooling
from jackfield.managers.errors import RequestError

GENERATION = "generation"

_GIVES: Mapping[str, str] = MappingProxyType(
    {
        GENERATION: "generates text",
        EMBEDDING: "gives embeddings",
        CLASSIFICATION: "gives scores of labels",
    }
)
_WHERE: Mapping[str, str] = MappingProxyType(
    {
        GENERATION: "/v1/completions, /v1/chat/completions and /generate",
        EMBEDDING: "/v1/embeddings and /encode",
        CLASSIFICATION: "/v1/classify and /classify",
    }
)


def task_of(pooling: Pooling | None) -> str:
    """What a run is for."""
    return GENERATION if pooling is None else pooling.kind


def wrong_task(pooling: Pooling | None, wanted: str) -> RequestError:
    """The refusal of a request for what the run is not for."""
    mine = task_of(pooling)
    hint = ""
    if mine == GENERATION and wanted == EMBEDDING:
        hint = "; started with --is-embedding, it would give embeddings"
    return RequestError(
        f"the model that is served {_GIVES[mine]} ({_WHERE[mine]}) and none that {_GIVES[wanted]} is here{hint}",
        code="not_supported",
    )


def check_task(pooling: Pooling | None, wanted: str) -> None:
    """Raises RequestError unless the run is for what is wanted."""
    if task_of(pooling) != wanted:
        raise wrong_task(pooling, wanted)
