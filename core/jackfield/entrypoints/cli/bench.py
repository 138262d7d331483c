"""`jackfield bench offline|serve|compare`: the actions, each in a module of its own that is imported when it is chosen."""

from __future__ import annotations

import argparse
import importlib
from typing import Any

from jackfield.config.argument_parser import ArgumentParser

ACTIONS = {
    "offline": "jackfield.entrypoints.cli.bench_offline",
    "serve": "jackfield.entrypoints.cli.bench_serve",
    "compare": "jackfield.entrypoints.cli.bench_compare",
}


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "bench",
        help="measure a stack or a server, and compare what was measured",
        description="Measure: `offline` a stack in this process, `serve` any OpenAI endpoint over HTTP; and `compare` what was "
        "measured.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=ArgumentParser)
    for module in ACTIONS.values():
        importlib.import_module(module).add_parser(actions)


def run(namespace: argparse.Namespace) -> int:
    code: int = importlib.import_module(ACTIONS[namespace.action]).run(namespace)
    return code
