"""Times on a device: by its own events where it has them, each the median of several rounds after a warm-up."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch


def settled(device: str) -> float:
    """The host's clock once the device has nothing left to do."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def seconds(call: Callable[[int], object], device: str, *, calls: int = 10, rounds: int = 5, warm: int = 2) -> float:
    """Of one call, the median of `rounds` rounds of `calls` calls. call: is told its number, so that it can take turns among
    inputs, which together should not fit into the device's cache."""
    for i in range(warm):
        call(i)
    return statistics.median(_round(call, device, calls) for _ in range(rounds))


def _round(call: Callable[[int], object], device: str, calls: int) -> float:
    if device != "cuda":
        began = time.perf_counter()
        for i in range(calls):
            call(i)
        return (time.perf_counter() - began) / calls
    torch.cuda.synchronize()
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for i in range(calls):
        call(i)
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1000 / calls


def recorded(call: Callable[[int], object], device: str, calls: int) -> Callable[[int], object]:
    """On CUDA, `calls` calls as one graph, so that the gaps between small launches are not measured: what is returned makes
    them all."""
    if device != "cuda":
        return lambda _: [call(i) for i in range(calls)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(calls):
            call(i)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i)
    return lambda _: graph.replay()
