"""Products with quantised weights in ops.cpu: how near they come to the memory's speed, and to the plain bfloat16 product.

For each form: the bytes that one row's product reads, over what a plain loop reads in the same rounds (`read`), and the time of
the bfloat16 product of the same shape over its own, at 1, 8, 32 and 1,024 rows. The weights of a round are several matrices,
together larger than any cache, except with many rows, where arithmetic decides. Sides take turns; of each the best round counts,
because a neighbour can only slow it down.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from jackfield.hookspecs import DenseWeight
from jackfield.testing.packed import packed_rows
from jackfield_ops_cpu.library import level, library
from jackfield_ops_cpu.ops import CpuOps
from jackfield_ops_cpu.quantized import FORMS, W8A8_INT8
from jackfield_ops_cpu.weights import PackedWeight

DTYPE = torch.bfloat16
ROWS = (1, 8, 32, 1024)
MANY = 64  # rows from which one matrix is enough


@dataclass
class Side:
    """One form: its operators, and copies of the weight that are read one after the other."""

    name: str
    ops: CpuOps
    weights: list[PackedWeight]

    @property
    def nbytes(self) -> int:
        return sum(weight.data.size for weight in self.weights)

    def run(self, x: torch.Tensor) -> Callable[[], object]:
        weights = self.weights[: 1 if x.shape[0] >= MANY else None]
        return lambda: [self.ops.linear(x, weight) for weight in weights]


def sides(out: int, into: int, megabytes: int, threads: int) -> list[Side]:
    """bfloat16 first."""
    made = []
    for name in ("bfloat16", W8A8_INT8, *FORMS):
        ops = CpuOps(DTYPE, threads=threads, quantization=W8A8_INT8 if name == W8A8_INT8 else None)
        if name in FORMS:
            data, encoding = torch.from_numpy(packed_rows(name, out, into)), name
        else:
            data, encoding = torch.randn(out, into).to(DTYPE), "plain"
        weight = DenseWeight(encoding=encoding, out_features=out, in_features=into, data=data)
        copies = -(-megabytes * 2**20 // ops.pack(weight).data.size)
        made.append(Side(name, ops, [ops.pack(weight) for _ in range(copies)]))
    return made


def best(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Seconds of each, the least of several rounds in turn."""
    least = [float("inf")] * len(calls)
    for _ in range(rounds):
        for place, call in enumerate(calls):
            start = perf_counter()
            call()
            least[place] = min(least[place], perf_counter() - start)
    return least


def measure(out: int, into: int, megabytes: int, threads: int, rounds: int) -> dict[str, Any]:
    forms = sides(out, into, megabytes, threads)
    memory = torch.ones(megabytes * 2**20, dtype=torch.uint8)

    def read() -> None:
        library().jf_read(memory.data_ptr(), memory.numel(), threads)

    found: dict[str, Any] = {side.name: {} for side in forms}
    for n in ROWS:
        x = torch.randn(n, into).to(DTYPE)
        reading, *times = best([read, *(side.run(x) for side in forms)], rounds if n < MANY else max(rounds // 4, 3))
        each = [seconds / (1 if n >= MANY else len(side.weights)) for seconds, side in zip(times, forms, strict=True)]
        for side, seconds, one in zip(forms, times, each, strict=True):
            if n == 1:
                found["read"] = {"GB/s": memory.numel() / reading / 1e9}
                found[side.name]["GB/s"] = side.nbytes / seconds / 1e9
                found[side.name]["over read"] = side.nbytes / seconds * reading / memory.numel()
            found[side.name][f"bfloat16 / it, {n} rows"] = each[0] / one
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=int, default=1536, metavar="N", help="output rows (default 1536)")
    parser.add_argument("--in", dest="into", type=int, default=1536, metavar="N", help="columns (default 1536)")
    parser.add_argument("--megabytes", type=int, default=96, metavar="N", help="of weights a round (default 96)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="of the pool")
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="of which the best counts (default 20)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(arguments)
    found = measure(args.out, args.into, args.megabytes, args.threads, args.rounds)
    if args.json:
        settings = {key: value for key, value in vars(args).items() if key != "json"}
        json.dump({"level": level(), "settings": settings, "results": found}, sys.stdout, indent=2)
        print()
        return 0
    print(f"{args.out} x {args.into}, {args.threads} threads, level {level()}, read {found['read']['GB/s']:.1f} GB/s")
    for name, figures in found.items():
        if name != "read":
            print(f"{name:10}", "  ".join(f"{what}: {value:.2f}" for what, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
