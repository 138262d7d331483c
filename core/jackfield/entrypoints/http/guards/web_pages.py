"""Keeps pages in somebody's browser from using a route that changes the server. Knows headers, no routes.

A page can make a browser send a GET, or a POST without JSON, to any address that the browser reaches; it cannot keep the
browser from adding headers that tell where the request came from.
"""

from __future__ import annotations

from jackfield.entrypoints.http.errors import ApiError
from jackfield.entrypoints.http.exchange import Exchange

TELLING = ("origin", "referer", "sec-fetch-site")
"""Headers that a browser adds, and that other clients do not."""


def refuse_pages(exchange: Exchange) -> None:
    """Raises ApiError: 405 for a GET or HEAD of a browser, 403 for another method if a page of another origin sent it."""
    headers = exchange.headers
    if exchange.method in ("GET", "HEAD") and any(name in headers for name in TELLING):
        raise ApiError(
            405,
            f"this changes the server, and a link on a page must not: a browser has to send POST, not {exchange.method}",
            code="method_not_allowed",
            headers={"allow": "POST"},
        )
    origin = headers.get("origin")
    foreign = origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower()
    if foreign or headers.get("sec-fetch-site") == "cross-site":
        raise ApiError(
            403, "a page of another origin may not use this route", type="permission_error", code="cross_site"
        )
