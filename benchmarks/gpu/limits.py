"""What the device can do at most, measured in the same run: bytes a second that it moves, and operations a second.

A datasheet's numbers are reached by nobody; a fraction is told of these.
"""

from __future__ import annotations

import torch
from benchmarks.gpu.clock import seconds
from benchmarks.gpu.jobs import Job, Tell


def run(job: Job, tell: Tell) -> None:
    count = (1 << 20) if job.tiny else (1 << 30)
    tell({"limit": "read", "bytes_per_second": read_bandwidth(job.device, count)})
    tell({"limit": "copy", "bytes_per_second": copy_bandwidth(job.device, count)})
    side = 64 if job.tiny else 8192
    for dtype in ("float32", "bfloat16") if job.tiny else ("bfloat16", "float16", "float32"):
        tell({"limit": "matrix", "dtype": dtype, "flops_per_second": matrix_rate(job.device, dtype, side)})


def read_bandwidth(device: str, count: int) -> float:
    """Of a sum over random int32: nothing but reads, far more of them than a cache holds."""
    data = torch.randint(-100, 100, (count,), dtype=torch.int32, device=device)
    return data.nbytes / seconds(lambda _: data.sum(dtype=torch.int32), device)


def copy_bandwidth(device: str, count: int) -> float:
    """Of a copy on the device, bytes read and bytes written."""
    source = torch.randint(-100, 100, (count,), dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / seconds(lambda _: target.copy_(source), device)


def matrix_rate(device: str, dtype: str, side: int) -> float:
    """Of a product of random square matrices, multiplications and additions. float32 without TF32."""
    one, other = (torch.randn(side, side, device=device).to(getattr(torch, dtype)) for _ in range(2))
    return 2 * side**3 / seconds(lambda _: torch.mm(one, other), device, calls=10, warm=3)
