"""The warm-up: which steps and draws are run once at start, where, in which order, and that nothing of it is left behind."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import (
    AttentionBatch,
    AttentionContext,
    BatchFault,
    InsufficientMemory,
    Pooling,
    SamplingRows,
    WorkerContext,
)
from jackfield.layers.sampling import sample_on_device
from jackfield.model_executor.device import Memory
from jackfield.model_executor.torch_worker import TorchWorker
from jackfield.model_executor.warm_up.steps import FEW, LONG, MANY, SOME, asked_of_draws, warm_up_steps
from jackfield.testing.fake_device import FakeDevice
from jackfield.testing.graph_attention import FEATURES, GraphAttention
from jackfield.testing.worker_driver import WorkerDriver
from jackfield_ops_torch.ops import TorchOps

MakeContext = Callable[..., WorkerContext]
PROMPT = [5, 6, 7, 8, 9]


class Watched:
    """What reaches the plugins, in order: ("step", lengths), ("draw", SamplingRows), ("record", rows)."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def of(self, what: str) -> list[Any]:
        return [one for name, one in self.seen if name == what]


def stack(watched: Watched) -> dict[str, Any]:
    class Attention(GraphAttention):
        def plan(self, batch: AttentionBatch) -> Any:
            host = batch.host
            before = (host.kv_lens - host.q_lens).tolist()
            watched.seen.append(("step", tuple(zip(before, host.q_lens.tolist(), strict=True))))
            return super().plan(batch)

        def plan_graph(self, batch: AttentionBatch, shape: Any) -> Any:
            watched.seen.append(("record", shape.rows))
            return super().plan_graph(batch, shape)

    class Operators(TorchOps):
        def sample(self, logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
            watched.seen.append(("draw", rows))
            return sample_on_device(logits, rows)

    def made(fields: Mapping[str, Any]) -> GraphAttention:
        return Attention(AttentionContext(kind="attention", name="graphs", instance="graphs", **fields))

    return {
        "ops": lambda fields: Operators(),
        "ops_features": frozenset({"graph"}),
        "attention": dict.fromkeys(("prefill", "decode"), ("graphs", made)),
        "attention_features": dict.fromkeys(("prefill", "decode"), frozenset(FEATURES)),
    }


class Counting(FakeDevice):
    """Counts memory, so that the largest step is measured."""

    def peak(self) -> int:
        return 2**20


def test_all_steps_and_draws_come_before_the_largest_step_and_that_before_the_recordings(
    worker_context: MakeContext, llama: Any
) -> None:
    watched = Watched()
    context = worker_context(llama, warm_up=True, graph_rows=(2,), stack_changes=stack(watched))
    TorchWorker(context, Counting()).close()
    steps = warm_up_steps(max_running=8, max_tokens=256, max_context=96)
    largest = ((0, 96), (0, 96), (0, 59), *[(0, 1)] * 5)
    found = watched.of("step")
    assert found[: len(steps)] == steps
    draws = len(asked_of_draws(131, FEW))
    after = found[len(steps) + draws :]
    assert after[0] == largest
    measured = watched.seen.index(("step", largest))
    assert [what for what, _ in watched.seen[:measured]].count("draw") == len(steps) + draws
    assert watched.seen.index(("record", 2)) > measured


def test_each_way_to_draw_is_met(worker_context: MakeContext, llama: Any) -> None:
    watched = Watched()
    TorchWorker(worker_context(llama, warm_up=True, stack_changes=stack(watched)), FakeDevice()).close()
    met: set[str] = set()
    for rows in watched.of("draw"):
        if rows.greedy:
            met.add("greedy")
            continue
        groups = rows.groups
        met.add(f"plain {bool(len(groups.plain))}, filtered {bool(len(groups.filtered))}, min-p {groups.min_p}")
    assert met == {
        "greedy",
        "plain True, filtered False, min-p False",
        "plain False, filtered True, min-p False",
        "plain True, filtered False, min-p True",
        "plain True, filtered True, min-p True",
    }


@pytest.mark.parametrize("checkpoint", ["llama", "mistral"])
def test_nothing_of_it_is_left(worker_context: MakeContext, request: pytest.FixtureRequest, checkpoint: str) -> None:
    """Tables, tokens, pools and draws are as of a worker that was not warmed up; so are the random numbers of the process."""
    reference = request.getfixturevalue(checkpoint)
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    outputs = []
    for warm in (True, False):
        worker = TorchWorker(worker_context(reference, warm_up=warm, page_size=4), FakeDevice())
        assert not bool(worker._table.slots.any())
        assert not bool(worker._draws.newest.any())
        assert worker.kv is not None
        assert not any(bool(one.any()) for kv in worker.kv.values() for ones in kv.tensors.values() for one in ones)
        driver = WorkerDriver(worker, seed=3)
        outputs.append(
            [driver.generate(PROMPT, 5), driver.generate(PROMPT, 5, temperature=1.0, seed=7, repetition_penalty=1.2)]
        )
        worker.close()
    assert outputs[0] == outputs[1]
    assert outputs[0][0] == reference.greedy(PROMPT, 5)
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("way", ["not asked for", "a device that compiles nothing"])
def test_where_there_is_nothing_to_warm_nothing_is_run(
    worker_context: MakeContext, llama: Any, monkeypatch: pytest.MonkeyPatch, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    watched = Watched()
    monkeypatch.setattr(FakeDevice, "compiles", way == "not asked for")
    context = worker_context(llama, warm_up=way != "not asked for", graph_rows=(), stack_changes=stack(watched))
    with caplog.at_level(logging.INFO, logger="jackfield"):
        TorchWorker(context, FakeDevice()).close()
    assert watched.seen == []
    assert "ahead of requests" not in caplog.text


def test_on_a_cpu_nothing_is_run(worker_context: MakeContext, llama: Any) -> None:
    watched = Watched()
    TorchWorker(worker_context(llama, warm_up=True, stack_changes=stack(watched))).close()
    assert watched.seen == []


def test_the_log_and_who_watches_the_start_hear_of_it(
    worker_context: MakeContext, llama: Any, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[tuple[str, int, int]] = []
    context = worker_context(llama, warm_up=True, progress=lambda *news: told.append(news))
    with caplog.at_level(logging.INFO, logger="jackfield"):
        TorchWorker(context, FakeDevice()).close()
    (line,) = [record.getMessage() for record in caplog.records if "ahead of requests" in record.getMessage()]
    steps, draws = len(warm_up_steps(max_running=8, max_tokens=256, max_context=96)), len(asked_of_draws(131, FEW))
    assert line.startswith(f"kernels were run once ahead of requests, in {steps} steps and {draws} ways to draw: ")
    assert line.endswith(" s")
    news = [(done, of) for what, done, of in told if what == "warming up kernels"]
    assert news == [(done, steps + draws) for done in range(steps + draws + 1)]


@pytest.mark.parametrize("whole", [True, False])
def test_a_run_that_pools_is_warmed_up_by_what_it_runs(worker_context: MakeContext, llama: Any, whole: bool) -> None:
    watched = Watched()
    context = worker_context(
        llama,
        warm_up=True,
        pooling=Pooling(kind="embedding", width=48, whole=whole),
        stack_changes=stack(watched),
    )
    TorchWorker(context, FakeDevice()).close()
    found = watched.of("step")
    assert found == warm_up_steps(max_running=8, max_tokens=256, max_context=96, whole=whole)
    assert any(before for step in found for before, _ in step) != whole
    assert watched.of("draw") == []


def test_a_lack_of_memory_says_what_to_change(
    worker_context: MakeContext, llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(TorchOps, "sample", out_of_memory)
    with pytest.raises(InsufficientMemory, match=r"running kernels once ahead of requests .*--skip-server-warmup"):
        TorchWorker(worker_context(llama, warm_up=True), FakeDevice(memory=Memory(free=2**30, total=2**31)))


def test_a_step_that_attention_refuses_is_told_and_the_start_goes_on(
    worker_context: MakeContext, llama: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Narrow(GraphAttention):
        def plan(self, batch: AttentionBatch) -> Any:
            if batch.max_q > FEW:
                raise BatchFault("too little scratch memory")
            return super().plan(batch)

    def made(fields: Mapping[str, Any]) -> GraphAttention:
        return Narrow(AttentionContext(kind="attention", name="narrow", instance="narrow", **fields))

    attention = {"attention": dict.fromkeys(("prefill", "decode"), ("narrow", made))}
    with caplog.at_level(logging.WARNING, logger="jackfield"):
        driver = WorkerDriver(TorchWorker(worker_context(llama, warm_up=True, stack_changes=attention), FakeDevice()))
    assert "a step of 96 tokens behind 0 was refused ahead of requests: too little scratch memory" in caplog.text
    assert driver.generate(PROMPT[:2], 3) == llama.greedy(PROMPT[:2], 3)


def test_the_steps_of_a_large_run() -> None:
    steps = warm_up_steps(max_running=256, max_tokens=8192, max_context=32768)
    assert len(set(steps)) == len(steps)
    single = {(before > 0, len(step) > 1) for step in steps for before, new in step if {one for _, one in step} == {1}}
    assert single == {(False, False), (False, True), (True, False)}
    assert {(before, new) for step in steps for before, new in step if len(step) == 1} == {
        (before, new) for before in (0, LONG) for new in (1, FEW, SOME, MANY)
    }
    mixed = [step for step in steps if len({new for _, new in step}) > 1]
    assert {before for step in mixed for before, new in step if new == 1} == {0, LONG}


@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 1, 9), (2, 3, 2), (1, 4096, 3), (256, 2, 4096), (3, 130, 100)])
def test_no_step_is_larger_than_the_run_allows(sizes: tuple[int, int, int]) -> None:
    running, tokens, context = sizes
    steps = warm_up_steps(max_running=running, max_tokens=tokens, max_context=context)
    assert steps
    assert len(set(steps)) == len(steps)
    for step in steps:
        assert 1 <= len(step) <= running
        assert sum(new for _, new in step) <= tokens
        assert all(new >= 1 and before >= 0 and before + new <= context for before, new in step)


@pytest.mark.parametrize("changes", [{"max_running": 1, "max_tokens": 1}, {"max_running": 2, "max_tokens": 3}])
def test_a_tiny_run_warms_up(worker_context: MakeContext, llama: Any, changes: dict[str, int]) -> None:
    watched = Watched()
    TorchWorker(
        worker_context(llama, warm_up=True, graph_rows=(), stack_changes=stack(watched), **changes), FakeDevice()
    ).close()
    assert len(watched.of("draw")) == len(watched.of("step")) > len(asked_of_draws(131, 1))
    assert all(sum(new for _, new in step) <= changes["max_tokens"] for step in watched.of("step"))


def test_rows_that_want_something_are_as_many_as_all_of_a_step_and_some() -> None:
    asked = asked_of_draws(131, FEW)
    assert sum(one.masked for one in asked) == 1
    for name in ("frequency_penalty", "repetition_penalty", "bias_ids", "min_new_tokens", "logprobs"):
        shares = {np.mean([name in row for row in one.rows]) == 1 for one in asked if any(name in r for r in one.rows)}
        assert shares == {True, False}, name
