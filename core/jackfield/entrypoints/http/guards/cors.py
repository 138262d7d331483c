"""Which pages of other origins a browser may let use the server (CORS). Knows origins and headers, no routes.

Off unless --cors-origin names an origin. The answer to a preflight says what a page may send, and asks for no key, as browsers
send none with it; the request that follows needs its key as any other. Admin routes are for no page of another origin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

ANY = "*"
METHODS = b"GET, HEAD, POST, PUT, DELETE"
SHOWN_HEADERS = b"x-request-id, request-id, retry-after"
PREFLIGHT_SECONDS = b"600"

_HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~ ,-]{1,1024}")

Headers = list[tuple[bytes, bytes]]


class Cors:
    """origins: as in ServerArgs, which has checked them; "*" is any."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = ANY in origins
        self._origins = frozenset(origins)

    def headers(self, headers: Mapping[str, str], *, admin: bool) -> Headers:
        """What every answer to this request has, refusals too, so that the page may read them."""
        if not self._origins:
            return []
        origin = self._allowed(headers, admin)
        if origin is None:
            return [(b"vary", b"origin")]
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", SHOWN_HEADERS),
            (b"vary", b"origin"),
        ]

    def preflight(self, method: str, headers: Mapping[str, str], *, admin: bool) -> Headers | None:
        """The headers of the answer (204) to a preflight of a page that may use the route; None: it is none."""
        if (
            method != "OPTIONS"
            or "access-control-request-method" not in headers
            or self._allowed(headers, admin) is None
        ):
            return None
        made = [(b"access-control-allow-methods", METHODS), (b"access-control-max-age", PREFLIGHT_SECONDS)]
        wanted = headers.get("access-control-request-headers", "")
        if _HEADER_NAMES.fullmatch(wanted):
            # Which header carries the key differs between clients, and what others mean is the routes' affair.
            made.append((b"access-control-allow-headers", wanted.encode("ascii")))
        if headers.get("access-control-request-private-network") == "true":
            # A page on the internet, and a server on the loopback: browsers ask once more.
            made.append((b"access-control-allow-private-network", b"true"))
        return made

    def _allowed(self, headers: Mapping[str, str], admin: bool) -> bytes | None:
        origin = headers.get("origin")
        if origin is None or admin:
            return None
        if self._any:
            return b"*"
        return origin.encode("latin-1") if origin in self._origins else None
