"""Which runs a route is for: text, embeddings or labels. Asked before the body is read, so that one answer holds for all."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from jackfield.entrypoints.http.service import Service
from jackfield.hookspecs import CLASSIFICATION, EMBEDDING, Route
from jackfield.managers.fields.tasks import GENERATION, task_of, wrong_task

ANY = (GENERATION, CLASSIFICATION, EMBEDDING)

TASKS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "/v1/embeddings": (EMBEDDING,),
        "/encode": (EMBEDDING,),
        "/classify": (CLASSIFICATION,),
        "/v1/classify": (CLASSIFICATION,),
        "/v1/score": ANY,
        **dict.fromkeys(("/tokenize", "/v1/tokenize", "/detokenize", "/v1/detokenize"), ANY),
        "/v1/rerank": (CLASSIFICATION, EMBEDDING),
        "/rerank": (CLASSIFICATION, EMBEDDING),
    }
)
"""Path -> what the run may be for; any other route with `generates` is for runs that generate."""


def check_route(route: Route, service: Service) -> None:
    """Raises RequestError (400) for a route that this run has no answer for."""
    if not route.generates or not service.is_up:
        return
    pooling = service.serving.replica.tokenizer_manager.limits.pooling
    wanted = TASKS.get(route.path, (GENERATION,))
    if task_of(pooling) not in wanted:
        raise wrong_task(pooling, wanted[0])
