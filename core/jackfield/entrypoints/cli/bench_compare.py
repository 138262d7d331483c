"""`jackfield bench compare A.json B.json`: ratios of two measurements, with their spread, for people and for CI."""

from __future__ import annotations

import argparse
from typing import Any

from jackfield.entrypoints.cli.bench_flags import number
from jackfield.entrypoints.cli.output import print_json, print_table


def add_parser(actions: Any) -> None:
    parser = actions.add_parser(
        "compare",
        help="two measurements side by side",
        description="Compare what two runs wrote with --json: how many times better B is (below 1: worse), with the range from "
        "the rounds that speak most against it to those that speak most for it. Refuses runs that did different work.",
    )
    parser.add_argument("a", metavar="A.json", help="- reads it from standard input")
    parser.add_argument("b", metavar="B.json")
    parser.add_argument(
        "--fail-below",
        type=number(0),
        metavar="RATIO",
        help="end with 1 if the run's own figure is below it, under any load",
    )
    parser.add_argument(
        "--figure", action="append", default=[], metavar="NAME", help="for --fail-below, in its place (repeatable)"
    )
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.add_argument("--plot", metavar="FILE", help="draw both against the load (of `bench serve`); .png or .svg")


def run(namespace: argparse.Namespace) -> int:
    from jackfield.entrypoints.bench.compare import below, notes, own_figure, ratios
    from jackfield.entrypoints.bench.document import check_writable, read

    check_writable(namespace.plot)
    a, b = read(namespace.a), read(namespace.b)
    found, told = ratios(a, b), notes(a, b)
    figures = namespace.figure or [own_figure(a)]
    failing = below(found, figures, namespace.fail_below) if namespace.fail_below is not None else []
    if namespace.plot is not None:
        from jackfield.entrypoints.bench.plot import plot

        plot([a, b], namespace.plot)
    if namespace.json:
        below_it = [one.facts() for one in failing]
        print_json({"ratios": [one.facts() for one in found], "notes": told, "below": below_it})
        return 1 if failing else 0
    print_table(
        (*(["LOAD"] if found[0].load else []), "FIGURE", "UNIT", "A", "B", "RATIO", "RANGE", "B IS"),
        [
            (
                *([one.load] if one.load else []),
                one.figure,
                one.unit,
                f"{one.a:.4g}",
                f"{one.b:.4g}",
                f"{one.ratio:.3f}",
                f"{one.least:.3f} .. {one.most:.3f}",
                one.verdict,
            )
            for one in found
        ],
        title="How many times better B is",
    )
    print_table(("NOTE",), [(text,) for text in told])
    for one in failing:
        print(f"below {namespace.fail_below:g}: {one.figure} {one.load} {one.ratio:.3f}".replace("  ", " "))
    return 1 if failing else 0
