"""One model under one setup: loads it once, then times prefill and decode. arguments: {model, setup, batches}."""

from __future__ import annotations

import time

from benchmarks.gpu import decode, prefill
from benchmarks.gpu.clock import settled
from benchmarks.gpu.jobs import Job, Row, Tell, guarded
from benchmarks.gpu.providers import describe
from benchmarks.gpu.shapes import MODELS, counts
from benchmarks.gpu.stack import Setup, Sizes, fill_kv, make_worker, report_of

CONTEXT = 1024
"""Tokens that each row has before it is timed in decode."""

SHARE = 0.8
"""Of the device's free memory, for weights and KV; large batches that do not fit into it are left out, and told."""


def run(job: Job, tell: Tell) -> None:
    model, setup = job.arguments["model"], Setup.parse(job.arguments["setup"])
    config, device = MODELS[model], job.device
    tiny = job.tiny
    dtype = "bfloat16" if "bfloat16" in setup.common_dtypes(device) else "float32"
    context = 24 if tiny else CONTEXT
    steps = 3 if tiny else decode.STEPS
    chunk = 12 if tiny else prefill.CHUNK
    wanted: list[int] = job.arguments["batches"]
    room = (context + decode.rounds(tiny) * steps + decode.WARM + 2) if wanted else 0
    batches = [rows for rows in wanted if tiny or fits(model, rows * room, 2)]
    row: Row = {"model": model, "setup": str(setup), "dtype": dtype}
    for rows in wanted:
        if rows not in batches:
            tell(
                row
                | {"decode": rows, "left_out": f"its keys and values do not fit into {SHARE:.0%} of the free memory"}
            )
    page = 4 if tiny else 16
    slots = max([pages(room, page) * rows for rows in batches] + [pages(2 * chunk, page)]) * page
    sizes = Sizes(
        max_rows=max([*batches, 1]),
        max_context=max(room, 2 * chunk) + page,
        total_slots=slots,
        max_tokens=chunk,
        page_size=page,
        batches=tuple(batches),
    )
    began = time.perf_counter()
    worker = make_worker(model, setup, sizes, device=device, dtype=dtype)
    fill_kv(worker)
    tell(row | {"load_seconds": settled(device) - began})
    tell(guarded(row, lambda: {"report": report_of(worker, setup)}))
    itemsize = 4 if dtype == "float32" else 2
    for cached in (0, chunk):
        if job.left > 0:
            tell(prefill.measure(worker, row, counts(config), new=chunk, cached=cached, device=device, tiny=tiny))
    for rows in batches:
        if job.left <= 0:
            tell(row | {"decode": rows, "left_out": "no time was left"})
            continue
        tell(
            decode.measure(
                worker,
                row,
                counts(config),
                rows=rows,
                context=context,
                steps=steps,
                itemsize=itemsize,
                device=device,
                tiny=tiny,
            )
        )
    tell(
        guarded(row, lambda: {"report": report_of(worker, setup)})
    )  # with the steps that ran as graphs, and those that did not
    worker.close()


def pages(tokens: int, page_size: int) -> int:
    return -(-tokens // page_size)


def fits(model: str, tokens: int, itemsize: int) -> bool:
    config = MODELS[model]
    numbers = counts(config)
    weights = numbers.matrix_elements + (0 if config["tie_word_embeddings"] else numbers.vocab_elements)
    return (weights + tokens * numbers.kv_elements) * itemsize < SHARE * describe("cuda").available_memory
