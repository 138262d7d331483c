"""`jackfield generate`: one prompt, a text or token ids, answered on stdout as it comes or as one JSON document; everything else
goes to stderr."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.config.flags import add_server_args, parse_server_args
from jackfield.entrypoints.cli.output import print_json

# Flag -> the sampling parameter's name and type; the names are SGLang's, so nothing is translated twice.
_SAMPLING: dict[str, tuple[str, type, str]] = {
    "--max-new-tokens": ("max_new_tokens", int, "most tokens to generate (default 128)"),
    "--temperature": ("temperature", float, "0 is greedy (default: the model's own, else 1)"),
    "--top-p": ("top_p", float, "nucleus sampling, in (0, 1]"),
    "--top-k": ("top_k", int, "sample from the k likeliest tokens; -1 or 0: off"),
    "--min-p": ("min_p", float, "drop tokens below this share of the likeliest one's probability"),
    "--seed": ("seed", int, "seed of this request's draws"),
}


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "generate",
        help="answer one prompt with a model",
        description="Answer one prompt: the text streams to stdout, everything else goes to stderr.",
        allow_abbrev=False,
    )
    parser.add_argument("prompt", metavar="TEXT", nargs="?", help="the prompt; - reads it from standard input")
    group = parser.add_argument_group("generation")
    group.add_argument(
        "--chat", action="store_true", help="send the text as a user's turn through the model's chat template"
    )
    group.add_argument(
        "--input-ids",
        metavar="IDS",
        help="the prompt as token ids instead of TEXT: 1,2,3 or [1,2,3]; - reads them from standard input",
    )
    group.add_argument(
        "--json",
        action="store_true",
        help="write the answer with its ids, counts and times as one JSON document at the end",
    )
    for flag, (name, kind, text) in _SAMPLING.items():
        group.add_argument(flag, dest=name, type=kind, metavar=kind.__name__.upper(), help=text)
    group.add_argument("--stop", action="append", metavar="TEXT", help="end the answer before this text (repeatable)")
    group.add_argument("--ignore-eos", action="store_true", help="do not stop at the model's end token")
    group.add_argument("--quiet", action="store_true", help="no summary on stderr")
    add_server_args(parser)
    return parser


def run(namespace: argparse.Namespace) -> int:
    from jackfield.managers.fields.limits import RequestLimits
    from jackfield.managers.fields.sampling_checks import MAX_COUNT
    from jackfield.managers.fields.sampling_params import make_sampling_params

    args, provenance = parse_server_args(namespace, os.environ)
    if provenance.get("throughput_log_interval") == "default":
        # The answer streams to the same terminal; the summary at the end has the rates.
        args = args.model_copy(update={"throughput_log_interval": 0})
    given = _prompt(namespace)
    sampling: dict[str, Any] = {
        name: getattr(namespace, name) for name, _, _ in _SAMPLING.values() if getattr(namespace, name) is not None
    }
    if namespace.stop:
        sampling["stop"] = namespace.stop
    if namespace.ignore_eos:
        sampling["ignore_eos"] = True
    # Refused before the model is loaded, which takes seconds. Only the model's vocabulary is not known yet.
    if args.skip_tokenizer_init and not (namespace.json and "input_ids" in given):
        raise ConfigurationError(
            "generate needs the model's tokenizer: leave out --skip-tokenizer-init, or give --input-ids and --json"
        )
    make_sampling_params(sampling, defaults={}, vocab_size=MAX_COUNT, limits=RequestLimits.of(args))
    # The engine is imported here, so that `jackfield --help` and `plugins list` do not pay for it.
    from jackfield.entrypoints.starting import collector_paused

    with collector_paused():
        from jackfield.entrypoints.engine import Engine

        started = Engine.from_server_args(args, provenance)
    with started as engine:
        if not namespace.quiet:
            _tell_stack(engine)
        if namespace.chat:
            given = {"input_ids": engine.apply_chat_template([{"role": "user", "content": given["prompt"]}])}
        if namespace.json:
            print_json(engine.generate(sampling_params=sampling, **given))
            return 0
        answer = None
        shown = 0
        try:
            for answer in engine.generate(sampling_params=sampling, stream=True, **given):
                sys.stdout.write(answer["text"][shown:])
                sys.stdout.flush()
                shown = len(answer["text"])
        except KeyboardInterrupt:
            # What is then said on stderr begins a line of its own.
            sys.stdout.write("\n")
            sys.stdout.flush()
            raise
        sys.stdout.write("\n")
        sys.stdout.flush()
        if answer is not None and not namespace.quiet:
            _tell_summary(answer["meta_info"])
    return 0


def _prompt(namespace: argparse.Namespace) -> dict[str, Any]:
    """The argument of `Engine.generate`. Raises ConfigurationError."""
    if (namespace.prompt is None) == (namespace.input_ids is None):
        raise ConfigurationError("generate: give TEXT or --input-ids, one of the two")
    if namespace.prompt is not None:
        return {"prompt": sys.stdin.read() if namespace.prompt == "-" else namespace.prompt}
    if namespace.chat:
        raise ConfigurationError("generate: --chat makes ids of a text; it cannot go with --input-ids")
    text = sys.stdin.read() if namespace.input_ids == "-" else namespace.input_ids
    try:
        ids = json.loads(text if text.strip().startswith("[") else f"[{text}]")
    except ValueError:
        ids = None
    if not isinstance(ids, list) or not all(type(token) is int for token in ids):
        raise ConfigurationError(f"generate: --input-ids are whole numbers such as 1,2,3 or [1,2,3], not {text[:80]!r}")
    return {"input_ids": ids}


def _tell_stack(engine: Any) -> None:
    info = engine.get_server_info()
    stack, seed = info["stack"], info["args"]["random_seed"]
    plugins = "  ".join(f"{plugin['kind']}={plugin['instance']}" for plugin in stack["plugins"])
    print(f"{engine.model_name} | {plugins} | stack {stack['hash'][:12]} | seed {seed}", file=sys.stderr, flush=True)


def _tell_summary(meta: dict[str, Any]) -> None:
    times = meta["stage_times"]
    made = meta["completion_tokens"]
    parts = [
        f"{_count(meta['prompt_tokens'], 'prompt token')} ({meta['cached_tokens']} cached) in {times['prefill']:.2f} s",
        _count(made, "new token"),
    ]
    if made > 1 and times["decode"] > 0:
        parts.append(f"{(made - 1) / times['decode']:.1f} tokens/s")
    finish = meta["finish_reason"]
    parts.append(
        f"ended by {finish['type']}" + (f" ({finish['matched']!r})" if finish.get("matched") is not None else "")
    )
    print(" | ".join(parts), file=sys.stderr)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
