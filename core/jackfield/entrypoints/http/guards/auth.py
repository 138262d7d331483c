"""Who may call what. Knows keys and levels, no routes.

Policies
  scheme        `Authorization: Bearer KEY`; the scheme's case does not count (RFC 9110), the key's does, one header only. Or
                `x-api-key: KEY`, as Anthropic's clients send it. Both: they must say the same
  the API key   opens everything but the admin routes
  the admin key opens everything. With --api-key alone the admin routes are closed: one key must not open them; with
                --admin-api-key alone the others are open; with neither everything is open
  refusals      401 without a valid key, 403 for a valid key that is not an admin's
  OPTIONS       is a method like any other, but for the preflights that `cors` answers
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.http.errors import ApiError
from jackfield.hookspecs import RouteLevel


class Keys:
    """None: no such key is configured."""

    def __init__(self, api_key: str | None, admin_api_key: str | None) -> None:
        if api_key == "" or admin_api_key == "":
            raise ValueError("an empty key would let everybody in")
        self._api = None if api_key is None else api_key.encode()
        self._admin = None if admin_api_key is None else admin_api_key.encode()

    def check(self, level: RouteLevel, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """headers: lower-case names. Raises ApiError 401 or 403."""
        if level is RouteLevel.OPEN or (self._api is None and self._admin is None):
            return
        if level is RouteLevel.KEY and self._api is None:
            return
        given = _given(list(headers))
        # Both are always compared, so that the time says nothing about which of them was nearly right.
        is_api = _same(given, self._api)
        is_admin = _same(given, self._admin)
        if is_admin or (is_api and level is RouteLevel.KEY):
            return
        if is_api:
            text = "this key may not use admin routes"
            if self._admin is None:
                text += "; they are closed until the server is started with --admin-api-key"
            raise ApiError(403, text, type="permission_error", code="admin_key_required")
        raise ApiError(
            401,
            "a valid key is needed: Authorization: Bearer KEY, or x-api-key: KEY",
            type="authentication_error",
            code="invalid_api_key",
            headers={"www-authenticate": "Bearer"},
        )


def owner_of(headers: Mapping[str, str]) -> bytes:
    """Which key a request came with, so that what one has made can be kept from others; without a key all are one. headers:
    of a request that was let in; lower-case names."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return hashlib.sha256(_given(raw)).digest()


LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Hosts:
    """By which names a server may be addressed.

    A page in the operator's browser can make a name of its own point to this machine, and so pass the browser's rule of one
    origin; it cannot choose the Host header. It matters only where being on this machine is all that is asked for: on the
    loopback, without a key.
    """

    def __init__(self, args: ServerArgs) -> None:
        self._any = args.host not in LOOPBACK or args.api_key is not None or "*" in args.allowed_host
        self._names = {"localhost", *(name.lower() for name in args.allowed_host)}

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises ApiError 400."""
        if self._any:
            return
        name = _host_name(headers.get("host", ""))
        if name in self._names or _is_address(name):
            return
        raise ApiError(
            400,
            f"this server is not known as {name[:200]!r}; if it should be, start it with --allowed-host, or with a key",
            param="Host",
            code="unknown_host",
        )


def _host_name(host: str) -> str:
    """Without the port and an IPv6 address's brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _given(headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The key that was sent; b"" if there is none, or if there are several that differ."""
    keys = [_bearer(value) for name, value in headers if name == b"authorization"]
    plain = [value.strip(b" ") for name, value in headers if name == b"x-api-key"]
    if len(keys) > 1 or len(plain) > 1 or len({*keys, *plain}) != 1:
        return b""
    return (keys or plain)[0]


def _bearer(value: bytes) -> bytes:
    """b"" for another scheme."""
    scheme, _, key = value.partition(b" ")
    return key.strip(b" ") if scheme.lower() == b"bearer" else b""


def _same(given: bytes, key: bytes | None) -> bool:
    # Without a key the comparison is done all the same, and its result dropped.
    return hmac.compare_digest(given, key or b"\0") and key is not None
