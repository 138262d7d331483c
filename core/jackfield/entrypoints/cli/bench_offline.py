"""`jackfield bench offline`: a workload on an engine in this process, or, for `first`, on processes that are started for it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from typing import Any

from jackfield.config.flags import add_server_args, flags_again, parse_server_args
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.bench.workloads import MOST_ROUNDS, START, WORKLOADS, Workload, workload
from jackfield.entrypoints.cli.bench_flags import add_common, number, set_threads, whole
from jackfield.entrypoints.cli.output import print_table

SHAPE = ("requests", "prompt_tokens", "new_tokens", "shared_prefix_tokens")


def add_parser(actions: Any) -> None:
    parser = actions.add_parser(
        "offline",
        help="a workload on an engine in this process",
        description="Measure a workload on an engine in this process: fixed pseudo-random token ids, greedy, without the end "
        "token, the median of several rounds after a warm-up, each on an empty prefix cache.",
    )
    group = parser.add_argument_group("workload")
    told = "; ".join(f"{name}: {_shape(work)}" for name, work in WORKLOADS.items())
    group.add_argument("--workload", choices=tuple(WORKLOADS), default="decode", help=f"{told} (default: decode)")
    group.add_argument("--requests", type=whole(1), metavar="N", help="how many, handed in together")
    group.add_argument("--prompt-tokens", type=whole(1), metavar="N", help="of each prompt, the shared ones included")
    group.add_argument("--new-tokens", type=whole(1), metavar="N", help="of each answer")
    group.add_argument(
        "--shared-prefix-tokens", type=whole(0), metavar="N", help="that all prompts of a round begin with"
    )
    group = add_common(parser)
    group.add_argument(
        "--repeat", type=whole(1), default=3, metavar="N", help=f"rounds, at most {MOST_ROUNDS} (default 3)"
    )
    group.add_argument(
        "--max-noise",
        type=number(0),
        metavar="CORES",
        help="try a round again during which others kept more cores busy (default: every round counts, and says it)",
    )
    group.add_argument(
        "--tries", type=whole(1), default=3, metavar="N", help="of a disturbed round; the calmest counts (default 3)"
    )
    add_server_args(parser)


def run(namespace: argparse.Namespace) -> int:
    from jackfield.config.errors import ConfigurationError
    from jackfield.entrypoints.bench.document import STDIO, check_writable, write

    work = workload(namespace.workload, **{name: getattr(namespace, name) for name in SHAPE})
    if namespace.repeat > MOST_ROUNDS:
        raise ConfigurationError(f"--repeat is {namespace.repeat}; it must be at most {MOST_ROUNDS}")
    check_writable(namespace.json)
    set_threads(namespace)
    args, provenance = parse_server_args(namespace, os.environ)
    if provenance.get("throughput_log_interval") == "default":
        # Its lines would come between those of the progress; the figures say more.
        args = args.model_copy(update={"throughput_log_interval": 0})
    measure = _starts if work.figure == START else _rounds
    told = measure(namespace, work, args, provenance)
    if namespace.json != STDIO:
        show(told)  # first: what was measured is told even where the disk has become full
    if namespace.json is not None:
        write(told, namespace.json)
    return 0


def _rounds(
    namespace: argparse.Namespace, work: Workload, args: ServerArgs, provenance: Mapping[str, str]
) -> dict[str, Any]:
    # Imported here, so that a refused flag is told without waiting for them.
    from jackfield.entrypoints.bench import offline
    from jackfield.entrypoints.bench.document import document, stack_facts
    from jackfield.entrypoints.bench.machine import machine_facts, settings
    from jackfield.entrypoints.bench.usage import peak_memory
    from jackfield.entrypoints.engine import Engine
    from jackfield.entrypoints.progress import StartProgress

    with Engine.from_server_args(args, provenance) as engine:
        info = engine.get_server_info()
        machine = machine_facts(namespace.wait, settings=settings(os.environ))
        with StartProgress(calm=True) as tell:
            kept, thrown = offline.measure(
                engine,
                work,
                namespace.repeat,
                most_noise=namespace.max_noise,
                tries=namespace.tries,
                tell=tell,
            )
        memory = peak_memory()
        return document(
            "offline",
            label=namespace.label,
            model=engine.model_name,
            workload=work.facts(),
            text=engine.tokenizer is not None,
            machine=machine,
            stack=stack_facts(info["stack"]),
            args=info["args"],
            results=offline.results(kept),
            rounds=kept,
            thrown_away=thrown,
            peak_rss_mib=memory,
        )


def _starts(
    namespace: argparse.Namespace, work: Workload, args: ServerArgs, provenance: Mapping[str, str]
) -> dict[str, Any]:
    from jackfield.entrypoints.bench import first_token
    from jackfield.entrypoints.bench.document import document, stack_facts
    from jackfield.entrypoints.bench.machine import machine_facts, settings
    from jackfield.entrypoints.bench.summary import summary
    from jackfield.entrypoints.cli.explain import resolution_of
    from jackfield.entrypoints.progress import StartProgress
    from jackfield.hub.locate import locate_model
    from jackfield.stack.discovery.scan import discover
    from jackfield.stack.report import stack_report

    # A model that is not here would be fetched by the first start, and `resolution_of` fetches nothing.
    located = locate_model(args.model_path, revision=args.revision)
    explained = resolution_of(args, provenance, discover(files=args.plugin))
    assert explained.facts is not None
    machine = machine_facts(namespace.wait, settings=settings(os.environ))
    with StartProgress(calm=True) as tell:
        vocab_size = explained.facts.config.vocab_size
        rounds = first_token.measure(work, vocab_size, flags_again(namespace), namespace.repeat, tell)
    seconds, memory = (
        summary([one[name] for one in rounds], unit, "lower") for name, unit in ((START, "s"), ("peak_rss_mib", "MiB"))
    )
    return document(
        "offline",
        label=namespace.label,
        model=located.name,
        workload=work.facts(),
        text=True,
        machine=machine,
        stack=stack_facts(stack_report(explained.resolution.stack, stack_hash=explained.digest)),
        args=explained.resolution.args.public_dump(),
        results={START: seconds, "peak_rss_mib": memory},
        rounds=rounds,
        thrown_away=[],
        peak_rss_mib={"self": memory["max"], "living_children": [], "largest_ended_child": None},
    )


def show(told: Mapping[str, Any]) -> None:
    """A table of the figures, the workload's own first, and what belongs to them."""
    work, machine = told["workload"], told["machine"]
    figures = dict(sorted(told["results"].items(), key=lambda pair: pair[0] != work["figure"]))
    noise = [one["other_cores"] for one in told["rounds"] if one.get("other_cores") is not None]
    print_table(
        ("FIGURE", "MEDIAN", "UNIT", "SPREAD", "ROUNDS"),
        [
            (
                name,
                f"{figure['value']:.4g}",
                figure["unit"],
                f"{figure['spread']:.1%}",
                "  ".join(f"{value:.4g}" for value in figure["rounds"]),
            )
            for name, figure in figures.items()
        ],
        title=f"{work['name']}: {_shape(Workload(**work))}",
    )
    memory = told["peak_rss_mib"]
    beside = [f"{peak:.0f}" for peak in memory["living_children"]]
    facts = [
        ("model", told["model"]),
        ("stack", f"{told['stack']['hash']}"),
        ("plugins", "  ".join(told["stack"]["plugins"])),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, {'quiet' if machine['quiet'] else 'NOT QUIET'}"),
        ("others' cores, by round", "  ".join(f"{value:.2f}" for value in noise) or "-"),
        ("peak memory", f"{memory['self']:.0f} MiB" + (f", children {' + '.join(beside)} MiB" if beside else "")),
    ]
    if told["thrown_away"]:
        facts.append(("thrown away", f"{len(told['thrown_away'])} disturbed rounds"))
    print_table(("FACT", "VALUE"), facts)


def _shape(work: Workload) -> str:
    own = work.prompt_tokens - work.shared_prefix_tokens
    prompt = f"{work.shared_prefix_tokens} shared + {own}" if work.shared_prefix_tokens else f"{work.prompt_tokens}"
    return f"{work.requests} x ({prompt} -> {work.new_tokens} tokens)"
