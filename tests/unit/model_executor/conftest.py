"""Tiny random checkpoints, written by transformers, and workers that run them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from jackfield.hookspecs import (
    CORE_LAYOUTS,
    AttentionContext,
    ModelsContext,
    ModelSource,
    Shard,
    WorkerContext,
    WorkerStack,
)
from jackfield.model_executor.torch_worker import TorchWorker
from jackfield_attention_torch.backend import TorchAttention
from jackfield_models_llama.llama import jackfield_models
from jackfield_models_llama.shape import describe
from jackfield_models_loaders.safetensors_source import SafetensorsSource
from jackfield_ops_torch.ops import TorchOps

VOCAB = 131
CONTEXT = 96
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,  # large, so that a random model has clear favourites and greedy tokens vary
    "attn_implementation": "eager",
}


class Checkpoint:
    """A checkpoint on disk and transformers' model of it."""

    def __init__(self, path: Path, model: torch.nn.Module) -> None:
        self.path = path
        self.model = model

    @torch.no_grad()
    def logits(self, tokens: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """[len(tokens), vocab] in float32, computed in `dtype`."""
        model = self.model if dtype is torch.float32 else copy.deepcopy(self.model).to(dtype)
        found: torch.Tensor = model(torch.tensor([list(tokens)]), use_cache=False).logits
        return found[0].float()

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(self.logits(tokens)[-1].argmax()))
        return tokens[len(prompt) :]


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    torch.manual_seed(11)
    return _save(LlamaForCausalLM(LlamaConfig(**SIZES)), tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def mistral(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """With a sliding window of 8 tokens."""
    torch.manual_seed(12)
    return _save(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=8)), tmp_path_factory.mktemp("mistral"))


def _save(model: Any, path: Path) -> Checkpoint:
    model.eval()
    model.save_pretrained(path)
    return Checkpoint(path, model)


def attention_maker(fields: Mapping[str, Any]) -> TorchAttention:
    return TorchAttention(AttentionContext(kind="attention", name="torch", instance="torch", **fields))


def make_context(source: ModelSource, **changes: Any) -> WorkerContext:
    """What the core hands a worker; `stack_changes` and the fields of WorkerContext may be named."""
    config = source.config()
    shape = describe(config, Shard())
    stack: dict[str, Any] = {
        "source": source,
        "config": config,
        "shape": shape,
        "model": jackfield_models(ModelsContext(kind="model", name="llama", instance="llama"))[
            config["architectures"][0]
        ],
        "layout": CORE_LAYOUTS["nhd-paged"],
        "attention": {"prefill": ("torch", attention_maker), "decode": ("torch", attention_maker)},
        "ops": lambda fields: TorchOps(),
    }
    stack |= changes.pop("stack_changes", {})
    fields: dict[str, Any] = {
        "kind": "worker",
        "name": "torch",
        "instance": "torch",
        "shard": Shard(),
        "device": "cpu",
        "dtype": "float32",
        "seed": 0,
        "page_size": 1,
        "max_running": 8,
        "max_total_tokens": 1024,
        "max_context": CONTEXT,
        "max_tokens": 256,
        "vocab_size": shape.vocab_size,
        "stack": WorkerStack(**stack),
    }
    return WorkerContext(**{**fields, **changes})


@pytest.fixture
def make_worker() -> Iterator[Callable[..., TorchWorker]]:
    """make_worker(checkpoint, **context fields); closed at the end of the test."""
    made: list[TorchWorker] = []

    def make(checkpoint: Checkpoint, **changes: Any) -> TorchWorker:
        made.append(TorchWorker(make_context(SafetensorsSource(checkpoint.path), **changes)))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


@pytest.fixture(scope="session")
def worker_context() -> Callable[..., WorkerContext]:
    return lambda checkpoint, **changes: make_context(SafetensorsSource(checkpoint.path), **changes)
