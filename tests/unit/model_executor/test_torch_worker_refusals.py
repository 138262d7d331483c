"""What TorchWorker refuses: at the start, with one message an operator can act on; later, before anything changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from jackfield.hookspecs import InsufficientMemory, ModelSourceError, Shard, WorkerContext, WorkerOp
from jackfield.model_executor.batch_check import InvalidBatch
from jackfield.model_executor.loading import model_class
from jackfield.model_executor.torch_worker import TorchWorker
from jackfield.testing.worker_driver import Advance, WorkerDriver

MakeWorker = Callable[..., TorchWorker]
PROMPT = [5, 6, 7, 8]


def test_every_problem_of_a_checkpoint_stands_in_one_message(
    worker_context: Callable[..., WorkerContext], llama: Any, tmp_path: Path
) -> None:
    """B76: missing keys are listed and fatal, never left random."""
    tensors = load_file(llama.path / "model.safetensors")
    del tensors["lm_head.weight"]
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.norm.weight"] = torch.ones(7)
    tensors["model.surprise"] = torch.ones(3)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text((llama.path / "config.json").read_text())
    broken = type(llama)(tmp_path, llama.model)
    with pytest.raises(ModelSourceError) as caught:
        TorchWorker(worker_context(broken))
    text = str(caught.value)
    assert "LlamaForCausalLM needs; 4 problems" in text
    assert "missing: lm_head.weight" in text
    assert "missing: model.layers.1.mlp.up_proj.weight" in text
    assert "unexpected: model.surprise" in text
    assert "wrong shape: model.norm.weight is [7], the config asks for [48]" in text


def test_a_pool_that_does_not_fit(worker_context: Callable[..., WorkerContext], llama: Any) -> None:
    with pytest.raises(InsufficientMemory, match="lower --max-total-tokens to"):
        TorchWorker(worker_context(llama, max_total_tokens=10**12))
    with pytest.raises(InsufficientMemory, match="less than one page of 16 tokens"):
        TorchWorker(worker_context(llama, max_total_tokens=15, page_size=16))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"stack": None}, "needs = "),
        ({"shard": Shard(tp_size=2)}, "2 tensor-parallel"),
        ({"max_context": 97}, "--context-length 97 is beyond the model's 96 positions"),
        ({"vocab_size": 9}, "the model has 131 tokens in its vocabulary, the run 9"),
        ({"dtype": "float3"}, "no dtype named 'float3'"),
    ],
)
def test_a_context_that_it_does_not_do(
    worker_context: Callable[..., WorkerContext], llama: Any, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        TorchWorker(replace(worker_context(llama), **changes))


def test_limits_say_what_the_pool_is(make_worker: MakeWorker, llama: Any) -> None:
    limits = make_worker(llama, page_size=16, max_total_tokens=100, dtype="bfloat16").limits
    assert (limits.total_slots, limits.page_size, limits.max_rows) == (96, 16, 9)
    assert limits.kv_bytes_per_slot == 3 * 2 * 2 * 8 * 2  # layers, k and v, KV heads, head size, bytes
    assert make_worker(llama, max_total_tokens=None).limits.total_slots == 65536


def test_a_refused_batch_leaves_the_worker_as_it_was(make_worker: MakeWorker, llama: Any) -> None:
    driven = WorkerDriver(make_worker(llama))
    request = driven.open(PROMPT)
    good = driven.batch([Advance(request=request)])
    for bad in (
        replace(good, token_ids=good.token_ids + 1000),
        replace(good, relay=~good.relay),
        replace(good, rows=good.rows + 1),
    ):
        with pytest.raises(InvalidBatch):
            driven.worker.launch(bad)
    driven.collect(driven.worker.launch(good), Advance(request=request))
    assert request.output == llama.greedy(PROMPT, 1)


def test_slots_that_were_never_written_are_refused(make_worker: MakeWorker, llama: Any) -> None:
    """The row's place in the table still says slot 0, the dummy page, where requests would overwrite each other."""
    driven = WorkerDriver(make_worker(llama))
    request = driven.open(PROMPT)
    batch = driven.batch([Advance(request=request)])
    with pytest.raises(InvalidBatch, match="goes on to 4 tokens, but only 0 of them have a slot"):
        driven.worker.launch(replace(batch, writes=type(batch.writes)()))


def test_each_launch_is_sampled_once_and_in_order(make_worker: MakeWorker, llama: Any) -> None:
    driven = WorkerDriver(make_worker(llama))
    first, second = driven.open(PROMPT), driven.open(PROMPT)
    one, two = driven.launch(Advance(request=first)), driven.launch(Advance(request=second))
    with pytest.raises(RuntimeError, match="out of order"):
        driven.worker.sample(two)
    assert driven.worker.sample(one).ready()
    with pytest.raises(RuntimeError, match="twice"):
        driven.worker.sample(one)
    driven.worker.sample(two)


def test_a_batch_without_rows_applies_its_changes(make_worker: MakeWorker, llama: Any) -> None:
    driven = WorkerDriver(make_worker(llama, max_running=1))
    request = driven.open(PROMPT)
    driven.step(request)
    driven.close(request)
    result = driven.step()
    assert (result.tokens.size, result.starts.tolist(), dict(result.errors)) == (0, [0], {})
    assert driven.generate(PROMPT, 2) == llama.greedy(PROMPT, 2)


def test_a_closed_worker_frees_its_memory_and_says_that_it_is_closed(make_worker: MakeWorker, llama: Any) -> None:
    driven = WorkerDriver(make_worker(llama))
    request = driven.open(PROMPT)
    launched = driven.launch(Advance(request=request))
    pending = driven.worker.sample(launched)
    later = driven.launch(Advance(request=request, new=1, relay=True))
    driven.worker.close()
    driven.worker.close()
    assert pending.result().tokens.tolist() == llama.greedy(PROMPT, 1)
    with pytest.raises(RuntimeError, match="closed"):
        driven.worker.sample(later)
    with pytest.raises(RuntimeError, match="closed"):
        driven.worker.launch(driven.batch([]))


def test_an_unknown_control_operation_is_answered(make_worker: MakeWorker, llama: Any) -> None:
    reply = make_worker(llama).control(WorkerOp(name="fly"))
    assert not reply.ok
    assert "fly" in reply.message


def test_a_model_entry_must_lead_to_a_model() -> None:
    with pytest.raises(ValueError, match="has the form"):
        model_class("package.module.Class")
    with pytest.raises(TypeError, match="not a subclass"):
        model_class("collections:OrderedDict")


def test_batches_keep_their_arrays(make_worker: MakeWorker, llama: Any) -> None:
    driven = WorkerDriver(make_worker(llama))
    batch = driven.batch([Advance(request=driven.open(PROMPT))])
    arrays = [batch.rows, batch.token_ids, batch.computed, batch.new_tokens, batch.writes.slots]
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    driven.worker.sample(driven.worker.launch(batch)).result()
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))


def test_discovery_modules_import_no_torch() -> None:
    """The entry points' modules are imported when a stack is loaded; torch comes only when a plugin is made."""
    code = (
        "import sys, jackfield_worker_torch.torch, jackfield_attention_torch.torch\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
