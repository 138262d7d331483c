"""Products with plain weights in ops.cpu: how near one row comes to the memory's speed, what more rows cost, and how large
products compare with torch's own.

    python benchmarks/cpu_kernels.py [--json] [--threads N] [--rounds N] [--shape OUTxIN ...]

For each shape: `read`, the bytes of a one-row product a second, over those of a plain loop; `rows`, the time of n rows
over that of one; `torch`, the time of torch's linear over ours. `threads`: microseconds that a call costs more because it wakes
the pool. Sides take turns; of each the best round counts, because a neighbour can only slow it down. With one thread its CPU time
is measured, which a neighbour on the same core does not lengthen.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from time import perf_counter, thread_time
from typing import Any

import torch
from torch.nn import functional

from jackfield.hookspecs import DenseWeight
from jackfield_ops_cpu.library import level, library
from jackfield_ops_cpu.ops import CpuOps
from jackfield_ops_cpu.weights import PackedWeight

SMOLLM2 = ((960, 576), (576, 576), (3072, 576), (576, 1536), (49152, 576))
"""qkv, o, gate and up, down, head: (out, in)."""

FEW, MANY = (2, 4, 6, 8, 16, 32), (32, 128, 1024)
Calls = dict[str, Callable[[], object]]


def best(calls: Calls, rounds: int, threads: int) -> dict[str, float]:
    """Seconds of each, the least of several rounds in turn."""
    clock = thread_time if threads == 1 else perf_counter
    least = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = clock()
            call()
            least[name] = min(least[name], clock() - start)
    return least


def over_all(ops: CpuOps, x: torch.Tensor, weights: Sequence[PackedWeight]) -> Callable[[], object]:
    return lambda: [ops.linear(x, weight) for weight in weights]


def measure_shape(
    ops: CpuOps, out: int, into: int, *, megabytes: int, rounds: int, many: Sequence[int]
) -> dict[str, float]:
    plain = (torch.randn(out, into) * into**-0.5).to(ops.dtype)
    weight = DenseWeight(encoding="plain", out_features=out, in_features=into, data=plain)
    copies = max(1, megabytes * 2**20 // (plain.numel() * plain.element_size()))
    weights = [ops.pack(weight) for _ in range(copies)]  # together larger than any cache
    rows = {n: torch.randn(n, into).to(ops.dtype) for n in (1, *FEW, *many)}

    def read() -> None:
        for one in weights:
            library().jf_read(one.data.ctypes.data, one.data.size, ops.threads)

    times = best({"read": read} | {str(n): over_all(ops, rows[n], weights) for n in (1, *FEW)}, rounds, ops.threads)
    found = {"read": times["read"] / times["1"]}
    found |= {f"rows_{n}": times[str(n)] / times["1"] for n in FEW}
    found["gigabytes"] = sum(one.data.size for one in weights) / times["1"] / 1e9
    for n in many:
        x = rows[n]
        sides: Calls = {
            "own": lambda x=x: ops.linear(x, weights[0]),  # type: ignore[misc]
            "torch": lambda x=x: functional.linear(x, plain),  # type: ignore[misc]
        }
        times = best(sides, max(3, rounds // 2), ops.threads)
        found[f"torch_{n}"] = times["torch"] / times["own"]
        found[f"gigaflops_{n}"] = 2 * n * out * into / times["own"] / 1e9
    return found


def threads_cost(ops: CpuOps, rounds: int) -> float:
    """Microseconds that a call of no work takes longer with the pool than alone."""
    weight = DenseWeight(encoding="plain", out_features=16, in_features=16, data=torch.zeros(16, 16, dtype=ops.dtype))
    x = torch.zeros(1, 16, dtype=ops.dtype)
    alone = CpuOps(ops.dtype, threads=1)

    def calls(which: CpuOps) -> Callable[[], object]:
        packed = which.pack(weight)
        return lambda: [which.linear(x, packed) for _ in range(100)]

    times = best({"pool": calls(ops), "alone": calls(alone)}, 10 * rounds, 2)
    return (times["pool"] - times["alone"]) * 1e4


def shape_of(text: str) -> tuple[int, int]:
    out, into = text.split("x")
    return int(out), int(into)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--shape", type=shape_of, nargs="+", default=SMOLLM2, metavar="OUTxIN", help="default: SmolLM2's"
    )
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument(
        "--megabytes",
        type=int,
        default=256,
        metavar="N",
        help="of weights a round, far more than caches hold (default 256)",
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="of the pool")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="of which the best counts (default 20)")
    parser.add_argument("--quick", action="store_true", help="small and imprecise, to see that it runs")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(arguments)
    shapes: Sequence[tuple[int, int]] = args.shape
    many: Sequence[int] = MANY
    if args.quick:
        shapes, many, args.megabytes, args.rounds = ((64, 32),), (32,), 1, 1
    torch.set_num_threads(args.threads)
    ops = CpuOps(getattr(torch, args.dtype), threads=args.threads)
    found: dict[str, Any] = {
        f"{out}x{into}": measure_shape(ops, out, into, megabytes=args.megabytes, rounds=args.rounds, many=many)
        for out, into in shapes
    }
    cost = threads_cost(ops, args.rounds)
    if args.json:
        settings = {"threads": args.threads, "dtype": args.dtype, "rounds": args.rounds}
        json.dump({"level": level(), "settings": settings, "threads": cost, "shapes": found}, sys.stdout, indent=2)
        print()
        return 0
    print(f"{args.dtype}, {args.threads} threads, level {level()}; waking the pool costs a call {cost:.2f} us")
    for shape, figures in found.items():
        print(f"{shape:10}", "  ".join(f"{name} {value:.2f}" for name, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
