"""Steps of all kinds, for tests that watch what a worker makes of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from jackfield.hookspecs import LogprobSpec, TokenMasks
from jackfield.testing.worker_driver import Advance, DrivenRequest, WorkerDriver

WISHES: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "seed": 4},
    {"temperature": 0.7, "top_k": 5, "seed": 5},
    {"temperature": 0.7, "top_p": 0.8, "min_p": 0.01, "seed": 6},
    {"temperature": 2.0, "top_k": 50, "top_p": 0.95, "seed": 7, "repetition_penalty": 1.2},
    {"frequency_penalty": 0.3, "presence_penalty": 0.2},
    {"bias_ids": np.array([3, 9], dtype=np.int32), "bias_values": np.ones(2, dtype=np.float32)},
    {"min_new_tokens": 5, "end_ids": np.array([2], dtype=np.int32)},
    {"logprobs": LogprobSpec(top=3)},
)


def served(driver: WorkerDriver, seed: int, steps: int) -> Counter[str]:
    """Steps of all kinds: rows come and go, whole and in chunks, on prefixes, with a mask now and then. Counts the kinds."""
    random = np.random.default_rng(seed)
    rows: list[DrivenRequest] = []
    met = Counter[str]()
    limits = driver.worker.limits
    for _ in range(steps):
        fresh: list[DrivenRequest] = []
        while len(rows) < limits.max_rows - 1 and random.random() < 0.5:
            prompt = random.integers(0, limits.vocab_size, random.choice([1, 2, 3, 20, 40, 70])).tolist()
            rows.append(driver.open(prompt, **WISHES[random.integers(len(WISHES))]))
            fresh.append(rows[-1])
        if not rows:
            continue
        chosen = [one for one in rows if one in fresh or random.random() < 0.7] or rows[:1]
        if fresh and random.random() < 0.5:
            chosen = fresh
        advances, left = [], limits.max_tokens
        for one in chosen:
            known = len(one.tokens) - one.computed
            new = known if known < 3 or random.random() < 0.5 else int(random.integers(1, known))
            if new <= left:
                advances.append(Advance(request=one, new=new, sample=new == known))
                left -= new
        lengths = np.array([advance.new for advance in advances])
        met["decode" if (lengths == 1).all() else "mixed" if (lengths == 1).any() else "extend"] += 1
        sampled = [advance.request.row for advance in advances if advance.sample]
        masks = None
        if sampled and random.random() < 0.3:
            masks = TokenMasks(rows=np.array(sampled[:1], np.int32), bits=np.full((1, 5), 0xFFFFFFFF, np.uint32))
        driver.collect(driver.launch(*advances), *advances, masks=masks)
        for one in [one for one in rows if len(one.tokens) > limits.max_context - 2 or random.random() < 0.08]:
            rows.remove(one)
            driver.close(one)
    for one in rows:
        driver.close(one)
    return met
