"""Times of single kernels: attention against torch's scaled dot product over dense keys and values, operators against torch's.

arguments: {plugin: "kind.name"}. Heads and sizes are Llama-8B's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from benchmarks.gpu.clock import recorded, seconds
from benchmarks.gpu.jobs import Job, Row, Tell, guarded
from benchmarks.gpu.paged import Paged, Shape
from benchmarks.gpu.providers import Provider, providers
from torch.nn import functional

from jackfield.hookspecs import Ops, SamplingRows

DECODE = (Shape(1, 1, 8192), Shape(16, 1, 4096), Shape(64, 1, 4096), Shape(256, 1, 1024))
PREFILL = (Shape(1, 4096, 4096), Shape(4, 1024, 1024))
EXTEND = (Shape(1, 2048, 8192),)
TINY = (Shape(2, 1, 9),)
TOKENS, HIDDEN, VOCAB = (1, 64, 2048), 4096, 128256


def run(job: Job, tell: Tell) -> None:
    provider = providers()[job.arguments["plugin"]]
    dtype = "bfloat16" if "bfloat16" in provider.dtypes(job.device) else "float32"
    for row, work in (attention if provider.kind == "attention" else operators)(provider, job, dtype):
        if job.left > 0:
            tell(guarded({"kernel": job.arguments["plugin"], "dtype": dtype, **row}, work))


Work = list[tuple[Row, Callable[[], Row]]]


def attention(provider: Provider, job: Job, dtype: str) -> Work:
    shapes = TINY if job.tiny else DECODE + PREFILL + EXTEND
    return [
        ({"what": "decode" if shape.new == 1 else "prefill", **shape.told()}, _attention(provider, shape, job, dtype))
        for shape in shapes
    ]


def _attention(provider: Provider, shape: Shape, job: Job, dtype: str) -> Callable[[], Row]:
    def work() -> Row:
        paged = Paged(provider, shape, device=job.device, dtype=dtype, tiny=job.tiny)
        row = _timed(paged.attend, paged.layers, job) | {"bytes": paged.bytes, "flops": paged.flops}
        if shape.new == 1 or shape.new == shape.length:  # elsewhere the dense form needs a mask, and another kernel
            q, keys, values = paged.dense()

            def dense(i: int) -> torch.Tensor:
                at = i % len(keys)
                return functional.scaled_dot_product_attention(
                    q, keys[at], values[at], is_causal=shape.new > 1, enable_gqa=True
                )

            compared = guarded({}, lambda: _timed(dense, paged.layers, job))  # its failure is none of the plugin's
            row |= {f"torch_{name}": value for name, value in compared.items()}
        return row

    return work


def operators(provider: Provider, job: Job, dtype: str) -> Work:
    hidden, vocab = (32, 128) if job.tiny else (HIDDEN, VOCAB)
    made = {
        name: one.make({"device": job.device, "dtype": dtype, "layout": "nhd-paged"})
        for name, one in (("", provider), ("torch_", providers()["ops.torch"]))
    }
    work: Work = []
    for tokens in (2,) if job.tiny else TOKENS:
        work.append(({"what": "norm", "tokens": tokens, "size": hidden}, _norm(made, tokens, hidden, job, dtype)))
    for rows in (2,) if job.tiny else (1, 64, 256):
        for name, draw in (
            ("greedy", (0.0, vocab, 1.0)),
            ("top-k 50, top-p 0.9", (0.8, 50, 0.9)),
            ("top-p 0.9", (0.8, vocab, 0.9)),
        ):
            work.append(
                ({"what": f"sample {name}", "rows": rows, "size": vocab}, _sample(made, rows, vocab, draw, job))
            )
    return work


def _norm(made: Mapping[str, Ops], tokens: int, size: int, job: Job, dtype: str) -> Callable[[], Row]:
    def work() -> Row:
        sets = 1 if job.tiny else 16
        x, residual = (torch.randn(sets, tokens, size, device=job.device).to(getattr(torch, dtype)) for _ in range(2))
        weight = torch.ones(size, device=job.device, dtype=x.dtype)
        row: Row = {"bytes": 4 * tokens * size * x.itemsize}
        for name, ops in made.items():

            def norm(i: int, ops: Ops = ops) -> object:
                return ops.norm(x[i % sets], weight, 1e-5, residual[i % sets])

            timed = _timed(norm, sets, job)
            row |= {f"{name}{key}": value for key, value in timed.items()}
        return row

    return work


def _sample(
    made: Mapping[str, Ops], rows: int, vocab: int, draw: tuple[float, int, float], job: Job
) -> Callable[[], Row]:
    def work() -> Row:
        logits = torch.randn(rows, vocab, device=job.device) * 3
        temperature, top_k, top_p = draw

        def column(value: float, dtype: torch.dtype) -> torch.Tensor:
            return torch.full((rows,), value, dtype=dtype, device=job.device)

        sampling = SamplingRows(
            temperature=column(temperature, torch.float32),
            top_k=column(top_k, torch.int32),
            top_p=column(top_p, torch.float32),
            min_p=column(0.0, torch.float32),
            stream=torch.arange(rows, dtype=torch.int64, device=job.device),
            greedy=temperature == 0,
        )
        row: Row = {"bytes": logits.nbytes}
        for name, ops in made.items():

            def sample(_: int, ops: Ops = ops) -> object:
                return ops.sample(logits.clone(), sampling)

            # `sample` may overwrite its logits, so each call has a copy; the copy alone is timed too, and taken off.
            whole = seconds(sample, job.device, **_effort(job))
            row[f"{name}seconds"] = max(whole - seconds(lambda _: logits.clone(), job.device, **_effort(job)), 0.0)
        return row

    return work


def _timed(call: Callable[[int], object], turns: int, job: Job) -> Row:
    """Seconds of one call launched from Python, and as part of a replayed graph, in which no launch is waited for."""
    row: Row = {"seconds": seconds(call, job.device, **_effort(job))}
    if job.device == "cuda":
        calls = max(turns, 4)
        row["replayed_seconds"] = seconds(recorded(call, job.device, calls), job.device, calls=2) / calls
    return row


def _effort(job: Job) -> dict[str, int]:
    return {"calls": 1, "rounds": 1, "warm": 1} if job.tiny else {"calls": 16}
