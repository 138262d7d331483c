"""Run by `test_ops_triton.py` in a process of its own, where Triton's interpreter is switched on before a kernel is imported."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from jackfield.hookspecs import AttentionLayer, PreAttention
from jackfield.layers.rope_config import RopeConfig
from jackfield.layers.rotary import RotaryTable
from jackfield.layers.sampling import sample
from jackfield.layers.torch_ops import TorchOps
from jackfield.testing.conformance import OpsConformance
from jackfield.testing.ops_twin import PlainNorm, TwinContext
from jackfield.testing.sampling_twin import Draw, sampling_rows, some_streams
from jackfield_ops_triton.kernels import activation, heads, norm, sampling
from jackfield_ops_triton.ops import KERNELS, TritonOps

# A tiny temperature divides to minus infinity, as it is meant to; the interpreter's NumPy tells.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in divide:RuntimeWarning")

LAYER = AttentionLayer(id=0, group="full", num_heads=5, num_kv_heads=1, head_size=20, v_head_size=20, scale=1.0)


class TestConformance(OpsConformance):
    plugin = "triton"
    device = "cpu-interpreted"


def test_a_row_longer_than_a_program_holds_is_normed_in_parts() -> None:
    x, residual, weight = torch.randn(2, 3, 50), torch.randn(2, 3, 50), torch.randn(50)
    found = norm.norm(x, weight, 1e-5, residual, largest_block=16)
    for mine, theirs in zip(found, TorchOps().norm(x, weight, 1e-5, residual), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("normed", [True, False])
def test_angles_are_read_where_the_run_keeps_them(normed: bool) -> None:
    """Of a table over all positions, with heads and head sizes that are no powers of two."""
    rope = RopeConfig(rope_type="default", theta=1e4, rotary_size=12, max_position=64)
    head_norm = PlainNorm(weight=torch.randn(20), eps=1e-5) if normed else None
    block = PreAttention(
        layer=LAYER,
        norm=PlainNorm(weight=torch.ones(24), eps=1e-5),
        qkv=torch.randn(140, 24),
        qkv_bias=None,
        rotary=RotaryTable(rope, max_context=64, device="cpu"),
        q_norm=head_norm,
        k_norm=head_norm,
    )
    x, positions = torch.randn(3, 24), torch.tensor([63, 0, 17])
    wanted = TorchOps().pre_attention(block, x, None, TwinContext(TorchOps(), positions))
    ops = TritonOps(KERNELS)
    found = ops.pre_attention(block, x, None, TwinContext(ops, positions))
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine is not None
        torch.testing.assert_close(mine, theirs)


DRAWS = (
    Draw(top_k=40),
    Draw(top_p=0.95, temperature=2.0, min_p=0.001),
    Draw(top_k=60, top_p=0.9),
    Draw(top_k=3, top_p=0.5, temperature=0.1),
    Draw(min_p=0.2),
    Draw(temperature=0.0),
)


@pytest.mark.parametrize(
    ("draws", "room", "tile"), [(DRAWS, 128, 32), (DRAWS[1:3], 8, 128)], ids=["lists", "whole rows"]
)
def test_rows_are_drawn_from_lists_and_where_these_are_too_short_from_the_whole(
    draws: tuple[Draw, ...], room: int, tile: int
) -> None:
    """Rows of all kinds of numbers, and rows of a few, whose border is among equals."""
    noise = torch.randn(2 * len(draws), 100, generator=torch.Generator().manual_seed(1)) * 3
    logits = torch.cat((noise[::2], noise[1::2].round().clamp(-2, 1)))
    streams = some_streams(len(logits))
    given = sampling_rows([draw.over([stream])[0] for draw, stream in zip(draws * 2, streams, strict=True)])
    assert sampling.sample(logits, given, room=room, tile=tile).tolist() == sample(logits, given).tolist()


@pytest.mark.parametrize("rows", [1, 2, 3, 8])
def test_what_sampling_launches_has_one_alignment(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all numbers of rows: else a kernel is compiled anew, in the midst of a run, for each other mixture of alignments."""
    given: list[Any] = []

    class Launched:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *arguments, **constants: given.extend(arguments)

    monkeypatch.setattr(sampling, "survey", Launched())
    monkeypatch.setattr(sampling, "race", Launched())
    sampling.sample(torch.randn(rows, 64), sampling_rows([Draw(top_k=3)] * rows))
    pointers = [one.data_ptr() for one in given if isinstance(one, torch.Tensor)]
    assert len(pointers) == 25
    assert [at % 16 for at in pointers] == [0] * len(pointers)


@pytest.mark.parametrize("off", KERNELS)
def test_a_kernel_that_is_switched_off_is_not_launched(off: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And torch gives what it would have."""
    launchers: dict[str, tuple[Any, str]] = {
        "norm": (norm, "norm"),
        "rotary": (heads, "heads"),
        "activation": (activation, "gated"),
        "sampling": (sampling, "sample"),
    }

    def launched(*given: Any, **more: Any) -> None:
        raise AssertionError(f"{off} was launched")

    monkeypatch.setattr(*launchers[off], launched)
    x, qkv, positions = torch.randn(1, 16), torch.randn(1, 140), torch.tensor([3])
    block = PreAttention(layer=LAYER, norm=PlainNorm(weight=x[0], eps=1e-5), qkv=None, qkv_bias=None, rotary=None)
    greedy = sampling_rows([Draw(temperature=0.0)])
    calls: dict[str, Any] = {
        "norm": lambda ops: ops.norm(x, x[0], 1e-5)[0],
        "rotary": lambda ops: ops._heads(block, qkv, TwinContext(ops, positions))[1],
        "activation": lambda ops: ops._gated("silu", x),
        "sampling": lambda ops: ops.sample(x, greedy),
    }
    some = TritonOps(name for name in KERNELS if name != off)
    for name, call in calls.items():
        if name == off:
            assert torch.equal(call(some), call(TorchOps()))
            with pytest.raises(AssertionError, match="was launched"):
                call(TritonOps(KERNELS))
        else:
            torch.testing.assert_close(call(some), call(TorchOps()))
