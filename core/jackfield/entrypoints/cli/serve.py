"""`jackfield serve`: the HTTP server. One line on stdout says when and where it is up; everything else goes to stderr."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from jackfield.config.flags import add_server_args, parse_server_args

SERVING = "the default of `jackfield serve`"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "serve",
        help="serve a model over HTTP",
        description="Serve a model over HTTP: OpenAI's routes and SGLang's.",
        allow_abbrev=False,
    )
    add_server_args(parser)
    return parser


def run(namespace: argparse.Namespace) -> int:
    args, provenance = parse_server_args(namespace, os.environ)
    # Imported here, so that a refused flag is told without waiting for them.
    import asyncio

    from jackfield.entrypoints.http.routing.rules import check_plugin_routes
    from jackfield.entrypoints.http.server import CannotListen, Server, bind
    from jackfield.entrypoints.launcher import launch
    from jackfield.entrypoints.plan import with_topology

    args, provenance = with_topology(args, provenance, "processes", SERVING)
    try:
        sock = bind(args.host, args.port)
    except CannotListen as error:
        print(f"jackfield: {error}", file=sys.stderr)
        return 1

    async def serve() -> int:
        return await Server(args, lambda: launch(args, provenance, on_routes=check_plugin_routes)).run(sock)

    with sock:
        return asyncio.run(serve())
