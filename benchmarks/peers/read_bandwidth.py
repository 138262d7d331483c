"""How fast this machine reads memory now: NumPy's maximum over float32, a slice a thread (it releases the GIL, and is as fast as
torch's). Prints GB/s (10**9 bytes), the median of several passes, as one JSON line.

The memory is eight times the processor's cache of 32 MiB, so that most of it comes from outside.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

MIB = 256
PASSES = 15


def read_bandwidth(threads: int) -> list[float]:
    """GB/s of each pass."""
    memory = np.ones(MIB * 2**20 // 4, dtype=np.float32)
    slices = np.array_split(memory, threads)
    found = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(PASSES + 2):
            began = time.perf_counter()
            assert max(pool.map(np.max, slices)) == 1
            found.append(memory.nbytes / (time.perf_counter() - began) / 1e9)
    return found[2:]  # the threads start, and pages are touched for the first time by them


if __name__ == "__main__":
    speeds = read_bandwidth(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    print(json.dumps({"read_gbps": statistics.median(speeds), "best": max(speeds)}))
