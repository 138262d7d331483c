"""Native attention beside the torch backend, in one process and in turn: python benchmarks/cpu_attention.py [--seconds 4].

For each workload the best of many short rounds of both, and what part of the machine's read bandwidth (or of its bfloat16
matrix product) the native one reaches in the same seconds. The layer is that of SmolLM2-135M: 9 query heads on 3 of keys and
values, of 64. Absolute times on a shared machine are worth little; the ratios are what this is for.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # torch's idle workers would keep the cores from the library's

import torch

from jackfield.hookspecs import (
    CORE_LAYOUTS,
    AttentionBackend,
    AttentionBatch,
    AttentionContext,
    AttentionLayer,
    AttentionLimits,
    AttentionMode,
    HostLengths,
    KVGroup,
    KVTensors,
)
from jackfield.model_executor.kv_tensors import allocate_kv
from jackfield.model_executor.workspace import Workspace
from jackfield_attention_torch.backend import TorchAttention
from jackfield_ops_cpu.attention import NativeAttention

HEADS, KV_HEADS, SIZE, LAYERS = 9, 3, 64, 6

WORKLOADS: dict[str, dict[str, Any]] = {
    "decode 1 x 128": {"lengths": [(127, 1)]},
    "decode 1 x 1024": {"lengths": [(1023, 1)]},
    "decode 1 x 8192": {"lengths": [(8191, 1)]},
    "decode 32 x 300": {"lengths": [(299, 1)] * 32},
    "decode 31 x 32 and one of 8192": {"lengths": [(31, 1)] * 31 + [(8191, 1)]},
    "decode 32 x 576, 512 shared": {"lengths": [(575, 1)] * 32, "shared": 512},
    "decode 32 x 576, none shared": {"lengths": [(575, 1)] * 32},
    "prefill 1024": {"lengths": [(0, 1024)]},
    "prefill 32 behind 512 shared, 8 rows": {"lengths": [(512, 32)] * 8, "shared": 512},
}


class Case:
    """One batch over KV of several layers, so that caches hold no more of it than in a model."""

    def __init__(
        self, lengths: list[tuple[int, int]], layout: str, page_size: int, dtype: torch.dtype, shared: int = 0
    ) -> None:
        random = np.random.default_rng(0)
        self.layers = tuple(
            AttentionLayer(
                id=i,
                group="full",
                num_heads=HEADS,
                num_kv_heads=KV_HEADS,
                head_size=SIZE,
                v_head_size=SIZE,
                scale=SIZE**-0.5,
            )
            for i in range(LAYERS)
        )
        group = KVGroup(
            name="full",
            kind="full",
            layers=tuple(range(LAYERS)),
            num_kv_heads=KV_HEADS,
            head_size=SIZE,
            v_head_size=SIZE,
        )
        n = len(lengths)
        q_lens = np.array([new for _, new in lengths], dtype=np.int32)
        kv_lens = np.array([sum(pair) for pair in lengths], dtype=np.int32)
        pages = -(-kv_lens // page_size)
        # A busy server's pool: four times as large as what is used, pages anywhere.
        num_pages = int(pages.sum()) * 4
        free = random.permutation(np.arange(1, num_pages + 1))
        table = np.zeros((n + 1, int(pages.max()) * page_size), dtype=np.int32)
        taken = 0
        for row, count in enumerate(pages.tolist(), start=1):
            mine = free[taken : taken + count]
            taken += count
            table[row, : count * page_size] = (mine[:, None] * page_size + np.arange(page_size)).reshape(-1)
            table[row, :shared] = table[1, :shared]
        self.kv: dict[str, KVTensors] = allocate_kv(
            (group,), {"full": CORE_LAYOUTS[layout]}, num_pages, page_size, dtype, torch.device("cpu")
        )
        for tensors in self.kv["full"].tensors.values():
            for tensor in tensors:
                tensor.normal_()
        starts = np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int32)
        out_slots = np.concatenate([table[i + 1, c : c + new] for i, (c, new) in enumerate(lengths)]).astype(np.int64)
        self.batch = AttentionBatch(
            mode=AttentionMode.DECODE if (q_lens == 1).all() else AttentionMode.EXTEND,
            rows=torch.arange(1, n + 1, dtype=torch.int32),
            q_starts=torch.from_numpy(starts),
            kv_lens=torch.from_numpy(kv_lens.copy()),
            out_slots={"full": torch.from_numpy(out_slots)},
            host=HostLengths(q_lens=q_lens, kv_lens=kv_lens),
            max_q=int(q_lens.max()),
            max_kv=int(kv_lens.max()),
        )
        total = int(q_lens.sum())
        self.context = AttentionContext(
            kind="attention",
            name="bench",
            instance="bench",
            phases=("prefill", "decode"),
            layers=self.layers,
            groups=(group,),
            layouts={"full": CORE_LAYOUTS[layout]},
            page_size=page_size,
            tables={"full": torch.from_numpy(table)},
            limits=AttentionLimits(max_rows=n, max_tokens=total, max_context=table.shape[1]),
            device="cpu",
            dtype=str(dtype).removeprefix("torch."),
            workspace=Workspace("cpu"),
        )
        fused = torch.randn(total, HEADS + 2 * KV_HEADS, SIZE).to(dtype)
        self.q, self.k, self.v = torch.split(fused, [HEADS, KV_HEADS, KV_HEADS], dim=1)
        self.out = torch.empty(total, HEADS, SIZE, dtype=dtype)
        distinct = int(kv_lens.sum()) - shared * (n - 1)
        self.read_bytes = distinct * KV_HEADS * SIZE * 2 * dtype.itemsize
        self.flops = 4 * HEADS * SIZE * sum(new * cached + new * (new + 1) // 2 for cached, new in lengths)

    def forward(self, make: Callable[[AttentionContext], AttentionBackend]) -> Callable[[], float]:
        """A function that runs one plan and every layer, and returns the seconds that a layer took."""
        backend = make(self.context)
        backend.bind(self.kv)

        def run() -> float:
            began = time.perf_counter()
            plan = backend.plan(self.batch)
            for layer in self.layers:
                backend.attend(plan, layer, self.q, self.k, self.v, self.out)
            return (time.perf_counter() - began) / LAYERS

        return run

    def plan_seconds(self) -> float:
        backend = NativeAttention(self.context)
        backend.bind(self.kv)
        found = []
        for _ in range(50):
            began = time.perf_counter()
            plan = backend.plan(self.batch)
            found.append(time.perf_counter() - began)
            del plan
        return min(found)


def read_bandwidth() -> Callable[[], float]:
    """Bytes a second that all threads read from memory."""
    memory = torch.ones(64 << 20, dtype=torch.float32)

    def run() -> float:
        began = time.perf_counter()
        memory.sum()
        return memory.nbytes / (time.perf_counter() - began)

    return run


def product_rate(dtype: torch.dtype) -> Callable[[], float]:
    """FLOP a second of torch's own linear layer."""
    x, weight = torch.randn(1024, 576).to(dtype), torch.randn(1536, 576).to(dtype)

    def run() -> float:
        began = time.perf_counter()
        torch.nn.functional.linear(x, weight)
        return 2 * 1024 * 576 * 1536 / (time.perf_counter() - began)

    return run


def best(runs: dict[str, Callable[[], float]], seconds: float, largest: tuple[str, ...] = ()) -> dict[str, float]:
    """All in turn for so long; the best of each."""
    found: dict[str, list[float]] = {name: [run()] for name, run in runs.items()}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for name, run in runs.items():
            found[name].append(run())
    return {name: max(values) if name in largest else min(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2, help="for each line")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--page-sizes", type=int, nargs="*", default=[1, 16, 64])
    parser.add_argument("--layouts", nargs="*", default=list(CORE_LAYOUTS))
    parser.add_argument("--workloads", nargs="*", default=list(WORKLOADS), help="beginnings of their names")
    parser.add_argument("--no-torch", action="store_true", help="leave the torch backend out")
    parser.add_argument("--json", help="file to write")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dtype = getattr(torch, args.dtype)
    rows = []
    for name, case_of in WORKLOADS.items():
        if not any(name.startswith(start) for start in args.workloads):
            continue
        for layout in args.layouts:
            for page_size in args.page_sizes:
                case = Case(layout=layout, page_size=page_size, dtype=dtype, **case_of)
                runs = {
                    "native": case.forward(NativeAttention),
                    "read": read_bandwidth(),
                    "product": product_rate(dtype),
                }
                if not args.no_torch:
                    runs["torch"] = case.forward(TorchAttention)
                found = best(runs, args.seconds, largest=("read", "product"))
                row = {
                    "workload": name,
                    "layout": layout,
                    "page_size": page_size,
                    "us": found["native"] * 1e6,
                    "plan_us": case.plan_seconds() * 1e6,
                    "torch_ratio": found["torch"] / found["native"] if "torch" in found else None,
                    "of_read": case.read_bytes / found["native"] / found["read"],
                    "of_product": case.flops / found["native"] / found["product"],
                }
                rows.append(row)
                ratio = f"{row['torch_ratio']:6.2f}x torch" if row["torch_ratio"] else ""
                print(
                    f"{name:38} {layout:10} {page_size:3}  {row['us']:9.1f} us  plan {row['plan_us']:6.1f} us  "
                    f"{row['of_read']:5.2f} of read  {row['of_product']:5.2f} of linear  {ratio}",
                    flush=True,
                )
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
