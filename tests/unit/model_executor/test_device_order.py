"""On a device that runs beside the host, TorchWorker waits nowhere but for a result: shown by the order of what it does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import LogitsProcessor, LogprobSpec, ProcessorSource, SamplingRows, WorkerContext
from jackfield.layers.sampling import sample_on_device
from jackfield.layers.sampling_filters import drop_by_order
from jackfield.model_executor.torch_worker import TorchWorker
from jackfield.testing.fake_device import FakeDevice
from jackfield.testing.worker_driver import Advance, WorkerDriver
from jackfield_ops_torch.ops import TorchOps
from jackfield_sampling_processors.device_ngrams import DeviceNgrams
from jackfield_sampling_processors.no_repeat_ngram import NoRepeatNgram, NoRepeatNgramParameters

MakeContext = Callable[..., WorkerContext]
PROMPTS = [[5, 6, 7, 8, 9], [40, 41], [60, 61, 62, 63, 64, 65, 66, 67, 68]]


class DeviceOps(TorchOps):
    """Samples as on a GPU, where the tensors of the test lie on the CPU."""

    def sample(self, logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
        return sample_on_device(logits, rows, drop=_drop_top)


def _drop_top(weights: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> None:
    """With torch's sort, as on a GPU."""
    drop_by_order(weights, weights.sort(dim=-1, descending=True).values, top_k, top_p)


def driven(context: MakeContext, checkpoint: Any, device: FakeDevice, **changes: Any) -> WorkerDriver:
    made = context(checkpoint, stack_changes={"ops": lambda fields: DeviceOps()}, **changes)
    return WorkerDriver(TorchWorker(made, device), seed=3)


@pytest.mark.parametrize("checkpoint", ["llama", "mistral"])
def test_nothing_waits_between_a_launch_and_its_result(
    worker_context: MakeContext, request: pytest.FixtureRequest, checkpoint: str
) -> None:
    reference, device = request.getfixturevalue(checkpoint), FakeDevice()
    driver = driven(worker_context, reference, device, page_size=4)
    requests = [driver.open(prompt) for prompt in PROMPTS]
    for step in range(5):
        full = [Advance(request=one) for one in requests]
        begin = len(device.log)
        with device.watch():
            pending = driver.worker.sample(driver.launch(*full))
            assert not [line for line in device.log[begin:] if line.startswith(("wait", "synchronise"))]
        result = pending.result()
        assert device.log[-1] == f"wait {step + 1}"
        for i, one in enumerate(requests):
            one.tokens += result.tokens[result.starts[i] : result.starts[i + 1]].tolist()
    assert [one.output for one in requests] == [reference.greedy(prompt, 5) for prompt in PROMPTS]


def test_a_step_is_enqueued_before_the_result_of_the_one_before_is_waited_for(
    worker_context: MakeContext, llama: Any
) -> None:
    """Two launches in flight: the second takes its tokens from the device."""
    device = FakeDevice()
    driver = driven(worker_context, llama, device)
    requests = [driver.open(prompt) for prompt in PROMPTS]
    outputs: list[list[int]] = [[] for _ in requests]
    with device.watch():
        pending = driver.worker.sample(driver.launch(*[Advance(request=one) for one in requests]))
        for step in range(2, 7):
            launched = driver.launch(*[Advance(request=one, new=1, relay=True) for one in requests])
            device.mark(f"launched {step}")
            for i, token in enumerate(pending.result().tokens):
                outputs[i].append(int(token))
            pending = driver.worker.sample(launched)
        for i, token in enumerate(pending.result().tokens):
            outputs[i].append(int(token))
    assert outputs == [llama.greedy(prompt, 6) for prompt in PROMPTS]
    told = [line for line in device.log if line.startswith(("wait", "mark", "download"))]
    assert told[:4] == ["download 1", "mark launched 2", "wait 1", "download 2"]
    assert told[-1] == "wait 6"
    for step in range(2, 7):
        assert device.log.index(f"mark launched {step}") < device.log.index(f"wait {step - 1}")


def test_log_probabilities_arrive_with_the_tokens(worker_context: MakeContext, llama: Any) -> None:
    device = FakeDevice()
    driver = driven(worker_context, llama, device)
    one = driver.open(PROMPTS[0], logprobs=LogprobSpec(top=2, prompt_start=1, prompt_end=5))
    with device.watch():
        pending = driver.worker.sample(driver.launch(Advance(request=one)))
    assert not [line for line in device.log if line.startswith(("wait", "synchronise"))]
    result = pending.result()
    assert result.logprobs is not None
    wanted = torch.log_softmax(llama.logits([*PROMPTS[0]]), dim=-1)
    chosen = [float(wanted[at, token]) for at, token in enumerate([*PROMPTS[0][1:], int(result.tokens[0])])]
    assert result.logprobs.chosen.tolist() == pytest.approx(chosen, abs=1e-4)


def test_rows_that_begin_and_end_and_what_they_ask_of_their_logits_wait_for_nothing(
    worker_context: MakeContext, llama: Any
) -> None:
    """Numbers written to indices of a device's tensor would be copied from the host, and waited for."""
    device = FakeDevice()
    driver = driven(worker_context, llama, device)
    ends = np.array([1, 2], dtype=np.int32)
    asking = {"repetition_penalty": 1.3, "frequency_penalty": 0.5, "min_new_tokens": 9, "end_ids": ends}
    for prompt in PROMPTS:
        one = driver.open(prompt, **asking)
        for _ in range(2):
            with device.watch():
                pending = driver.worker.sample(driver.launch(Advance(request=one)))
            one.tokens += pending.result().tokens.tolist()
        driver.close(one)
    assert not [line for line in device.log if line.startswith("synchronise")]


def test_draws_wait_for_nothing_and_are_those_of_the_host(worker_context: MakeContext, llama: Any) -> None:
    """Which rows draw, and behind which filters, is known to the host: the device is not asked for it."""
    ways = [
        {"temperature": 1.0, "seed": 5},
        {"temperature": 0.8, "top_k": 7, "top_p": 0.9, "seed": 6},
        {},
        {"temperature": 1.5, "min_p": 0.05, "seed": 7},
    ]
    device, outputs = FakeDevice(), []
    there, here = driven(worker_context, llama, device), WorkerDriver(TorchWorker(worker_context(llama)), seed=3)
    for driver in (there, here):
        requests = [driver.open([9, 8, 7 + i], **way) for i, way in enumerate(ways)]
        for _ in range(6):
            with device.watch() if driver is there else nullcontext():
                pending = driver.worker.sample(driver.launch(*[Advance(request=one) for one in requests]))
            for one, token in zip(requests, pending.result().tokens.tolist(), strict=True):
                one.tokens.append(token)
        outputs.append([one.output for one in requests])
    assert outputs[0] == outputs[1]
    assert not [line for line in device.log if line.startswith("synchronise")]


def source(name: str, processor: LogitsProcessor, faults: list[str]) -> ProcessorSource:
    return ProcessorSource(
        instance=name,
        make=lambda fields: processor,
        parameters=lambda values: NoRepeatNgramParameters(**values),
        fault=lambda error: faults.append(f"{name}: {error}"),
    )


def test_logits_processors_that_stay_on_the_device_wait_for_nothing(worker_context: MakeContext, llama: Any) -> None:
    """And forbid what they forbid on the host, of tokens that the host has not seen."""
    prompt, asks = [7, 7, 9, 7, 9], {"ngrams": {"ngram_size": 1}}
    outputs = []
    for device, processor in ((FakeDevice(), DeviceNgrams(9, "cpu")), (FakeDevice(), NoRepeatNgram())):
        driver = driven(worker_context, llama, device, processors=(source("ngrams", processor, []),))
        one, plain = driver.open(prompt, processors=asks), driver.open(prompt)
        with device.watch():
            pending = driver.worker.sample(driver.launch(Advance(request=one), Advance(request=plain)))
        for _ in range(7):
            with device.watch():
                launched = driver.launch(*[Advance(request=row, new=1, relay=True) for row in (one, plain)])
            outputs.append(pending.result().tokens.tolist())
            with device.watch():
                pending = driver.worker.sample(launched)
        waits = [line for line in device.log if line.startswith("synchronise")]
        assert bool(waits) == isinstance(processor, NoRepeatNgram)
        driver.worker.close()
    assert outputs[:7] == outputs[7:]
    drawn = [step[0] for step in outputs[:7]]
    assert len({*prompt, *drawn}) == 2 + 7
    assert [step[1] for step in outputs[:7]] == llama.greedy(prompt, 7)


class Breaks(LogitsProcessor):
    """From its second call on it allows the first of its rows no token."""

    def __init__(self) -> None:
        self.calls = 0

    def apply(self, logits: torch.Tensor, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        self.calls += 1
        if self.calls > 1:
            logits[0].fill_(-torch.inf)


def test_what_a_processor_breaks_is_told_with_the_result(worker_context: MakeContext, llama: Any) -> None:
    device, faults = FakeDevice(), list[str]()
    sources = (source("breaks", Breaks(), faults), source("ngrams", DeviceNgrams(9, "cpu"), faults))
    driver = driven(worker_context, llama, device, processors=sources)
    wishes = {"breaks": {"ngram_size": 9}, "ngrams": {"ngram_size": 1}}
    rows = [driver.open([60]), driver.open([7, 8], processors=wishes), driver.open([9, 8], processors=wishes)]
    driver.step(*rows)
    assert faults == []
    with device.watch():
        pending = driver.worker.sample(driver.launch(*[Advance(request=one) for one in rows]))
    assert not [line for line in device.log if line.startswith("synchronise")]
    assert faults == []
    result = pending.result()
    assert faults == ["breaks: apply left a NaN or an infinity, or allowed no token at all"]
    assert list(result.errors) == [1]
    assert "'breaks' failed: ValueError: apply left a NaN" in result.errors[1]
    assert result.starts.tolist() == [0, 1, 1, 2]
    again = pending.result()
    assert (dict(again.errors), len(faults)) == (dict(result.errors), 1)
    for one, tokens in zip((rows[0], rows[2]), result.tokens.tolist(), strict=True):
        one.tokens.append(tokens)
    driver.close(rows[1])
    assert list(driver.step(rows[0], rows[2]).errors) == [1]  # now it is the first that asks
