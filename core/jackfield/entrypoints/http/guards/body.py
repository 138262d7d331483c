"""From the bytes of a request to its checked model, with every ceiling before the allocation that it guards.

Bytes are counted as they come, so that a body that lies about its length, or states none, is cut off all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from jackfield.entrypoints.http.errors import ApiError
from jackfield.managers.fields.nesting import measured


class ClientGone(Exception):
    """The client closed the connection before it had its answer."""


async def read_body(headers: Mapping[str, str], receive: Any, limit: int, seconds: float) -> bytes:
    """Raises ApiError 413, 400, or 408 after so many seconds, and ClientGone. Until then it holds one of
    --max-concurrent-requests, which so bounds the memory of bodies, too."""
    stated = headers.get("content-length")
    if stated is not None and stated.isdecimal() and (len(stated) > 18 or int(stated) > limit):
        raise _too_long(limit)
    chunks, length = [], 0
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                chunk = message.get("body", b"")
                length += len(chunk)
                if length > limit:
                    raise _too_long(limit)
                chunks.append(chunk)
                if not message.get("more_body", False):
                    return b"".join(chunks)
    except TimeoutError:
        raise ApiError(
            408, f"the body did not arrive within {seconds:g} s (--receive-timeout)", code="request_timeout"
        ) from None


def parse_json(headers: Mapping[str, str], body: bytes, max_depth: int, max_values: int) -> dict[str, Any]:
    """The object in a JSON body. Raises ApiError 400."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            400,
            f"the body must be JSON with Content-Type: application/json, not {kind[:80]!r}",
            code="unsupported_media_type",
        )
    found = measured(body, max_depth, max_values)
    if found == "deep":
        raise ApiError(
            400, f"the body is nested deeper than {max_depth} levels (--max-json-depth)", code="json_too_deep"
        )
    if found == "many":
        raise ApiError(
            400, f"the body holds more than {max_values} values (--max-json-values)", code="json_too_many_values"
        )
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(400, f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object", code="invalid_json")
    return value


def _too_long(limit: int) -> ApiError:
    return ApiError(413, f"the body may have at most {limit} bytes (--max-request-bytes)", code="request_too_large")
