"""Recorded decode steps, on a device that records as CUDA graphs do: results, padding, order, numbers, and what stops a start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import pytest
import torch

from jackfield.hookspecs import AttentionContext, InsufficientMemory, LogprobSpec, SamplingRows, WorkerContext
from jackfield.layers.sampling import sample_on_device
from jackfield.model_executor.graphs import GraphFailed, GraphMismatch
from jackfield.model_executor.graphs.sizes import padded, padded_sizes
from jackfield.model_executor.results import TorchLaunched
from jackfield.model_executor.torch_worker import TorchWorker
from jackfield.testing.fake_device import FakeDevice
from jackfield.testing.graph_attention import FEATURES, GraphAttention
from jackfield.testing.worker_driver import Advance, WorkerDriver
from jackfield_ops_torch.ops import TorchOps

MakeContext = Callable[..., WorkerContext]
PROMPTS = [[5, 6, 7, 8, 9], [40, 41], [60, 61, 62, 63, 64, 65, 66, 67, 68], [90], [17, 3, 99, 100]]


class DeviceOps(TorchOps):
    """Samples as on a GPU, where the tensors of the test lie on the CPU."""

    def sample(self, logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
        return sample_on_device(logits, rows)


def made(backend: type[GraphAttention]) -> Callable[[Mapping[str, Any]], GraphAttention]:
    return lambda fields: backend(AttentionContext(kind="attention", name="graphs", instance="graphs", **fields))


def worker(
    context: MakeContext,
    checkpoint: Any,
    device: FakeDevice | None = None,
    backend: type[GraphAttention] = GraphAttention,
    **changes: Any,
) -> TorchWorker:
    maker = made(backend)
    stack = {
        "ops": lambda fields: DeviceOps(),
        "ops_features": frozenset({"graph"}),
        "attention": dict.fromkeys(("prefill", "decode"), ("graphs", maker)),
        "attention_features": dict.fromkeys(("prefill", "decode"), frozenset(FEATURES)),
    }
    stack |= changes.pop("stack_changes", {})
    return TorchWorker(context(checkpoint, stack_changes=stack, **changes), device or FakeDevice())


@pytest.mark.parametrize(("checkpoint", "page_size"), [("llama", 1), ("llama", 16), ("mistral", 4)])
def test_every_padded_size_gives_what_eager_steps_give(
    worker_context: MakeContext, request: pytest.FixtureRequest, checkpoint: str, page_size: int
) -> None:
    """1 to 5 rows through graphs of 1, 3 and 5: each size is met full and with padding, and every decode step is replayed."""
    reference, device = request.getfixturevalue(checkpoint), FakeDevice()
    driver = WorkerDriver(worker(worker_context, reference, device, page_size=page_size, graph_rows=(1, 3, 5)), seed=3)
    requests = [driver.open(prompt) for prompt in PROMPTS]
    driver.step(*requests)
    for turn in range(10):
        some = np.random.default_rng(turn).permutation(np.array(requests, dtype=object))[: 1 + turn % 5]
        begin = len(device.log)
        driver.step(*some.tolist())
        assert device.log[begin:].count("replay") == 2  # the inputs', and the step
    for prompt, one in zip(PROMPTS, requests, strict=True):
        assert one.output == reference.greedy(prompt, len(one.output))
    report = driver.worker.report()
    assert report["graphs"] == "on"
    assert report["graph_rows"] == "1 3 5"
    assert (report["graph_steps"], report["eager_steps_prefill"]) == (10, 1)


def test_a_step_keeps_its_logits_while_others_replay_the_same_graph(worker_context: MakeContext, llama: Any) -> None:
    driver = WorkerDriver(worker(worker_context, llama, graph_rows=(4,)), seed=3)
    requests = [driver.open(prompt) for prompt in PROMPTS[:3]]
    driver.step(*requests)
    steps = [[Advance(request=one) for one in some] for some in (requests[:2], requests[2:])]
    launched = [driver.launch(*step) for step in steps]
    for step, one in zip(steps, launched, strict=True):
        found = cast(TorchLaunched, one).logits
        assert found is not None
        wanted = torch.stack([llama.logits(advance.request.tokens)[-1] for advance in step])
        assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-4


def test_two_launches_in_flight_wait_for_nothing_but_results(worker_context: MakeContext, llama: Any) -> None:
    """The second replay takes its tokens from the device, and is enqueued before the first result is waited for."""
    device = FakeDevice()
    driver = WorkerDriver(worker(worker_context, llama, device, graph_rows=(2, 4)), seed=3)
    requests = [driver.open(prompt) for prompt in PROMPTS[:3]]
    outputs: list[list[int]] = [[] for _ in requests]
    del device.log[:]
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
    assert outputs == [llama.greedy(prompt, 6) for prompt in PROMPTS[:3]]
    log = [line for line in device.log if line.startswith(("wait", "mark", "replay", "download"))]
    assert log[:5] == ["download 1", "replay", "replay", "mark launched 2", "wait 1"]
    assert log.count("replay") == 10
    for step in range(2, 7):
        assert log.index(f"mark launched {step}") < log.index(f"wait {step - 1}")


def test_padding_goes_to_the_dummy_slot_alone(worker_context: MakeContext, llama: Any) -> None:
    made_worker = worker(worker_context, llama, graph_rows=(8,))
    driver = WorkerDriver(made_worker, seed=3)
    one = driver.open(PROMPTS[0])
    driver.step(one)
    assert made_worker.kv is not None
    before = [t.clone() for kv in made_worker.kv.values() for ts in kv.tensors.values() for t in ts]
    driver.step(one)
    after = [t for kv in made_worker.kv.values() for ts in kv.tensors.values() for t in ts]
    changed = {
        int(page)
        for old, new in zip(before, after, strict=True)
        for page in (old != new).flatten(1).any(dim=1).nonzero()
    }
    assert changed - {0} == {one.slots[len(PROMPTS[0])]}


def test_what_the_start_used_is_free_and_clean_again(worker_context: MakeContext, mistral: Any) -> None:
    made_worker = worker(worker_context, mistral, page_size=4, graph_rows=(1, 8), window_pool=True)
    assert not bool(made_worker._table.slots.any())
    assert made_worker._window is not None
    assert not bool(made_worker._window._page_of.any())
    assert not bool(made_worker._draws.newest.any())


def test_steps_without_a_graph_are_counted_and_told_of_once(
    worker_context: MakeContext, llama: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="jackfield"):
        driver = WorkerDriver(worker(worker_context, llama, graph_rows=(1, 2)), seed=3)
        requests = [driver.open(prompt) for prompt in PROMPTS[:3]]
        for _ in range(3):
            driver.step(*requests)
        driver.step(*requests[:2])
        wants = driver.open([7, 8], logprobs=LogprobSpec(prompt_start=1, prompt_end=2))
        driver.step(Advance(request=wants, new=1, sample=False))
    report = driver.worker.report()
    assert {
        name: count for name, count in report.items() if name.endswith(("steps", "rows", "prefill", "logprobs"))
    } == {
        "graph_rows": "1 2",
        "graph_steps": 1,
        "eager_steps_prefill": 1,
        "eager_steps_rows": 2,
        "eager_steps_prompt_logprobs": 1,
    }
    told = [r.getMessage() for r in caplog.records if "without a recorded graph" in r.getMessage()]
    assert len(told) == 3
    assert sum("more rows than the largest graph" in text for text in told) == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"graph_rows": ()}, "switched off"),
        ({"graph_rows": (900, 64)}, "requests run at once, and the least wanted batch size is 64"),
        ({"stack_changes": {"ops_features": frozenset()}}, "the ops plugin does not declare"),
        (
            {"stack_changes": {"attention_features": {"decode": frozenset({"window"})}}},
            "attention plugin 'graphs' does not",
        ),
    ],
)
def test_a_run_without_graphs_says_why(worker_context: MakeContext, llama: Any, changes: Any, why: str) -> None:
    device = FakeDevice()
    made_worker = worker(worker_context, llama, device, **changes)
    assert why in str(made_worker.report()["graphs"])
    assert "capture" not in device.log


def test_a_cpu_has_no_graphs(make_worker: Callable[..., TorchWorker], llama: Any) -> None:
    assert make_worker(llama).report() == {"graphs": "cpu has no recorded work"}


class FreezesTheFirstLengths(GraphAttention):
    """What stood in the batch when the plan was made counts for ever."""

    def plan_graph(self, batch: Any, shape: Any) -> Any:
        plan = super().plan_graph(batch, shape)
        super().in_graph(plan)
        return plan

    def in_graph(self, plan: Any) -> None:
        pass


class TakesLengthsFromTheHost(GraphAttention):
    """The host's numbers are frozen in what was recorded."""

    def refresh(self, plan: Any, batch: Any) -> None:
        plan.batch = batch

    def slots(self, plan: Any, group: str, window: int | None) -> Any:
        longest = int(plan.batch.host.kv_lens.max())
        slots, seen = super().slots(plan, group, window)
        return slots, seen & (torch.arange(plan.longest) < longest)


class MissesOneRow(GraphAttention):
    """The last row sees nothing but itself."""

    def in_graph(self, plan: Any) -> None:
        super().in_graph(plan)
        last = torch.arange(len(plan.rows))[:, None] == len(plan.rows) - 1
        own = torch.arange(plan.longest)[None] == plan.positions[:, None]
        plan.seen = {sight: (slots, seen & (own | ~last)) for sight, (slots, seen) in plan.seen.items()}


@pytest.mark.parametrize("backend", [FreezesTheFirstLengths, TakesLengthsFromTheHost, MissesOneRow])
def test_a_wrong_graph_plan_stops_the_start_with_numbers(
    worker_context: MakeContext, llama: Any, backend: type[GraphAttention]
) -> None:
    with pytest.raises(GraphMismatch, match=r"rows does not give .* is off by \d.*%.*'graphs'.*--disable-cuda-graph"):
        worker(worker_context, llama, backend=backend, graph_rows=(1, 4))


class Waits(GraphAttention):
    def in_graph(self, plan: Any) -> None:
        assert int(plan.batch.kv_lens.max()) > 0
        super().in_graph(plan)


class OutOfMemory(GraphAttention):
    def plan_graph(self, batch: Any, shape: Any) -> Any:
        raise torch.OutOfMemoryError("Tried to allocate 20.00 GiB")


def test_what_cannot_be_recorded_stops_the_start(worker_context: MakeContext, llama: Any) -> None:
    told = "step of 4 rows could not be recorded .*'graphs': synchronise .*--disable-cuda-graph"
    with pytest.raises(GraphFailed, match=told):
        worker(worker_context, llama, backend=Waits, graph_rows=(4,))
    with pytest.raises(InsufficientMemory, match=r"out of memory .* of 4 rows .*20\.00 GiB.*--cuda-graph-max-bs"):
        worker(worker_context, llama, backend=OutOfMemory, graph_rows=(1, 4))


class OutOfMemoryWhileRecording(GraphAttention):
    """As torch does: a broken recording raises once more when it is ended."""

    def in_graph(self, plan: Any) -> None:
        try:
            raise torch.OutOfMemoryError("Tried to allocate 30.00 GiB")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")


def test_what_broke_a_recording_is_told(worker_context: MakeContext, llama: Any) -> None:
    with pytest.raises(InsufficientMemory, match=r"30\.00 GiB"):
        worker(worker_context, llama, backend=OutOfMemoryWhileRecording, graph_rows=(4,))


def test_the_logits_of_all_sizes_are_in_one_place(worker_context: MakeContext, llama: Any) -> None:
    graphs = worker(worker_context, llama, graph_rows=(1, 2, 5))._graphs
    assert len({one.step.outputs.untyped_storage().data_ptr() for one in graphs._recorded.values()}) == 1
    assert {size: len(one.step.outputs) for size, one in graphs._recorded.items()} == {1: 1, 2: 2, 5: 5}


def test_the_largest_is_recorded_first(worker_context: MakeContext, llama: Any) -> None:
    seen: list[int] = []

    class Tells(GraphAttention):
        def plan_graph(self, batch: Any, shape: Any) -> Any:
            assert (len(batch.rows), batch.host.kv_lens.tolist()) == (shape.rows, [1] * shape.rows)
            assert shape.max_kv == 96
            seen.append(shape.rows)
            return super().plan_graph(batch, shape)

    worker(worker_context, llama, backend=Tells, graph_rows=(1, 2, 5))
    assert seen == [5, 2, 1]


@pytest.mark.parametrize(
    ("wanted", "most", "running", "sizes"),
    [
        (None, None, 1, (1,)),
        (None, None, 6, (1, 2, 4, 6)),
        (None, 24, 256, (1, 2, 4, 8, 16, 24)),
        (None, None, 1000, (1, 2, 4, *range(8, 257, 8))),
        ((8, 1, 8, 300), None, 256, (1, 8)),
        ((), None, 256, ()),
    ],
)
def test_padded_sizes(wanted: Any, most: int | None, running: int, sizes: tuple[int, ...]) -> None:
    assert padded_sizes(wanted, most, running) == sizes


def test_the_least_size_that_holds_the_rows() -> None:
    assert [padded(n, (1, 4, 8)) for n in (1, 2, 4, 5, 8, 9)] == [1, 4, 4, 8, 8, None]
