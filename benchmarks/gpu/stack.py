"""A `TorchWorker` over random weights and two plugins, as the runtime makes one, without the runtime."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from benchmarks.gpu.providers import Provider, providers
from benchmarks.gpu.shapes import MODELS
from benchmarks.gpu.weights import RandomSource

from jackfield.hookspecs import CORE_LAYOUTS, ModelEntry, Shard, WorkerContext, WorkerStack
from jackfield.model_executor.torch_worker import TorchWorker

CODE = {
    "LlamaForCausalLM": ModelEntry(
        shape="jackfield_models_llama.shape:describe", model="jackfield_models_llama.model:Llama"
    ),
    "Qwen3ForCausalLM": ModelEntry(
        shape="jackfield_models_qwen.shape:describe", model="jackfield_models_qwen.model:Qwen"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One way of running a model. attention, ops: names of plugins; graphs: decode steps are recorded and replayed."""

    attention: str
    ops: str
    graphs: bool = False

    def __str__(self) -> str:
        return f"{self.attention}+{self.ops}{'+graphs' if self.graphs else ''}"

    @property
    def plugins(self) -> tuple[str, str]:
        return f"attention.{self.attention}", f"ops.{self.ops}"

    @property
    def parts(self) -> tuple[Provider, Provider]:
        attention, ops = self.plugins
        return providers()[attention], providers()[ops]

    def common_dtypes(self, device: str) -> list[str]:
        """Those in which both compute here."""
        attention, ops = self.parts
        return [name for name in attention.dtypes(device) if name in ops.dtypes(device)]

    def environment(self, device: str) -> dict[str, str]:
        """What a process needs in which it runs on this device."""
        return {name: value for one in self.parts if one.interpreted(device) for name, value in one.environment.items()}

    @classmethod
    def parse(cls, text: str) -> Setup:
        attention, ops, *graphs = text.split("+")
        return cls(attention=attention, ops=ops, graphs=bool(graphs))


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a run needs room for. batches: numbers of rows that are decoded together."""

    max_rows: int
    max_context: int
    total_slots: int
    max_tokens: int
    page_size: int
    batches: tuple[int, ...]


def make_worker(model: str, setup: Setup, sizes: Sizes, *, device: str, dtype: str) -> TorchWorker:
    attention, ops = setup.parts
    source = RandomSource(MODELS[model], dtype)
    config = source.config()
    entry = CODE[config["architectures"][0]]
    module, _, name = entry.shape.partition(":")
    shape = getattr(import_module(module), name)(config=config, shard=Shard())
    made = ("attention", attention.make)
    stack = WorkerStack(
        source=source,
        config=config,
        shape=shape,
        model=entry,
        layout=CORE_LAYOUTS[layout_of(attention, ops)],
        attention=dict.fromkeys(("prefill", "decode"), made),
        attention_features=dict.fromkeys(("prefill", "decode"), attention.features),
        ops=ops.make,
        ops_features=ops.features,
    )
    context = WorkerContext(
        kind="worker",
        name="torch",
        instance="torch",
        shard=Shard(),
        device=device,
        dtype=dtype,
        seed=0,
        page_size=sizes.page_size,
        max_running=sizes.max_rows,
        max_total_tokens=sizes.total_slots,
        max_context=sizes.max_context,
        max_tokens=sizes.max_tokens,
        vocab_size=shape.vocab_size,
        stack=stack,
        graph_rows=sizes.batches if setup.graphs else (),
    )
    return TorchWorker(context)


def report_of(worker: TorchWorker, setup: Setup) -> dict[str, Any]:
    """What the worker tells of itself. Raises RuntimeError where graphs were asked for and are not used."""
    report = dict(worker.report())
    if setup.graphs and report.get("graphs") != "on":
        raise RuntimeError(f"graphs were asked for, and are not used: {report.get('graphs')}")
    return report


def layout_of(attention: Provider, ops: Provider) -> str:
    """As resolution agrees on one: the first that attention likes and the operators write, else what attention likes best."""
    accepted, written = attention.row["layouts"], ops.row.get("layouts", ())
    return str(next((name for name in accepted if name in written), accepted[0]))


def fill_kv(worker: TorchWorker, seed: int = 0) -> None:
    """Random keys and values in the whole pool, so that nothing is timed on zeros."""
    assert worker.kv is not None
    for kv in worker.kv.values():
        for tensors in kv.tensors.values():
            for tensor in tensors:
                random = torch.Generator(tensor.device).manual_seed(seed)
                if tensor.dtype.itemsize > 1:
                    tensor.normal_(generator=random)
                else:
                    tensor.copy_(torch.randn(tensor.shape, generator=random, device=tensor.device))
