"""What the radix cache's calls cost for a prompt of 100,000 tokens, however many nodes hold its prefix.

    python benchmarks/cache.py [--json] [--tokens N] [--rounds N] [--page-size N] [--eviction NAME]

Needs no model and no torch. All but the prompt's last tokens are cached, as they were where the targets come from: match
finds them, insert stores the others. Absolute times: compare them within one run, or with a run on the same quiet machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs import Amounts, CacheKey, Lease
from jackfield.stack.digest import package_digest
from jackfield_cache_prefix.options import Eviction
from jackfield_cache_prefix.radix_cache import RadixCache

Ints = NDArray[np.int32]
T = TypeVar("T")

NEW_TOKENS = 96
"""Of 100,000; in proportion for other lengths."""

TARGETS_MS = {1: 0.4, 100: 1.0}
"""Match and insert of 100,000 tokens together, by the number of nodes that hold the prefix."""

SWEEP_BYTES = 1 << 27

OTHERS = 2000
"""Prompts beside the measured one, so that queues and tables are not empty."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Medians of all rounds in milliseconds. The target is for `match_and_insert`, which is the cold match and the insert;
    low and high are its quartiles.

    nodes        how many hold the cached prefix
    cold_match   acquire of the prompt, after the processor's caches were overwritten
    match        the same again
    insert       the commit of the prompt with its new tail, and the release
    peek         the hint that policies ask for
    refused      acquire and release alone: what a prompt costs that does not fit
    evict        a leaf, until the cache is empty
    """

    nodes: int
    tokens: int
    cached: int
    match_ms: float
    cold_match_ms: float
    insert_ms: float
    match_and_insert_ms: float
    low_ms: float
    high_ms: float
    target_ms: float | None
    met: bool | None
    peek_ms: float
    refused_ms: float
    evict_ms: float


def key(tokens: Ints) -> CacheKey:
    return CacheKey(namespace=b"", tokens=tokens)


def store(cache: RadixCache, tokens: Ints, slots: Ints) -> None:
    """A whole request that computes what is not cached into these slots."""
    lease = cache.acquire(key(tokens), len(tokens))
    row = np.concatenate([lease.slots, slots[lease.length :]])
    cache.commit(lease, key(tokens), row, final=True)
    cache.release(lease)


def filled(prefix: Ints, nodes: int, page_size: int, eviction: Eviction) -> tuple[RadixCache, int]:
    """A cache with the prefix in so many nodes of about equal length and `OTHERS` prompts beside it; and its next slot."""
    cache = RadixCache(page_size, eviction)
    slots = np.arange(len(prefix), dtype=np.int32)
    ends = np.linspace(0, len(prefix) // page_size, nodes + 1).astype(np.int64)[1:] * page_size
    for end in ends.tolist():  # each a request that goes on where the last one ended
        store(cache, prefix[:end], slots[:end])
    at = len(prefix)
    for number in range(OTHERS):
        other = np.full(page_size, 200_000 + number, dtype=np.int32)
        store(cache, other, at + np.arange(page_size, dtype=np.int32))
        at += page_size
    whole = sum(node.tokens[0] < 200_000 for node in cache.tree.nodes())
    if whole != nodes:
        raise RuntimeError(f"the prefix is held by {whole} nodes, not by {nodes}")
    return cache, at


def measure(tokens: int, nodes: int, rounds: int, page_size: int, eviction: Eviction) -> Figure:
    rng = np.random.default_rng(0)
    new = max(page_size, tokens * NEW_TOKENS // 100_000 // page_size * page_size)
    cached = (tokens - new) // page_size * page_size
    prefix = rng.integers(0, 150_000, cached).astype(np.int32)
    cache, at = filled(prefix, nodes, page_size, eviction)
    times: dict[str, list[float]] = {name: [] for name in ("cold", "match", "insert", "both", "peek", "refused")}
    sweep = np.zeros(SWEEP_BYTES // 8, dtype=np.int64)
    for number in range(rounds):
        # A request's own array, with a tail that no other has.
        tail = np.concatenate([[200_000 + OTHERS + number], rng.integers(0, 150_000, tokens - cached - 1)])
        what = key(np.concatenate([prefix, tail]).astype(np.int32))
        fresh = np.arange(at, at + tokens - cached, dtype=np.int32)
        at += len(fresh)
        acquire = partial(cache.acquire, what, tokens - 1)
        sweep += 1  # more than the processor's caches hold
        cold, lease = timed(acquire)
        cache.release(lease)
        times["cold"].append(cold)
        times["peek"].append(timed(partial(cache.peek, [what]))[0])
        times["refused"].append(timed(partial(refuse, cache, acquire))[0])
        match, lease = timed(acquire)
        if lease.length != cached:
            raise RuntimeError(f"{lease.length} tokens were found, not {cached}")
        row = np.concatenate([lease.slots, fresh])

        def insert(lease: Any = lease, what: CacheKey = what, row: Ints = row) -> None:
            cache.commit(lease, what, row, final=True)
            cache.release(lease)

        spent, _ = timed(insert)
        times["match"].append(match)
        times["insert"].append(spent)
        times["both"].append(cold + spent)
    cache.check()
    leaves = rounds + OTHERS + nodes  # the prefix's own nodes become leaves one after the other
    emptying, _ = timed(lambda: cache.evict(Amounts(slots=at)))
    if cache.sizes().evictable:
        raise RuntimeError("the cache was not emptied")
    median = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    low, _, high = (value * 1e3 for value in statistics.quantiles(times["both"], n=4))
    target = TARGETS_MS.get(nodes) if tokens == 100_000 else None
    return Figure(
        nodes=nodes,
        tokens=tokens,
        cached=cached,
        match_ms=median["match"],
        cold_match_ms=median["cold"],
        insert_ms=median["insert"],
        match_and_insert_ms=median["both"],
        low_ms=low,
        high_ms=high,
        target_ms=target,
        met=None if target is None else median["both"] <= target,
        peek_ms=median["peek"],
        refused_ms=median["refused"],
        evict_ms=emptying * 1e3 / leaves,
    )


def refuse(cache: RadixCache, acquire: Callable[[], Lease]) -> None:
    cache.release(acquire())


def timed(call: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    answer = call()
    return time.perf_counter() - began, answer


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser.add_argument("--tokens", type=int, default=100_000, help="length of the prompt (default 100,000)")
    parser.add_argument(
        "--nodes", type=int, nargs="+", default=[1, 100], help="nodes that hold the prefix (default 1 100)"
    )
    parser.add_argument("--rounds", type=int, default=200, help="measurements a figure (default 200)")
    parser.add_argument("--page-size", type=int, default=1, help="tokens a page (default 1)")
    parser.add_argument("--eviction", choices=get_args(Eviction), default="lru")
    given = parser.parse_args(argv)
    gc.collect()
    gc.disable()  # a collection of all of the process's objects is no part of a call
    figures = [measure(given.tokens, nodes, given.rounds, given.page_size, given.eviction) for nodes in given.nodes]
    gc.enable()
    if given.json:
        told = {
            "machine": {"python": platform.python_version(), "numpy": np.__version__, "cpu": platform.machine()},
            "packages": {package: package_digest(package) for package in ("jackfield", "jackfield_cache_prefix")},
            "page_size": given.page_size,
            "eviction": given.eviction,
            "rounds": given.rounds,
            "figures": {f"radix_{figure.tokens}_tokens_{figure.nodes}_nodes": asdict(figure) for figure in figures},
        }
        json.dump(told, sys.stdout, indent=2)
        print()
        return 0
    for figure in figures:
        verdict = "" if figure.met is None else f" ({'met' if figure.met else 'MISSED'}: {figure.target_ms} ms)"
        print(
            f"{figure.nodes:4} nodes: cold match {figure.cold_match_ms:.3f} + insert {figure.insert_ms:.3f} = "
            f"{figure.match_and_insert_ms:.3f} ms [{figure.low_ms:.3f} .. {figure.high_ms:.3f}]{verdict}; match "
            f"{figure.match_ms:.3f}, peek {figure.peek_ms:.3f}, refused {figure.refused_ms:.3f}, "
            f"evict {1e3 * figure.evict_ms:.1f} µs a leaf"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
