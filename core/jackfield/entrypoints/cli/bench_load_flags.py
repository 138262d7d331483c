"""The flags of `jackfield bench serve` that say what is asked and when."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.bench.asks import Length
from jackfield.entrypoints.bench.loads import BURSTS, CLOSED, POISSON, TRACE, Load
from jackfield.entrypoints.cli.bench_flags import number, whole


def add_load(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("load (several, with commas, are measured one after the other)")
    one = group.add_mutually_exclusive_group()
    one.add_argument(
        "--concurrency", type=_several(whole(1)), metavar="N[,N...]", help="requests open at any time (default 1)"
    )
    one.add_argument(
        "--request-rate", type=_several(_above_zero), metavar="R[,R...]", help="requests a second, at random (Poisson)"
    )
    one.add_argument(
        "--bursts", type=_several(_burst), metavar="N@S[,N@S...]", help="N requests at once, every S seconds"
    )
    one.add_argument(
        "--trace",
        metavar="FILE",
        help="JSONL: each line has arrival_s and a prompt, messages or prompt_tokens, perhaps new_tokens",
    )
    group.add_argument(
        "--trace-speed",
        type=_several(_above_zero),
        metavar="X[,X...]",
        help="a trace so many times as fast (default 1)",
    )
    group.add_argument(
        "--requests",
        type=whole(1),
        metavar="N",
        help="of a round (default: all of a file; else twice as many as are open at once, four bursts, or those of 20 seconds, "
        "and at least 16)",
    )
    group = parser.add_argument_group("prompts")
    group.add_argument(
        "--prompt-tokens", type=_length, default=Length(256, 256), metavar="N|LOW:HIGH", help="default 256"
    )
    group.add_argument("--new-tokens", type=_length, default=Length(128, 128), metavar="N|LOW:HIGH", help="default 128")
    group.add_argument(
        "--shared-prefix-tokens", type=whole(0), default=0, metavar="N", help="that all prompts of a round begin with"
    )
    group.add_argument(
        "--dataset",
        metavar="FILE",
        help="prompts from a file instead: as --trace, without arrival_s; same in each round",
    )
    group.add_argument(
        "--send",
        choices=("ids", "text"),
        help="token ids, or texts made of them by the server's tokenizer (default: ids, but for openai-chat)",
    )
    group.add_argument("--vocab-size", type=whole(2), metavar="N", help="ids below it (default 45000)")


def loads_of(namespace: argparse.Namespace) -> list[Load]:
    """Raises ConfigurationError."""
    if namespace.trace_speed is not None and namespace.trace is None:
        raise ConfigurationError("bench serve: --trace-speed goes with --trace FILE")
    if namespace.trace is not None and namespace.dataset is not None:
        raise ConfigurationError("bench serve: --trace has prompts of its own; leave --dataset out")
    if namespace.api == "openai-chat" and namespace.send == "ids":
        raise ConfigurationError(
            "bench serve: openai-chat takes texts; leave --send out, or take --api openai-completions"
        )
    if namespace.request_rate is not None:
        return [Load(mode=POISSON, value=rate) for rate in namespace.request_rate]
    if namespace.bursts is not None:
        return [Load(mode=BURSTS, value=size, every_s=every) for size, every in namespace.bursts]
    if namespace.trace is not None:
        return [Load(mode=TRACE, value=speed) for speed in namespace.trace_speed or (1.0,)]
    return [Load(mode=CLOSED, value=streams) for streams in namespace.concurrency or (1,)]


def _several(read: Callable[[str], Any]) -> Callable[[str], Sequence[Any]]:
    def all_of(text: str) -> Sequence[Any]:
        return [read(part) for part in text.split(",")]

    all_of.__name__ = "list"
    return all_of


def _above_zero(text: str) -> float:
    value: float = number(0)(text)
    if value == 0:
        raise argparse.ArgumentTypeError("0 is not above 0")
    return value


def _burst(text: str) -> tuple[int, float]:
    size, at, every = text.partition("@")
    if not at:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form N@S, such as 16@2.5")
    return whole(1)(size), number(0)(every)


def _length(text: str) -> Length:
    try:
        return Length.read(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no count of 1 or more, nor a range LOW:HIGH of such") from None
