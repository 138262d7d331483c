"""`jackfield chat`: talk to a model in the terminal, in this process or on a server (--url).

On a terminal answers stream as rendered Markdown, and lines that begin with / are commands. When standard input is no terminal,
each line is a question and the answers are plain text, for scripts.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jackfield.config.errors import ConfigurationError
from jackfield.config.flags import add_server_args, parse_server_args
from jackfield.entrypoints.cli.chat_commands import Chat
from jackfield.entrypoints.cli.chat_conversation import Conversation

if TYPE_CHECKING:
    from jackfield.config.server_args import ServerArgs
    from jackfield.entrypoints.cli.chat_backend import Backend

WITH_URL = ("api_key", "served_model_name", "debug", "log_level")
"""Settings of a run that mean something for a chat with a server."""

HISTORY = "~/.local/state/jackfield/chat_history"


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "chat",
        help="talk to a model in the terminal",
        description="Talk to a model in the terminal, with a stack of plugins in this process or with a server (--url). /help "
        "tells of the commands. Without a terminal each line of standard input is a question.",
        allow_abbrev=False,
    )
    group = parser.add_argument_group("chat")
    group.add_argument(
        "--url", help="talk to the server at this address, over OpenAI's routes, with --api-key if it wants one"
    )
    group.add_argument("--system", metavar="TEXT", help="begin with these instructions for the model")
    group.add_argument("--load", type=Path, metavar="FILE", help="go on with a conversation that /save wrote")
    group.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of generation (repeatable), as /params",
    )
    group.add_argument("--plain", action="store_true", help="show answers as they come, without colours or Markdown")
    group.add_argument("--quiet", action="store_true", help="no numbers after an answer")
    group.add_argument(
        "--history",
        metavar="FILE",
        default=HISTORY,
        help=f"where your lines are remembered; none: nowhere (default: {HISTORY})",
    )
    add_server_args(parser)
    return parser


def run(namespace: argparse.Namespace) -> int:
    args, provenance = parse_server_args(namespace, os.environ)
    conversation = Conversation()
    if namespace.load is not None:
        conversation.load(namespace.load)
    if namespace.system is not None:
        conversation.system = namespace.system
    if namespace.url is not None:
        _refuse_settings(provenance)
    from jackfield.entrypoints.cli.chat_params import Params
    from jackfield.managers.fields.limits import RequestLimits

    params = Params(remote=namespace.url is not None, limits=RequestLimits.of(args))
    for written in (*conversation.params, *namespace.param):
        params.set(written)
    backend = _backend(namespace, args, provenance)
    try:
        chat = Chat(backend, conversation, params)
        if sys.stdin.isatty() and sys.stdout.isatty():
            from jackfield.entrypoints.cli.chat_terminal import on_a_terminal

            history = None if namespace.history == "none" else Path(namespace.history).expanduser()
            return on_a_terminal(chat, plain=namespace.plain, quiet=namespace.quiet, history=history)
        from jackfield.entrypoints.cli.chat_pipe import through_a_pipe

        return through_a_pipe(chat, sys.stdin, sys.stdout, quiet=namespace.quiet)
    finally:
        backend.close()


def _backend(namespace: argparse.Namespace, args: ServerArgs, provenance: Mapping[str, str]) -> Backend:
    if namespace.url is not None:
        from jackfield.entrypoints.cli.chat_remote import RemoteBackend

        return RemoteBackend(namespace.url, args.api_key, args.served_model_name)
    if args.skip_tokenizer_init:
        raise ConfigurationError("chat needs the model's tokenizer: leave out --skip-tokenizer-init")
    # Its messages would stand between question and answer.
    quiet = {"throughput_log_interval": 0, "log_level": "warning"}
    quiet = {name: value for name, value in quiet.items() if provenance.get(name, "default") == "default"}
    if sys.stderr.isatty():
        print(f"loading {args.model_path or 'the embedded model'} ...", file=sys.stderr, flush=True)
    # Imported here, so that a refused flag is told without waiting for it.
    from jackfield.entrypoints.cli.chat_local import LocalBackend

    return LocalBackend(args.model_copy(update=quiet), provenance)


def _refuse_settings(provenance: Mapping[str, str]) -> None:
    """What the line says of a run is meant for the server, and would be ignored here."""
    lost = sorted(
        f"--{name.replace('_', '-')}"
        for name, source in provenance.items()
        if name not in WITH_URL and source.startswith("--")
    )
    if lost:
        raise ConfigurationError(
            f"chat --url talks to a server that has its own settings: leave out {', '.join(lost)}, or give them to "
            "`jackfield serve`"
        )
