"""The operators over a stand-in that computes what FlashInfer's kernels would from what they are handed."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch

from jackfield.hookspecs import AttentionLayer, PreAttention
from jackfield.layers.rope_config import parse_rope
from jackfield.layers.rotary import RotaryTable
from jackfield.layers.sampling import sample_on_device
from jackfield.layers.torch_ops import TorchOps
from jackfield.testing.conformance import OpsConformance
from jackfield.testing.ops_twin import PlainNorm, PlainRotary, TwinContext
from jackfield.testing.sampling_twin import Draw, sampling_rows, some_streams
from jackfield_ops_flashinfer.ops import FlashInferOps

PLAIN = TorchOps()


@pytest.mark.usefixtures("standin")
class TestConformance(OpsConformance):
    plugin = "flashinfer"

    def here(self) -> str:
        """On CPU tensors, which the stand-in takes; the manifest's devices are FlashInfer's."""
        return "cpu"


@pytest.mark.usefixtures("standin")
class TestNothingFused(OpsConformance):
    """Each part can be left to plain torch, all of them too."""

    plugin = "flashinfer"
    options = {"fused": []}  # noqa: RUF012

    def here(self) -> str:
        return "cpu"


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def before_attention(head: int, turned: int, *, table: bool, norms: bool) -> PreAttention:
    layer = AttentionLayer(id=0, group="full", num_heads=4, num_kv_heads=2, head_size=head, v_head_size=head, scale=1.0)
    rope = parse_rope({"rope_theta": 100.0, "max_position_embeddings": 64}, head_size=turned)
    norm = PlainNorm(weight=1 + random(head, seed=7) / 8, eps=1e-6)
    return PreAttention(
        layer=layer,
        norm=PlainNorm(weight=1 + random(32, seed=8) / 8, eps=1e-6),
        qkv=random(8 * head, 32, seed=1) / 6,
        qkv_bias=None,
        rotary=RotaryTable(rope, max_context=64, device="cpu") if table else PlainRotary(size=turned),
        q_norm=norm if norms else None,
        k_norm=norm if norms else None,
    )


@pytest.mark.parametrize("norms", [True, False])
@pytest.mark.parametrize("table", [True, False], ids=["the core's table", "another rotary"])
@pytest.mark.parametrize(
    ("head", "turned", "fused"), [(64, 64, True), (64, 16, True), (128, 64, True), (64, 24, False), (80, 80, False)]
)
def test_rotary(standin: ModuleType, head: int, turned: int, fused: bool, table: bool, norms: bool) -> None:
    """By FlashInfer where it has the head and turns whole vectors of it, else plain; with the same numbers."""
    block = before_attention(head, turned, table=table, norms=norms)
    x, residual, positions = random(5, 32, seed=2), random(5, 32, seed=3), torch.tensor([3, 0, 40, 63, 7])
    ops = FlashInferOps()
    found = ops.pre_attention(block, x.clone(), residual.clone(), TwinContext(ops, positions))
    wanted = PLAIN.pre_attention(block, x, residual, TwinContext(PLAIN, positions))
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine is not None
        assert theirs is not None
        torch.testing.assert_close(mine, theirs, rtol=0.03, atol=0.03)
    assert ("apply_rope_with_cos_sin_cache_inplace" in standin.calls) is fused


def test_what_enters_the_first_layer_stays(standin: ModuleType) -> None:
    """The residual that the layers change in place is their own; `norm` changes nothing."""
    block = before_attention(64, 64, table=True, norms=False)
    ops, x = FlashInferOps(), random(3, 32)
    before = x.clone()
    *_, residual = ops.pre_attention(block, x, None, TwinContext(ops, torch.arange(3)))
    residual.zero_()
    ops.norm(x, block.norm.weight, 1e-6, x)
    assert torch.equal(x, before)


def test_a_float32_weight_is_not_handed_to_a_kernel_that_would_misread_it(standin: ModuleType) -> None:
    ops, x, weight = FlashInferOps(), random(3, 32), torch.rand(32) + 1
    assert torch.equal(ops.norm(x, weight, 1e-6)[0], PLAIN.norm(x, weight, 1e-6)[0])
    assert standin.calls == []


def test_relu_is_plain(standin: ModuleType) -> None:
    ops, x = FlashInferOps(), random(3, 64)
    assert torch.equal(ops._gated("relu", x), PLAIN._gated("relu", x))
    ops._gated("silu", x)
    assert standin.calls == ["silu_and_mul"]


@pytest.mark.parametrize("most", [5, 2**31 - 1])
def test_the_selection_takes_the_place_of_the_sort(standin: ModuleType, most: int) -> None:
    """Where every filtered row has a top-k; the tokens are the same either way, of equals the lower ids."""
    streams = some_streams(300)
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(1)).mul(2).round().div(2).expand(300, -1)
    draws = [replace(Draw(top_k=5, top_p=0.8), stream=stream) for stream in streams]
    draws[7] = replace(draws[7], top_k=most, top_p=0.5)
    rows = sampling_rows(draws)
    found = FlashInferOps().sample(logits.clone(), rows)
    assert torch.equal(found, sample_on_device(logits.clone(), rows))
    assert ("top_k" in standin.calls) is (most == 5)


def test_each_part_can_be_left_out(standin: ModuleType) -> None:
    block = before_attention(64, 64, table=True, norms=True)
    for left, absent in (("norm", "rmsnorm"), ("rotary", "apply_rope_with_cos_sin_cache_inplace")):
        standin.calls.clear()
        ops = FlashInferOps(frozenset({"norm", "rotary", "activation", "top_k"} - {left}))
        ops.pre_attention(block, random(3, 32), random(3, 32), TwinContext(ops, torch.arange(3)))
        assert absent not in standin.calls
        assert standin.calls
