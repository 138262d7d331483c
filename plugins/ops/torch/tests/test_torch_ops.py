"""The operators against float64 formulas and transformers' own activations; blocks are covered by the model tests."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.resources import files

import pytest
import torch

from jackfield.hookspecs import DenseWeight
from jackfield.testing.conformance import OpsConformance
from jackfield_ops_torch.ops import TorchOps

OPS = TorchOps()


class TestConformance(OpsConformance):
    plugin = "torch"


def test_rms_norm_of_large_half_precision_values_does_not_overflow() -> None:
    x = torch.full((1, 64), 60000.0, dtype=torch.float16)
    normed, _ = OPS.norm(x, torch.ones(64, dtype=torch.float16), 1e-5)
    torch.testing.assert_close(normed, torch.ones_like(normed))


def test_a_float32_weight_multiplies_before_the_rounding() -> None:
    """How models with an offset norm compute it."""
    x = torch.randn(3, 16).to(torch.bfloat16)
    weight = torch.rand(16) + 1
    normed, _ = OPS.norm(x, weight, 1e-6)
    wide = x.float()
    expected = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * weight).to(torch.bfloat16)
    assert torch.equal(normed, expected)


def test_packing_plain_weights_makes_no_copy() -> None:
    weight = torch.randn(3, 6)
    packed = OPS.pack(DenseWeight(encoding="plain", out_features=3, in_features=6, data=weight))
    assert packed.data_ptr() == weight.data_ptr()


def test_an_encoding_that_the_manifest_does_not_list_is_refused() -> None:
    (row,) = tomllib.loads((files("jackfield_ops_torch") / "plugin.toml").read_text())["plugin"]
    assert row["encodings"] == ["plain"]
    data = torch.zeros(2, 34, dtype=torch.uint8)
    with pytest.raises(ValueError, match="q8_0"):
        OPS.pack(DenseWeight(encoding="q8_0", out_features=2, in_features=32, data=data))


def test_the_entry_point_imports_no_torch() -> None:
    code = "import sys, jackfield_ops_torch.torch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
