"""Rotary tables against transformers' own, in both config layouts, and the turn against complex numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from jackfield.hookspecs import UnsupportedModel
from jackfield.layers.rope_config import parse_rope, stretched_context
from jackfield.layers.rotary import RotaryTable, apply_rotary

HEAD = 32
FACTORS = [1.0 + 0.25 * i for i in range(HEAD // 2)]
LLAMA3 = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 256}
LONGROPE = {"short_factor": [1.0] * 16, "long_factor": FACTORS, "original_max_position_embeddings": 256}

ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default", "rope_theta": 10000.0},
    "large-theta": {"rope_type": "default", "rope_theta": 5_000_000},
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6, "original_max_position_embeddings": 256},
    "yarn-without-original": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4},
    "yarn-betas": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "beta_fast": 16.0, "beta_slow": 2.0},
    "yarn-exact-range": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "truncate": False},
    "yarn-attention-factor": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, "attention_factor": 1.5},
    "yarn-mscale": {"rope_type": "yarn", "factor": 40.0, "rope_theta": 1e4, "mscale": 0.7, "mscale_all_dim": 1.2},
    "llama3": {"rope_type": "llama3", "rope_theta": 500000.0, **LLAMA3},
    "longrope": {"rope_type": "longrope", "rope_theta": 10000.0, **LONGROPE},
    "longrope-factor": {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 8.0, **LONGROPE},
    "longrope-attention": {"rope_type": "longrope", "rope_theta": 1e4, "attention_factor": 1.3, **LONGROPE},
}


def config(rope: dict[str, Any]) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=4 * HEAD, num_attention_heads=4, max_position_embeddings=1024, rope_parameters=dict(rope)
    )


def table(raw: dict[str, Any], max_context: int) -> RotaryTable:
    return RotaryTable(parse_rope(raw, head_size=HEAD), max_context=max_context, device="cpu")


def assert_same_tables(ours: RotaryTable, reference: LlamaConfig, positions: torch.Tensor) -> None:
    cos, sin = ours.tables(positions)
    their_cos, their_sin = LlamaRotaryEmbedding(reference)(torch.empty(1), positions[None])
    assert cos.dtype == torch.float32
    assert cos.shape == (len(positions), HEAD // 2)
    torch.testing.assert_close(cos, their_cos[0, :, : HEAD // 2], rtol=0, atol=2e-5)
    torch.testing.assert_close(sin, their_sin[0, :, : HEAD // 2], rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("layout", ["new", "old", "old-type", "both"])
def test_tables_equal_transformers(name: str, layout: str) -> None:
    rope = ROPES[name]
    raw: dict[str, Any] = {"max_position_embeddings": 1024}
    rest = {key: value for key, value in rope.items() if key not in ("rope_theta", "rope_type")}
    match layout:
        case "new":
            raw["rope_parameters"] = rope
        case "old":
            raw |= {"rope_theta": rope["rope_theta"], "rope_scaling": {"rope_type": rope["rope_type"], **rest}}
        case "old-type":
            raw |= {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": rope["rope_type"], **rest}}
        case "both":  # an old entry that says something stands for the whole, as in transformers
            raw |= {"rope_scaling": rope, "rope_parameters": {"rope_type": "default", "rope_theta": 3.0}}
    assert_same_tables(table(raw, 1024), config(rope), torch.arange(1024))


def test_old_layout_through_transformers_own_reading() -> None:
    """B76 (c): the same raw dict, read by transformers and by us."""
    raw = {
        "hidden_size": 4 * HEAD,
        "num_attention_heads": 4,
        "max_position_embeddings": 1024,
        "rope_theta": 777.0,
        "rope_scaling": {"type": "linear", "factor": 3.0},
    }
    assert_same_tables(table(raw, 1024), LlamaConfig.from_dict(dict(raw)), torch.arange(1024))


@pytest.mark.parametrize("raw", [{}, {"rope_scaling": None}, {"rope_parameters": {}}, {"rope_parameters": None}])
def test_b76_no_theta_anywhere_means_the_default(raw: dict[str, Any]) -> None:
    rope = parse_rope(raw, head_size=HEAD)
    assert (rope.theta, rope.rope_type) == (10000.0, "default")
    assert parse_rope(raw, head_size=HEAD, default_theta=2e6).theta == 2e6


def test_a_theta_inside_goes_before_one_outside() -> None:
    raw = {"rope_parameters": {"rope_theta": 5.0}, "rope_theta": 6.0}
    assert parse_rope(raw, head_size=HEAD).theta == 5.0
    assert parse_rope({"rope_parameters": {"rope_type": "default"}, "rope_theta": 6.0}, head_size=HEAD).theta == 6.0


def test_dynamic_in_a_run_shorter_than_its_context_is_not_scaled() -> None:
    raw = {"max_position_embeddings": 1024, "rope_parameters": ROPES["dynamic"]}
    assert_same_tables(table(raw, 300), config(ROPES["dynamic"]), torch.arange(300))


@pytest.mark.parametrize("length", [1025, 2000, 4096])
def test_dynamic_beyond_its_context_is_transformers_at_the_runs_length(length: int) -> None:
    rope = ROPES["dynamic"]
    raw = {"max_position_embeddings": 1024, "rope_parameters": rope}
    assert_same_tables(table(raw, length), config(rope), torch.arange(length))


@pytest.mark.parametrize(("run", "key"), [(256, "short_factor"), (257, "long_factor")])
def test_longrope_takes_one_set_of_factors_for_the_run(run: int, key: str) -> None:
    rope = parse_rope({"max_position_embeddings": 1024, "rope_parameters": ROPES["longrope"]}, head_size=HEAD)
    made = RotaryTable(rope, max_context=run, device="cpu")
    assert_same_tables(made, config(ROPES["longrope"]), torch.arange(run))
    assert getattr(rope, key) == tuple(ROPES["longrope"][key])


def test_a_position_has_one_rotation_whatever_else_is_asked() -> None:
    made = table({"max_position_embeddings": 64, "rope_parameters": ROPES["dynamic"]}, 512)
    everything, _ = made.tables(torch.arange(512))
    picked = torch.tensor([3, 500, 3, 64])
    assert torch.equal(made.tables(picked)[0], everything[picked])


@pytest.mark.parametrize(
    ("rope", "names"),
    [
        ({"rope_type": "spiral"}, "rope_type 'spiral'"),
        ({"rope_type": "linear"}, "factor is missing"),
        ({"rope_type": "linear", "factor": "2"}, "factor"),
        ({"rope_type": "linear", "factor": float("inf")}, "factor"),
        ({"rope_type": "llama3", "factor": 8.0}, "low_freq_factor is missing"),
        ({"rope_type": "llama3", **LLAMA3, "high_freq_factor": 0.5}, "high_freq_factor"),
        ({"rope_type": "longrope", **LONGROPE, "long_factor": [1.0]}, "long_factor must be a list of 16.*found 1"),
        ({"rope_type": "longrope", **LONGROPE, "short_factor": None}, "short_factor"),
        ({"rope_theta": 0}, "rope_theta"),
        ({"rope_theta": True}, "rope_theta"),
        ({"partial_rotary_factor": 0.3}, "partial_rotary_factor"),
        ({"full_attention": {"rope_type": "default"}}, "differs from layer to layer"),
        ("yes", "must be a table"),
    ],
)
def test_refusals_name_the_entry(rope: Any, names: str) -> None:
    with pytest.raises(UnsupportedModel, match=names):
        parse_rope({"rope_parameters": rope}, head_size=HEAD)


def test_longrope_is_also_called_su() -> None:
    raw = {"max_position_embeddings": 1024, "rope_scaling": {"type": "su", **LONGROPE}}
    assert parse_rope(raw, head_size=HEAD).rope_type == "longrope"


def test_phi_style_original_length_beside_the_entry() -> None:
    raw = {"max_position_embeddings": 1024, "original_max_position_embeddings": 128, "rope_scaling": ROPES["longrope"]}
    assert parse_rope(raw, head_size=HEAD).original_max == 128


def test_context_of_a_silent_config() -> None:
    assert stretched_context({}, default_max_position=77) == 77


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_turning_heads(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 3, HEAD).to(dtype)
    cos, sin = table({}, 64).tables(torch.tensor([0, 1, 2, 9, 33, 63]))
    turned = apply_rotary(x, cos, sin)
    wide = x.float()
    both = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    expected, _ = apply_rotary_pos_emb(wide, wide, *both, unsqueeze_dim=1)
    assert turned.dtype == dtype
    torch.testing.assert_close(turned, expected.to(dtype))
    assert torch.equal(turned[0], x[0])  # position 0 does not turn


def test_only_the_leading_dimensions_turn_with_a_partial_factor() -> None:
    rope = parse_rope({"rope_parameters": {"partial_rotary_factor": 0.5}}, head_size=HEAD)
    cos, sin = RotaryTable(rope, max_context=8, device="cpu").tables(torch.tensor([5]))
    assert cos.shape == (1, HEAD // 4)
    x = torch.randn(1, 2, HEAD)
    turned = apply_rotary(x, cos, sin)
    assert torch.equal(turned[..., HEAD // 2 :], x[..., HEAD // 2 :])
    assert torch.equal(turned[..., : HEAD // 2], apply_rotary(x[..., : HEAD // 2], cos, sin))
