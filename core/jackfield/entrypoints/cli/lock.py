"""`jackfield lock`: writes down what a run with these flags is made of, for `--locked`. Starts nothing, imports no plugin."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.config.flags import add_server_args, parse_server_args
from jackfield.entrypoints.cli.explain import resolution_of
from jackfield.stack.discovery.scan import discover
from jackfield.stack.lock import SHORT, lock_document, lock_text

STDOUT = "-"


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "lock",
        help="write down what a run is made of, so that --locked refuses anything else",
        description="Write down the core, the plugins with their contents and options, and what was resolved for a run with "
        "these flags. A start with --locked FILE refuses everything else and tells what differs.",
    )
    parser.add_argument("--output", metavar="FILE", help="where to write it; -, the default: standard output")
    add_server_args(parser)


def run(namespace: argparse.Namespace) -> int:
    if namespace.output == "":
        raise ConfigurationError(f"lock: --output is empty; name a file, or {STDOUT} for standard output")
    args, provenance = parse_server_args(namespace, os.environ)
    # An older lock, named in a stack file for the runs, must not keep it from being renewed.
    explained = resolution_of(args.model_copy(update={"locked": None}), provenance, discover(files=args.plugin))
    if explained.facts is None:
        raise ConfigurationError(
            "lock: the model is not on this machine, so a part of the stack is open; fetch it, or name a local one"
        )
    document = lock_document(explained.resolution, explained.facts)
    text = lock_text(document)
    if namespace.output in (None, STDOUT):
        sys.stdout.write(text)
        return 0
    try:
        Path(namespace.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"lock: {namespace.output} cannot be written: {error.strerror}") from error
    print(f"stack {document['stack_hash'][:SHORT]} is locked in {namespace.output}", file=sys.stderr)
    return 0
