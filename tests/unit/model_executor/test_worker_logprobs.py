"""The torch worker's log-probabilities against transformers' float32 log-softmax, under chunks, sharing and company."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import Logprobs, LogprobSpec
from jackfield.model_executor import logprobs as module
from jackfield.model_executor.torch_worker import TorchWorker
from jackfield.testing.worker_driver import Advance, WorkerDriver
from tests.unit.model_executor.conftest import VOCAB, Checkpoint

PROMPT = [(17 * i) % (VOCAB - 3) + 2 for i in range(23)]
IDS = np.array([5, 0, VOCAB - 1], dtype=np.int32)


def reference(llama: Checkpoint, tokens: list[int]) -> torch.Tensor:
    """[len - 1, vocab]: row p is of the token at position p + 1."""
    return torch.log_softmax(llama.logits(tokens), dim=-1)[:-1]


def row_entries(found: Logprobs, i: int) -> list[dict[str, Any]]:
    entries = []
    for j in range(int(found.starts[i]), int(found.starts[i + 1])):
        ids = slice(int(found.ids_starts[j]), int(found.ids_starts[j + 1]))
        entries.append(
            {
                "chosen": float(found.chosen[j]),
                "top_values": found.top_values[j],
                "top_ids": found.top_ids[j],
                "ids": found.ids_values[ids],
            }
        )
    return entries


def compare(entry: dict[str, Any], row: torch.Tensor, token: int, spec: LogprobSpec) -> None:
    assert entry["chosen"] == pytest.approx(float(row[token]), abs=1e-3)
    best = row.topk(spec.top)
    np.testing.assert_allclose(entry["top_values"][: spec.top], best.values.numpy(), atol=1e-3)
    for token_id, value in zip(entry["top_ids"][: spec.top].tolist(), entry["top_values"].tolist(), strict=False):
        assert value == pytest.approx(float(row[token_id]), abs=1e-3)
    np.testing.assert_allclose(entry["ids"], row[torch.from_numpy(spec.ids.astype(np.int64))].numpy(), atol=1e-3)


@pytest.mark.parametrize("slice_rows", [1, 4, 1000])
@pytest.mark.parametrize("chunk", [1, 5, 23])
@pytest.mark.parametrize("start", [1, 6, 22, 23])
def test_entries_are_transformers(
    make_worker: Callable[..., TorchWorker],
    llama: Checkpoint,
    start: int,
    chunk: int,
    slice_rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SLICE_ELEMENTS", slice_rows * VOCAB)
    worker = make_worker(llama)
    driver = WorkerDriver(worker)
    spec = LogprobSpec(top=4, ids=IDS, prompt_start=start, prompt_end=len(PROMPT))
    other = LogprobSpec(top=2, prompt_start=3, prompt_end=3)
    silent = driver.open(PROMPT[:7])
    company = driver.open(PROMPT[3:6], logprobs=other)
    request = driver.open(PROMPT, logprobs=spec)
    prompts: list[dict[str, Any]] = []
    outputs: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    while len(request.output) < 4:
        left = len(request.tokens) - request.computed
        mine = Advance(request=request, new=min(left, chunk), sample=left <= chunk)
        result = driver.step(silent, mine, company)
        assert result.logprobs is not None
        assert int(result.logprobs.starts[1]) == 0, "a row that wants none has some"
        found = row_entries(result.logprobs, 1)
        count = int(result.logprobs.prompt[1])
        prompts += found[:count]
        outputs += found[count:]
        beside += row_entries(result.logprobs, 2)
        assert result.logprobs.chosen.dtype == result.logprobs.top_values.dtype == np.float32
        assert result.logprobs.top_ids.dtype == np.int32
    rows = reference(llama, request.tokens)
    assert len(prompts) == len(PROMPT) - start
    for position, entry in enumerate(prompts, start=start):
        compare(entry, rows[position - 1], PROMPT[position], spec)
    assert len(outputs) == 4
    for i, entry in enumerate(outputs):
        compare(entry, rows[len(PROMPT) + i - 1], request.output[i], spec)
    company_rows = reference(llama, company.tokens)
    assert len(beside) == len(company.output)
    for i, entry in enumerate(beside):
        compare(entry, company_rows[len(company.tokens) - len(company.output) + i - 1], company.output[i], other)


def test_they_are_of_the_raw_logits_whatever_shapes_the_draw(
    make_worker: Callable[..., TorchWorker], llama: Checkpoint
) -> None:
    driver = WorkerDriver(make_worker(llama))
    spec = LogprobSpec(top=3)
    request = driver.open(PROMPT, logprobs=spec, temperature=3.0, top_k=40, top_p=0.9, min_p=0.001, seed=3)
    for _ in range(5):
        result = driver.step(request)
        assert result.logprobs is not None
        (entry,) = row_entries(result.logprobs, 0)
        compare(entry, reference(llama, request.tokens)[-1], request.tokens[-1], spec)


def test_nobody_who_asks_means_nothing_computed(
    make_worker: Callable[..., TorchWorker], llama: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = WorkerDriver(make_worker(llama))

    def refuse(*_: Any) -> Any:
        raise AssertionError("computed although nobody asked")

    wanting = driver.open(PROMPT[:4], logprobs=LogprobSpec())
    assert driver.step(wanting).logprobs is not None
    monkeypatch.setattr(module.Entries, "of", refuse)
    driver.close(wanting)
    silent = driver.open(PROMPT, row=wanting.row)
    assert driver.step(silent).logprobs is None
    assert driver.step(silent).logprobs is None
