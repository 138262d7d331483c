"""One request on its way through a route: what a handler is given, and what all handlers of generation share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from jackfield.entrypoints.calls import Call
from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.service import Service
from jackfield.hookspecs import Route, RouteAnswer, RouteStream
from jackfield.ipc.messages import FinishReason
from jackfield.managers.requests.pooled_request import AnyRequest
from jackfield.managers.requests.req_state import ReqState


@dataclass(kw_only=True)
class Exchange:
    """As `RouteRequest`, with all that the core's own handlers work with.

    route    that it is at; routes: all of the server
    names    the runtime's name of a field -> the name by which the client knows it; a handler sets it
    calls    those that were submitted for it
    """

    service: Service
    route: Route
    routes: Sequence[Route]
    body: Any = None
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    label: str
    method: str = "GET"
    names: dict[str, str] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)

    async def submit(self, make: Callable[[], AnyRequest]) -> Call:
        """As `Service.submit`; the call is known as this request's."""
        call = await self.service.submit(make)
        self.calls.append(call)
        return call


Reply = RouteAnswer | RouteStream
"""What a handler returns."""


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> RouteAnswer:
    return RouteAnswer(body=value, status=status, headers=dict(headers or {}))


def check_model(exchange: Exchange, model: str | None) -> None:
    """Raises ApiError 404 unless `model` is absent or the served one."""
    served = exchange.service.serving.replica.model_name
    if model is not None and model != served:
        raise unknown_model(model, served)


def unknown_model(model: str, served: str) -> ApiError:
    return ApiError(
        404,
        f"the model {model[:200]!r} is not served here; {served!r} is",
        param="model",
        code="model_not_found",
    )


def check_prompt_count(exchange: Exchange, value: Any, name: str) -> None:
    """Raises ApiError for a list of more texts or id lists than one request may have."""
    most = exchange.service.args.max_prompts_per_request
    if isinstance(value, list) and len(value) > most and isinstance(value[0], str | list):
        raise ApiError(
            400,
            f"{name} holds {len(value)} prompts; at most {most} are allowed (--max-prompts-per-request)",
            param=name,
        )


def check_ids_count(exchange: Exchange, value: Any, name: str) -> None:
    """Raises ApiError for ids beyond the context length, before anybody looks at each of them."""
    if not isinstance(value, list):
        return
    longest = exchange.service.serving.replica.tokenizer_manager.limits.context_length
    for ids in value if value and isinstance(value[0], list) else [value]:
        if isinstance(ids, list) and len(ids) > longest and not isinstance(ids[0], str):
            raise ApiError(
                400,
                f"{name} has {len(ids)} ids, but the model's context length is {longest}. Shorten the prompt.",
                param=name,
                code="context_length_exceeded",
            )


def finish_word(finish: FinishReason | None) -> str | None:
    """OpenAI's finish_reason. "abort" is not one of OpenAI's: an operator ended the request, and no other word is true."""
    return None if finish is None else finish.type


GOES_ON: Mapping[str, Any] = MappingProxyType({"finish_reason": None})
"""Of a choice in a chunk before its last."""


def ending(finish: FinishReason | None) -> dict[str, Any]:
    """The fields of a finished choice that say how it ended."""
    matched = finish.matched if finish is not None and finish.type == "stop" else None
    return {"finish_reason": finish_word(finish), "matched_stop": matched}


def usage(states: Sequence[ReqState]) -> dict[str, Any]:
    """Of finished requests, together. A prompt counts once, however many answers it has."""
    prompts = [state for state in states if state.choice == 0]
    prompt = sum(state.prompt_tokens for state in prompts)
    completion = sum(len(state.output_ids) for state in states)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(state.cached_tokens for state in prompts)},
    }
