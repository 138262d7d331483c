"""What constrained output costs: a decode step under masks, the first use of a schema, and what free neighbours notice.

    python benchmarks/grammar.py [--json] [--rounds N] [--wait SECONDS] [--backend NAME ...]

The embedded model (bfloat16, CPU, 16 rows, event loop `overlap`) for steps and neighbours, whose two sides are measured in turn
(A B A B ...); the simulated worker for the first use: from the request to its only token with a warm compiler, less the same for
a grammar that is kept.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

from figures import Figure, figure_of, over, ratio, report
from machine import machine_facts

from jackfield import Engine

ROWS = 16
TOKENS = 24
WARM = 3
PACKAGES = ("jackfield", "jackfield_worker_torch", "jackfield_worker_simulated", "jackfield_scheduler_loops")
BACKENDS = ("llguidance", "xgrammar")


def person(number: int) -> dict[str, Any]:
    """A typical schema, which no other number gives: nested objects, arrays, enums, strings with a pattern, bounds."""
    address = {
        "type": "object",
        "properties": {
            "street": {"type": "string", "maxLength": 60},
            "city": {"type": "string", "maxLength": 40},
            "zip": {"type": "string", "minLength": 5, "maxLength": 5},
            "country": {"enum": ["de", "fr", "it", "es", "pl", f"x{number}"]},
        },
        "required": ["street", "city", "zip", "country"],
        "additionalProperties": False,
    }
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 60},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "email": {"type": "string", "maxLength": 80},
            "married": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 8},
            "address": address,
            "friends": {"type": "array", "items": address, "maxItems": 4},
        },
        "required": ["name", "age", "email", "married", "tags", "address", "friends"],
        "additionalProperties": False,
    }


LONG = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "text": {"type": "string"}},
        "required": ["id", "text"],
    },
    "minItems": 100,
    "maxItems": 200,
}
"""Never complete within `TOKENS`."""


def seconds(engine: Engine, asked: Sequence[dict[str, Any]]) -> float:
    """Wall time of one batch, a request each."""
    began = time.perf_counter()
    answers = engine.generate([f"Request {i}: write a list." for i in range(len(asked))], sampling_params=list(asked))
    spent = time.perf_counter() - began
    for answer in answers:
        if answer["meta_info"]["completion_tokens"] != TOKENS:
            raise SystemExit(f"an answer has {answer['meta_info']['completion_tokens']} tokens, not {TOKENS}")
    return spent


def steps(backend: str, rounds: int) -> Iterator[tuple[str, Figure]]:
    free: dict[str, Any] = {"max_new_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    bound = {**free, "json_schema": LONG}
    with Engine(topology="inline", event_loop="overlap", max_total_tokens=4096, grammar_backend=backend) as engine:
        sides: dict[str, list[float]] = {"free": [], "bound": [], "beside": []}
        for number in range(-1, rounds):
            for name, asked in (
                ("free", [free] * ROWS),
                ("bound", [bound] * ROWS),
                ("beside", [bound, *[free] * (ROWS - 1)]),
            ):
                spent = seconds(engine, asked) / TOKENS * 1e3
                if number >= 0:
                    sides[name].append(spent)
    yield (
        f"{backend}_step",
        ratio(
            f"wall time of a step with {ROWS} rows under a schema, over free",
            sides["free"],
            sides["bound"],
            over,
            "<= 1.1",
            "ms",
        ),
    )
    yield (
        f"{backend}_neighbours",
        ratio(f"a step with one row of {ROWS} under a schema", sides["free"], sides["beside"], over, "<= 1.05", "ms"),
    )


def first_use(backend: str, rounds: int) -> Iterator[tuple[str, Figure]]:
    numbers = itertools.count()

    def once(engine: Engine, schema: dict[str, Any]) -> float:
        began = time.perf_counter()
        engine.generate("x", sampling_params={"max_new_tokens": 1, "json_schema": schema})
        return (time.perf_counter() - began) * 1e3

    with Engine(topology="inline", worker="simulated", grammar_backend=backend) as engine:
        for _ in range(WARM):
            once(engine, person(next(numbers)))
        values = []
        for _ in range(3 * rounds):
            schema = person(next(numbers))
            new = once(engine, schema)
            values.append(new - once(engine, schema))
    yield f"{backend}_first_use", figure_of("first use of a typical schema, compiler warm", "ms", values, "<= 100")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--wait", type=float, default=60.0, help="seconds to wait for a quiet machine")
    parser.add_argument("--quick", action="store_true", help="the first use alone, to see that it runs")
    parser.add_argument("--backend", action="append", choices=BACKENDS, default=None)
    args = parser.parse_args()
    machine = machine_facts(args.wait)
    figures: dict[str, Figure] = {}
    packages = list(PACKAGES)
    for backend in args.backend or BACKENDS:
        packages.append(f"jackfield_grammar_{backend}")
        figures.update(first_use(backend, args.rounds))
        if not args.quick:
            figures.update(steps(backend, args.rounds))
    report(machine, figures, args.json, packages)


if __name__ == "__main__":
    main()
