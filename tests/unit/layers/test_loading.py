"""The router: names, patterns, mistakes in a model's own code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from jackfield.hookspecs import Weight
from jackfield.layers.loading import Expected, WeightRouter
from jackfield.layers.norm import RMSNorm


def weight(name: str, values: list[float]) -> Weight:
    array = np.array(values, dtype=np.float32)
    return Weight(name=name, encoding="plain", dtype="float32", shape=array.shape, parts={"data": array.view(np.uint8)})


def test_patterns_match_whole_names() -> None:
    router = WeightRouter()
    router.ignore(r"layers\.\d+\.inv_freq")
    report = router.load(iter([weight("layers.3.inv_freq", [1.0]), weight("layers.3.inv_freq_2", [1.0])]))
    assert report.unexpected == ("layers.3.inv_freq_2",)
    assert report.loaded == 0


def test_two_parts_that_ask_for_one_tensor_are_a_mistake() -> None:
    router = WeightRouter()
    router.expect("a", Expected((1,), lambda _: None))
    with pytest.raises(ValueError, match="tensor a"):
        router.expect("a", Expected((1,), lambda _: None))


def test_a_tensor_that_is_not_required_is_not_missing() -> None:
    router = WeightRouter()
    router.expect("a", Expected((1,), lambda _: None, required=False))
    router.expect("b", Expected((1,), lambda _: None))
    assert router.load(iter([])).missing == ("b",)


def test_an_error_of_the_source_is_not_swallowed() -> None:
    def broken() -> Iterator[Weight]:
        yield weight("a", [1.0])
        raise OSError("the file went away")

    router = WeightRouter()
    router.expect("a", Expected((1,), lambda _: None))
    with pytest.raises(OSError, match="went away"):
        router.load(broken())


def test_an_offset_norm_holds_offset_plus_tensor_in_float32() -> None:
    norm = RMSNorm(2, eps=1e-6, offset=1.0, device="cpu", dtype=torch.bfloat16)
    norm.accept(weight("n", [0.001, -0.5]))
    assert norm.weight.dtype == torch.float32
    torch.testing.assert_close(norm.weight, torch.tensor([1.001, 0.5]))
    assert RMSNorm(2, eps=1e-6, offset=0.0, device="cpu", dtype=torch.bfloat16).weight.dtype == torch.bfloat16
