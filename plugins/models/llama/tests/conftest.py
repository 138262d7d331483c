"""A rig for model tests: tiny transformers checkpoints, and our model on them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import LoadReport, Ops, Shard, Weight
from jackfield.layers.builder import TorchBuilder
from jackfield.testing.dense_context import DenseContext, Ranks
from jackfield_models_llama.model import Llama
from jackfield_models_llama.shape import describe
from jackfield_ops_torch.ops import TorchOps

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def read_safetensors(path: Path) -> Iterator[Weight]:
    """The tensors of a checkpoint directory, read here so that these tests need no loader plugin."""
    for file in sorted(path.glob("*.safetensors")):
        raw = np.frombuffer(file.read_bytes(), dtype=np.uint8)
        start = 8 + int(raw[:8].view("<u8")[0])
        header: Mapping[str, Any] = json.loads(raw[8:start].tobytes())
        for name, entry in header.items():
            if name != "__metadata__":
                first, last = entry["data_offsets"]
                yield Weight(
                    name=name,
                    encoding="plain",
                    dtype=_DTYPES[entry["dtype"]],
                    shape=tuple(entry["shape"]),
                    parts={"data": raw[start + first : start + last]},
                )


class Rig:
    """Builds and runs models."""

    read_weights = staticmethod(read_safetensors)
    ranks = Ranks

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0

    def checkpoint(self, config: Any, *, seed: int = 0, scale: float = 0.3) -> tuple[Any, Path]:
        """A random transformers model for this config, and the directory to which it was saved."""
        from transformers import AutoModelForCausalLM

        torch.manual_seed(seed)
        auto: Any = AutoModelForCausalLM
        reference = auto.from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            for name, parameter in reference.named_parameters():
                # larger than the usual start, so that attention is not flat and a wrong position shows
                parameter.copy_(torch.randn_like(parameter) * scale + (1.0 if "norm" in name else 0.0))
        self.count += 1
        directory = self.path / f"checkpoint{self.count}"
        reference.save_pretrained(directory)
        return reference, directory

    def reopen(self, directory: Path, dtype: torch.dtype) -> Any:
        """The reference as transformers itself loads it. (`model.to(dtype)` would round its rotary frequencies too.)"""
        from transformers import AutoModelForCausalLM

        auto: Any = AutoModelForCausalLM
        return auto.from_pretrained(directory, dtype=dtype, attn_implementation="eager").eval()

    def config(self, directory: Path) -> dict[str, Any]:
        return dict(json.loads((directory / "config.json").read_text()))

    def make(
        self,
        config: Mapping[str, Any],
        weights: Iterator[Weight],
        *,
        shard: Shard | None = None,
        ops: Ops | None = None,
        dtype: str = "float32",
        **options: Any,
    ) -> tuple[Llama, LoadReport]:
        shard = shard or Shard()
        shape = describe(config, shard)
        build = TorchBuilder(shape=shape, shard=shard, ops=ops or TorchOps(), device="cpu", dtype=dtype, **options)
        model = Llama(config, build)
        return model, model.load(weights)

    def logits(
        self,
        model: Llama,
        ids: list[int],
        *,
        ops: Ops | None = None,
        embeds: torch.Tensor | None = None,
        **where: Any,
    ) -> torch.Tensor:
        ctx = DenseContext(ops or TorchOps(), **where)
        ctx.step([(0, len(ids))])
        with torch.inference_mode():
            return model.logits(model.forward(torch.tensor(ids), ctx, embeds), ctx)

    def sharded_logits(self, directory: Path, ids: list[int], size: int) -> list[torch.Tensor]:
        """Every rank's logits."""
        config, ranks = self.config(directory), Ranks(size)
        models = []
        for rank in range(size):
            shard = Shard(tp_rank=rank, tp_size=size)
            model, report = self.make(config, read_safetensors(directory), shard=shard)
            assert report.ok, report.problems()
            models.append(model)
        return ranks.run(lambda rank: self.logits(models[rank], ids, ranks=ranks, rank=rank))

    def reference_logits(self, reference: Any, ids: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return reference(torch.tensor([ids])).logits[0].float()  # type: ignore[no-any-return]

    @staticmethod
    def assert_close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-4) -> None:
        """max|a - b| <= tolerance * max|b| at every position."""
        error = (ours - theirs).abs().amax(-1) / theirs.abs().amax(-1)
        assert ours.shape == theirs.shape
        assert error.max() <= tolerance, f"relative error {error.max():.2e} at position {int(error.argmax())}"


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)
