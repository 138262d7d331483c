"""`jackfield bench serve`: loads on any OpenAI endpoint, or on a server of our own that is started for it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from jackfield.config.errors import ConfigurationError
from jackfield.config.fields import facts_of
from jackfield.config.flags import STACK_DEST, add_server_args, flags_again, parse_server_args
from jackfield.config.server_args import SECRETS, ServerArgs
from jackfield.entrypoints.bench.token_ids import HIGH
from jackfield.entrypoints.cli.bench_flags import add_common, number, set_threads, whole
from jackfield.entrypoints.cli.bench_load_flags import add_load, loads_of

if TYPE_CHECKING:
    from jackfield.entrypoints.bench.asks import Ask
    from jackfield.entrypoints.bench.endpoint import Endpoint
    from jackfield.entrypoints.bench.loads import Load

APIS = ("openai-completions", "openai-chat", "sglang-generate")


def add_parser(actions: Any) -> None:
    parser = actions.add_parser(
        "serve",
        help="loads on any OpenAI endpoint",
        description="Measure an endpoint over HTTP as its clients see it: streams of greedy answers, under one load or several.",
    )
    group = parser.add_argument_group("endpoint")
    group.add_argument("--base-url", metavar="URL", help="of the server, such as http://127.0.0.1:30000")
    group.add_argument(
        "--start", action="store_true", help="start a server of our own with the flags of a run, and stop it behind"
    )
    group.add_argument("--api", choices=APIS, default=APIS[0], help=f"the protocol (default {APIS[0]})")
    group.add_argument("--model-name", metavar="NAME", help="in requests (default: the first that the server offers)")
    group.add_argument(
        "--no-ignore-eos",
        action="store_true",
        help="send no `ignore_eos`, which is an extension: answers may be shorter",
    )
    group.add_argument(
        "--extra-body", metavar="JSON", help="further fields of each request; null takes one of ours away"
    )
    group.add_argument(
        "--flush-cache", action="store_true", help="empty the prefix cache before each round, by POST /flush_cache"
    )
    group.add_argument(
        "--timeout", type=number(0.001), default=600.0, metavar="SECONDS", help="longest silence (default 600)"
    )
    add_load(parser)
    common = add_common(parser)
    common.add_argument("--repeat", type=whole(1), default=3, metavar="N", help="rounds of each load (default 3)")
    common.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of prompts and arrivals (default 0)")
    common.add_argument("--plot", metavar="FILE", help="draw the figures against the load; .png or .svg")
    group = parser.add_argument_group("goodput: requests a second that keep all of")
    for name, what in (("ttft", "to the first token"), ("tpot", "a token after it"), ("e2e", "to the end")):
        group.add_argument(f"--max-{name}-ms", type=number(0), metavar="MS", help=f"milliseconds {what}")
    add_server_args(parser)


def run(namespace: argparse.Namespace) -> int:
    from jackfield.entrypoints.bench.document import STDIO, check_writable, write

    _check(namespace)
    loads = loads_of(namespace)
    check_writable(namespace.json)
    check_writable(namespace.plot)
    if namespace.plot is not None:
        from jackfield.entrypoints.bench.plot import check_plot

        check_plot(namespace.plot)
    set_threads(namespace)
    # What a run's flags say is checked by the server; here only the key is needed.
    args, _ = parse_server_args(namespace, os.environ)
    told = _measured(namespace, loads, args.api_key, _given(namespace))
    if namespace.json != STDIO:
        from jackfield.entrypoints.cli.bench_serve_table import show

        show(told)  # first: what was measured is told even where the disk has become full
    if namespace.json is not None:
        write(told, namespace.json)
    if namespace.plot is not None:
        from jackfield.entrypoints.bench.plot import plot

        plot([told], namespace.plot)
    return 0 if any(one["completed"] for point in told["loads"] for one in point["rounds"]) else 1


def _check(namespace: argparse.Namespace) -> None:
    """Raises ConfigurationError."""
    if namespace.start == (namespace.base_url is not None):
        raise ConfigurationError(
            "bench serve: give --base-url URL for a server that runs, or --start for one of our own"
        )
    if not namespace.start:
        # --api-key is the client's too.
        names = [name for name in facts_of(ServerArgs) if name in namespace and name != "api_key"]
        flags = [facts_of(ServerArgs)[name].flag for name in names] + ["--stack"] * (STACK_DEST in namespace)
        flags += list(getattr(namespace, "option_words", ()))[:1]
        if flags:
            raise ConfigurationError(
                f"bench serve: {flags[0]} is a setting of a server, and the one at --base-url runs already; it goes with --start"
            )


def _given(namespace: argparse.Namespace) -> list[Ask] | None:
    """The requests of a file, before a server is started for them; None where all are made."""
    from jackfield.entrypoints.bench.asks import read

    file, seed, vocab_size = namespace.dataset or namespace.trace, namespace.seed, namespace.vocab_size or HIGH
    if file is None:
        return None
    asks = read(file, namespace.new_tokens, seed, vocab_size, timed=namespace.trace is not None)
    if namespace.requests is not None and namespace.requests > len(asks):
        raise ConfigurationError(
            f"bench serve: {file} has {len(asks)} requests, and --requests is {namespace.requests}"
        )
    return asks[: namespace.requests]


def _measured(
    namespace: argparse.Namespace, loads: Sequence[Load], key: str | None, given: Sequence[Ask] | None
) -> dict[str, Any]:
    from jackfield.entrypoints.bench import serving
    from jackfield.entrypoints.bench.apis import APIS as PROTOCOLS
    from jackfield.entrypoints.bench.document import document
    from jackfield.entrypoints.bench.endpoint import Endpoint
    from jackfield.entrypoints.bench.load_figures import Limits
    from jackfield.entrypoints.bench.machine import machine_facts, settings
    from jackfield.entrypoints.bench.own_server import served
    from jackfield.entrypoints.bench.usage import peak_memory
    from jackfield.entrypoints.progress import StartProgress

    limits = Limits(ttft_ms=namespace.max_ttft_ms, tpot_ms=namespace.max_tpot_ms, e2e_ms=namespace.max_e2e_ms)
    extra = _extra(namespace)
    with ExitStack() as stack:
        url = namespace.base_url
        if namespace.start:
            url = stack.enter_context(served(*_child(namespace)))
        endpoint = Endpoint(url, key)
        stack.callback(endpoint.close)
        model = namespace.model_name or endpoint.first_model()
        facts = endpoint.facts()
        machine = machine_facts(namespace.wait, settings=settings(os.environ))
        target = serving.Target(
            base_url=endpoint.base_url,
            headers=endpoint.headers,
            api=PROTOCOLS[namespace.api],
            model=model,
            ignore_eos=not namespace.no_ignore_eos,
            extra=extra,
            timeout=namespace.timeout,
            ours=namespace.start,
            flush=endpoint.flush_cache if namespace.flush_cache else None,
        )
        with StartProgress(calm=True) as tell:
            points = serving.measure(
                target,
                loads,
                lambda load, round_number: _asks(namespace, given, endpoint, model, load, round_number),
                namespace.repeat,
                limits,
                namespace.seed,
                tell,
            )
        memory = peak_memory()
    return document(
        "serve",
        label=namespace.label,
        model=model,
        api=namespace.api,
        base_url=None if namespace.start else endpoint.base_url,
        workload={
            "prompt_tokens": str(namespace.prompt_tokens),
            "new_tokens": str(namespace.new_tokens),
            "shared_prefix_tokens": namespace.shared_prefix_tokens,
            "file": namespace.dataset or namespace.trace,
            "send": _sends(namespace),
            "seed": namespace.seed,
        },
        machine=machine,
        **facts,
        limits=limits.facts(),
        loads=points,
        peak_rss_mib=memory,
    )


def _child(namespace: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
    """Flags and environment of our own server: keys go where nobody sees them in a list of processes."""
    keys = {name: getattr(namespace, name) for name in SECRETS if name in namespace}
    without = argparse.Namespace(**{name: value for name, value in vars(namespace).items() if name not in keys})
    flags = flags_again(without)
    if "port" not in namespace:
        flags.append("--port=0")
    return flags, {facts_of(ServerArgs)[name].variable: key for name, key in keys.items()}


def _extra(namespace: argparse.Namespace) -> dict[str, Any]:
    import json

    try:
        extra = json.loads(namespace.extra_body or "{}")
    except ValueError as error:
        raise ConfigurationError(f"bench serve: --extra-body is no JSON: {error}") from None
    if not isinstance(extra, dict):
        raise ConfigurationError("bench serve: --extra-body is no JSON object")
    return extra


def _sends(namespace: argparse.Namespace) -> str:
    sends: str = namespace.send or ("text" if namespace.api == "openai-chat" else "ids")
    return sends


def _asks(
    namespace: argparse.Namespace,
    given: Sequence[Ask] | None,
    endpoint: Endpoint,
    model: str,
    load: Load,
    round_number: int,
) -> Sequence[Ask]:
    """The requests of one round. Where texts are sent, those made of ids go through the endpoint's own tokenizer."""
    from dataclasses import replace

    from jackfield.entrypoints.bench.asks import made

    asks = given
    if asks is None:
        count, shared = namespace.requests or load.requests, namespace.shared_prefix_tokens
        seed, vocab_size = namespace.seed, namespace.vocab_size or HIGH
        asks = made(count, round_number, namespace.prompt_tokens, namespace.new_tokens, shared, seed, vocab_size)
    if _sends(namespace) == "ids":
        return asks
    ids = {
        place: ask.prompt for place, ask in enumerate(asks) if type(ask.prompt) is list and type(ask.prompt[0]) is int
    }
    texts = dict(zip(ids, endpoint.texts(list(ids.values()), model), strict=True))
    return [replace(ask, prompt=texts.get(place, ask.prompt)) for place, ask in enumerate(asks)]
