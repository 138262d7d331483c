"""`jackfield why ID`: what became of a request, from a running server or from a file that the observer `jsonl` wrote."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.cli.output import print_json
from jackfield.managers.errors import RequestError
from jackfield.managers.story import life_story, story

DEFAULT_URL = "http://127.0.0.1:30000"

KEY_VARIABLES = ("JACKFIELD_ADMIN_API_KEY", "JACKFIELD_API_KEY")
"""Where a key is looked for when none is given; the server reads the same."""

SECONDS = 30.0
"""Longest wait for an answer."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "why",
        help="tell what became of a request, and why",
        description="Tell what became of a request: what it waited for, when it ran, how it ended.",
    )
    parser.add_argument("id", help="the id in its answer, the rid or the X-Request-Id that was sent with it")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--url", help=f"the server's address (default: {DEFAULT_URL})")
    source.add_argument("--record", type=Path, metavar="FILE", help="a lives.jsonl of the observer jsonl")
    parser.add_argument("--api-key", help=f"a key for admin routes (default: {' or '.join(KEY_VARIABLES)})")
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def run(namespace: argparse.Namespace) -> int:
    try:
        found, told = _found(namespace)
    except RequestError as error:
        if namespace.debug:
            raise
        # Nothing failed here, so that there is no traceback worth asking for.
        print(f"jackfield: {error.message}", file=sys.stderr)
        return 1
    if namespace.json:
        print_json({name: value for name, value in found.items() if name != "story"})
    else:
        print("\n".join(told))
    return 0


def _found(namespace: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """What is known of the requests of this id, and the same in words."""
    if namespace.record is not None:
        found = _recorded(namespace.record, namespace.id)
        return found, [line for life in found["requests"] for line in [*life_story(life), ""]][:-1]
    key = namespace.api_key or next((os.environ[name] for name in KEY_VARIABLES if os.environ.get(name)), None)
    found = _asked(namespace.url or DEFAULT_URL, namespace.id, key)
    return found, story(found, namespace.id)


def _recorded(path: Path, name: str) -> dict[str, Any]:
    """Raises ConfigurationError for a file that cannot be read, RequestError if the request is not in it."""
    lives = []
    count = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    life = json.loads(line)
                except ValueError:
                    life = None
                if isinstance(life, dict) and life.get("event") in ("started", "stopped", "stack_changed"):
                    continue  # of the process that wrote it, or of its stack
                if not isinstance(life, dict) or not isinstance(life.get("events"), list):
                    raise ConfigurationError(f"why: line {number} of {path} is no record of a request's life")
                count += 1
                if name in (life["id"], *life["also_known_as"]):
                    lives.append(life)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"why: {path} cannot be read: {error}") from error
    if not lives:
        raise RequestError(
            f"no request {name!r} is in {path}, which holds {count} that ended (those that were open are not written)",
            status_code=404,
        )
    return {"requests": lives}


def _asked(url: str, name: str, key: str | None) -> dict[str, Any]:
    """Raises ConfigurationError for an address that is none, RequestError with the server's own words."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ConfigurationError(f"why: --url {url!r} is no address such as {DEFAULT_URL}")
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    address = f"{url.rstrip('/')}/requests/{urllib.parse.quote(name, safe='')}/why"
    # Without the proxies of the environment: they know no server of this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(address, headers=headers), timeout=SECONDS) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        raise RequestError(_words(error), status_code=error.code) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise RequestError(f"no server answers at {url}: {reason}", status_code=503) from error
    told: dict[str, Any] = json.loads(body)
    return told


def _words(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the server answered {error.code} {error.reason}; is it a Jackfield server?"
