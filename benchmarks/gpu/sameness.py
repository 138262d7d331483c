"""What one setup answers to a fixed set of requests on a small random model. arguments: {model, setup, dtype}.

Long prompts in chunks beside rows that already decode, greedy rows and seeded ones. `run.py` holds the answers of all setups
against those of torch's own: in float32 every token must be the same.
"""

from __future__ import annotations

import numpy as np
from benchmarks.gpu.jobs import Job, Tell
from benchmarks.gpu.stack import Setup, Sizes, make_worker, report_of
from benchmarks.gpu.steps import Rows
from numpy.typing import NDArray

PROMPTS, OUTPUTS, BUDGET = (1, 257, 7, 33, 130, 64), 32, 96
"""Tokens of the prompts, tokens that each is answered with, new tokens of a step."""

TINY_PROMPTS, TINY_OUTPUTS, TINY_BUDGET = (1, 9, 18), 3, 12


def run(job: Job, tell: Tell) -> None:
    prompts = TINY_PROMPTS if job.tiny else PROMPTS
    outputs, budget = (TINY_OUTPUTS, TINY_BUDGET) if job.tiny else (OUTPUTS, BUDGET)
    setup, dtype = Setup.parse(job.arguments["setup"]), job.arguments["dtype"]
    page = 4 if job.tiny else 16
    longest = max(prompts) + outputs
    sizes = Sizes(
        max_rows=len(prompts),
        max_context=longest + page,
        total_slots=len(prompts) * -(-longest // page) * page,
        max_tokens=budget,
        page_size=page,
        batches=tuple(range(1, len(prompts) + 1)),
    )
    worker = make_worker(job.arguments["model"], setup, sizes, device=job.device, dtype=dtype)
    drive, random = Rows(worker), np.random.default_rng(1)
    texts = [random.integers(0, worker.limits.vocab_size, length).astype(np.int32) for length in prompts]
    rows = []
    for number, text in enumerate(texts):
        temperature = 0.8 if number % 2 else 0.0
        rows.append(drive.open(text, len(text) + outputs, temperature=temperature, top_k=20, top_p=0.95, seed=number))
    tokens = answers(drive, rows, texts, outputs, budget)
    report = report_of(worker, setup)
    worker.close()
    tell({"sameness": job.arguments["model"], "setup": str(setup), "dtype": dtype, "tokens": tokens, "report": report})


def answers(drive: Rows, rows: list[int], texts: list[NDArray[np.int32]], outputs: int, budget: int) -> list[list[int]]:
    """Each step takes every row that decodes, and of the prompts what the budget leaves."""
    computed, told = [0] * len(rows), [list[int]() for _ in rows]
    while any(len(one) < outputs for one in told):
        taken, sample, left = list[int](), list[bool](), budget
        new = list[NDArray[np.int32] | None]()
        for i, text in enumerate(texts):
            if computed[i] >= len(text) and len(told[i]) < outputs:
                taken.append(i)
                new.append(None)
                sample.append(True)
                left -= 1
        for i, text in enumerate(texts):
            if computed[i] < len(text) and left > 0:
                chunk = text[computed[i] : computed[i] + left]
                taken.append(i)
                new.append(chunk)
                sample.append(computed[i] + len(chunk) == len(text))
                left -= len(chunk)
        result = drive.step(
            [rows[i] for i in taken], np.array([computed[i] for i in taken]), new, sample=sample
        ).result()
        if result.errors:
            raise RuntimeError(f"rows failed: {dict(result.errors)}")
        for place, i in enumerate(taken):
            given = new[place]
            computed[i] += 1 if given is None else len(given)
            told[i] += result.tokens[result.starts[place] : result.starts[place + 1]].tolist()
    return told
