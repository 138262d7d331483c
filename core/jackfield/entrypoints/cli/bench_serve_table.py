"""What `jackfield bench serve` shows: a row for each load, the failures by kind, and what belongs to the figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.entrypoints.bench.loads import Load
from jackfield.entrypoints.cli.output import print_table

BUSY, TOO_BUSY = 0.7, ": it may be what was measured"
"""Share of a core from which on a client, which has one, can hardly be ready whenever something comes."""

LATENCIES = ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms")


def show(told: Mapping[str, Any]) -> None:
    rows = []
    for point in told["loads"]:
        rounds, results = point["rounds"], point["results"]
        rows.append(
            (
                str(Load(**point["load"])),
                f"{sum(one['completed'] for one in rounds)}/{sum(one['requests'] for one in rounds)}",
                _rate(results, "output_tokens_per_s"),
                _rate(results, "requests_per_s"),
                *(_latency(results, name) for name in LATENCIES),
                *([_rate(results, "goodput_per_s")] if told["limits"] else []),
            )
        )
    heads = [f"{name.removesuffix('_ms').upper()} ms" for name in LATENCIES]
    columns = ("LOAD", "DONE", "OUTPUT tokens/s", "REQUESTS/s", *heads, *(["GOODPUT/s"] if told["limits"] else []))
    print_table(
        columns, rows, title=f"{told['model']} over {told['api']}; latencies are p50 / p90 / p99, +- half the spread"
    )
    failed = [
        (str(Load(**point["load"])), kind, str(one["count"]), one["first"])
        for point in told["loads"]
        for number in point["rounds"]
        for kind, one in number["failures"].items()
    ]
    if failed:
        print_table(("LOAD", "FAILURE", "COUNT", "FIRST"), failed, title="Requests that failed")
    print_table(("FACT", "VALUE"), _facts(told))


def _facts(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    machine, stack = told["machine"], told["stack"]
    rounds = [one for point in told["loads"] for one in point["rounds"]]
    counted = sorted({way for one in rounds for way in one["counted_by"]})
    arrivals = [one["tokens_per_arrival"] for one in rounds if one["tokens_per_arrival"] is not None]
    late = [one["late_ms"]["p99"] for one in rounds]
    client = max(one["client_cpu_share"] for one in rounds)
    short = sum(one["short_answers"] for one in rounds)
    facts = [
        ("server", told["server"] or "it does not say"),
        ("stack", stack["hash"] if stack else "it does not say"),
        ("tokens counted by", "; ".join(counted) or "-"),
        ("tokens an arrival", f"{min(arrivals):.2f} to {max(arrivals):.2f}" if arrivals else "-"),
        ("client's CPU", f"at most {client:.0%} of a core" + (TOO_BUSY if client > BUSY else "")),
        ("client late, p99", f"at most {max(late):.1f} ms"),
        ("machine", f"{machine['cpu']}, {machine['cores']} cores, {'quiet' if machine['quiet'] else 'NOT QUIET'}"),
    ]
    if memory := told["peak_rss_mib"]["living_children"]:
        facts.append(("server's peak memory", " + ".join(f"{peak:.0f}" for peak in memory) + " MiB"))
    if told["limits"]:
        facts.append(("good", ", ".join(f"{name} <= {value:g}" for name, value in told["limits"].items())))
    if short:
        facts.append(("answers shorter than asked for", str(short)))
    return facts


def _rate(results: Mapping[str, Any], name: str) -> str:
    if name not in results:
        return "-"
    return f"{results[name]['value']:.4g} +- {results[name]['spread'] / 2:.0%}"


def _latency(results: Mapping[str, Any], name: str) -> str:
    return " / ".join(
        f"{results[key]['value']:.4g}" if (key := f"{name}_{percent}") in results else "-"
        for percent in ("p50", "p90", "p99")
    )
