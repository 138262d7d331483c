"""The kernels of attention.triton and ops.triton: each variant is launched at start, and none that comes later is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch

from jackfield.hookspecs import AttentionContext, WorkerContext
from jackfield.model_executor import worker_start
from jackfield.model_executor.graphs import start as graphs_start
from jackfield.model_executor.torch_worker import TorchWorker
from jackfield.testing.fake_device import FakeDevice
from jackfield.testing.worker_driver import WorkerDriver
from jackfield_attention_triton import backend as backends
from jackfield_attention_triton.backend import TritonAttention
from jackfield_attention_triton.tuning import Blocks, Tuning
from jackfield_ops_triton.ops import KERNELS, TritonOps
from tests.unit.model_executor.mixed_serving import served
from tests.unit.model_executor.triton_launches import Key, noted

MakeContext = Callable[..., WorkerContext]


def attention(fields: Mapping[str, Any]) -> TritonAttention:
    return TritonAttention(AttentionContext(kind="attention", name="triton", instance="triton", **fields))


@pytest.fixture(autouse=True)
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU whose rows are cut from 32 keys on, for contexts as short as those of the test."""
    tuning = Tuning(
        decode=Blocks(lines=16, keys=16, warps=4, stages=3),
        extend=Blocks(lines=128, keys=16, warps=8, stages=2),
        programs=256,
        least_keys=32,
        max_splits=64,
    )
    monkeypatch.setattr(backends, "tuning_for", lambda *_: tuning)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[Key, int], set[Key]]]:
    """All launches, and those of the warm-up."""
    warm: set[Key] = set()
    with noted() as seen:
        original = worker_start.warm_up  # type: ignore[attr-defined]

        def warm_up(*given: Any) -> None:
            original(*given)
            warm.update(seen)

        monkeypatch.setattr(worker_start, "warm_up", warm_up)
        yield seen, warm


def driven(context: MakeContext, checkpoint: Any, graphs: tuple[int, ...], **changes: Any) -> WorkerDriver:
    stack = {
        "ops": lambda fields: TritonOps(KERNELS),
        "ops_features": frozenset({"graph"}),
        "attention": dict.fromkeys(("prefill", "decode"), ("triton", attention)),
        "attention_features": dict.fromkeys(("prefill", "decode"), frozenset({"mixed", "graph", "window"})),
    }
    made = context(checkpoint, warm_up=True, graph_rows=graphs, stack_changes=stack, **changes)
    return WorkerDriver(TorchWorker(made, FakeDevice()), seed=3)


def test_each_variant_is_launched_at_start(
    worker_context: MakeContext, llama: Any, launches: tuple[dict[Key, int], set[Key]]
) -> None:
    _, warm = launches
    driven(worker_context, llama, ()).worker.close()
    attended = {
        (constants["BLOCK_M"], constants["TILED"], constants["SPLIT"])
        for name, given, _ in warm
        if name == "attend_kernel" and (constants := dict(given))
    }
    decode = {(16, tiled, split) for tiled in (True, False) for split in (True, False)}
    extend = {(lines, True, split) for lines in (32, 128) for split in (True, False)}
    assert attended == decode | extend
    counts = Counter(name for name, *_ in warm)
    assert counts == {
        "attend_kernel": 8,
        "reduce_kernel": 4,  # of the four with splits
        "split_length_kernel": 4,
        "_norm": 2,  # with a residual, and without
        "_heads": 1,
        "_gated": 1,
        "survey": 2,  # of rows that are all greedy, and of others
        "race": 1,
    }


@pytest.mark.parametrize(
    ("checkpoint", "graphs", "changes"),
    [
        ("llama", (), {}),
        ("llama", (1, 4), {"page_size": 16, "max_total_tokens": 2048}),
        ("mistral", (2,), {"page_size": 4}),
    ],
    ids=["without graphs", "graphs of few rows", "windows"],
)
def test_nothing_that_is_launched_later_is_new(
    worker_context: MakeContext,
    request: pytest.FixtureRequest,
    launches: tuple[dict[Key, int], set[Key]],
    monkeypatch: pytest.MonkeyPatch,
    checkpoint: str,
    graphs: tuple[int, ...],
    changes: dict[str, Any],
) -> None:
    """Neither by recorded steps and what proves them, nor by requests."""
    seen, warm = launches
    proves = graphs_start.check_sameness  # type: ignore[attr-defined]

    def proved(*given: Any) -> float:
        with monkeypatch.context() as patch:  # nothing was computed, so nothing is the same
            patch.setattr("jackfield.model_executor.graphs.sameness._errors", lambda found, eager: torch.zeros(1))
            return proves(*given)

    monkeypatch.setattr(graphs_start, "check_sameness", proved)
    driver = driven(worker_context, request.getfixturevalue(checkpoint), graphs, **changes)
    new = set(seen) - warm
    assert not new, new
    met = Counter[str]()
    for seed in range(3):
        met += served(driver, seed, 40)
    assert min(met["decode"], met["mixed"], met["extend"]) >= 5
    new = set(seen) - warm
    assert not new, new
    driver.worker.close()
