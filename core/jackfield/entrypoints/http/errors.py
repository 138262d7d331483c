"""Every error that leaves the server has one shape, OpenAI's: {"error": {message, type, param, code}}, with the status beside.

What the runtime raises is translated here. An unexpected error is told in fixed words; what it was stands in the log.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from http import HTTPStatus

import pydantic

from jackfield.config.problems import plain_words
from jackfield.entrypoints.calls import ReplicaFailed, ShutDown
from jackfield.entrypoints.plugin_routes import RouteFault
from jackfield.hookspecs import RouteError
from jackfield.managers.errors import RequestError, shown

log = logging.getLogger(__name__)

INTERNAL = "The server had an error while it processed the request. The log of the server says more."
GONE = "The model runtime has stopped."
RETRY_AFTER = {"retry-after": "1"}

ApiError = RouteError
"""The one error type, under the name that the core has for it."""


def unavailable(message: str, code: str) -> ApiError:
    """503: not now; a later attempt may succeed."""
    return ApiError(503, message, code=code, headers=RETRY_AFTER)


def api_error(error: BaseException, names: Mapping[str, str] | None = None) -> ApiError:
    """What a client is told of `error`. names: the runtime's name of a field -> the name that this route has for it."""
    match error:
        case ApiError():
            return error
        case RequestError():
            return _from_request_error(error, names or {})
        case ReplicaFailed():
            log.error("a request ended with the replica: %s", error)
            return ApiError(500, GONE, code="replica_failed")
        case ShutDown():
            return unavailable("the server is shutting down", "draining")
        case RouteFault():
            # The ledger of plugin faults has logged what it was.
            return ApiError(500, INTERNAL, code="plugin_failed")
        case pydantic.ValidationError():
            return _from_validation_error(error)
    log.error("a request ended in an unexpected error", exc_info=error)
    return ApiError(500, INTERNAL, code="internal_error")


def _from_request_error(error: RequestError, names: Mapping[str, str]) -> ApiError:
    if error.status_code == 503:
        return ApiError(503, error.message, param=error.param, code=error.code, headers=RETRY_AFTER)
    if error.status_code >= 500:
        log.error("a request failed in the runtime: %s", error.message)
        return ApiError(error.status_code, INTERNAL, code="internal_error")
    message, param = error.message, error.param
    for inner, outer in names.items():
        # "prompt" is a word of the sentence too; "input_ids" can only be the field.
        message = re.sub(rf"\b{inner}\b" if "_" in inner else rf"^{inner}\b", outer, message)
        param = re.sub(rf"^{inner}\b", outer, param) if param is not None else None
    return ApiError(error.status_code, message, param=param, code=error.code or _code(error.status_code))


def _code(status: int) -> str:
    return HTTPStatus(status).phrase.lower().replace(" ", "_").replace("-", "_")


def _from_validation_error(error: pydantic.ValidationError) -> ApiError:
    """The first finding, under the field's path as a client writes it."""
    found = error.errors(include_url=False, include_input=False)[0]
    param = field_path(found["loc"])
    kind = found["type"]
    if kind == "missing":
        text = f"{param} is missing"
    elif kind == "extra_forbidden":
        text = f"there is no field {param or shown(found['loc'][-1])} here"
    elif kind == "value_error":
        text = f"{param}: {found['ctx']['error']}" if param else str(found["ctx"]["error"])
    else:
        said = plain_words(found, table="an object")
        text = f"{param}: {said}".removeprefix(": ")
    return ApiError(400, text, param=param or None, code="invalid_value")


def field_path(location: tuple[int | str, ...]) -> str:
    """("messages", 0, "content") -> "messages[0].content"; the names of a union's arms are left out."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier():
            path += f".{part}" if path else part
    return path[:200]
