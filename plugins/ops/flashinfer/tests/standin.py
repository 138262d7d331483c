"""A stand-in for FlashInfer's operators on CPU tensors. Calls are bound by the recorded signatures; what the kernels check or
would misread is refused, and numbers are computed with the kernels' roundings."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from plugins.ops.flashinfer.tests.api import RECORDED
from torch.nn import functional

from jackfield.testing.recorded_signatures import recorded_signatures

SIGNATURES = recorded_signatures(RECORDED)
DTYPES = (torch.float16, torch.bfloat16)


def _normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """float32, rounded by the caller once."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()


def rmsnorm(given: SimpleNamespace) -> torch.Tensor:
    x = given.input
    assert x.dtype in DTYPES
    assert given.weight.dtype == x.dtype, "the kernel reads the weight as the input's dtype"
    assert x.dim() in (2, 3)
    assert x.stride(-1) == 1
    return _normed(x.float(), given.weight, given.eps).to(x.dtype)


def fused_add_rmsnorm(given: SimpleNamespace) -> None:
    x, residual = given.input, given.residual
    assert x.dim() == residual.dim() == 2
    assert x.dtype == residual.dtype == given.weight.dtype
    total = x.float() + residual.float()  # normed before it is rounded
    residual.copy_(total)
    x.copy_(_normed(total, given.weight, given.eps))


def apply_rope_with_cos_sin_cache_inplace(given: SimpleNamespace) -> None:
    cache, head = given.cos_sin_cache, given.head_size
    assert cache.dtype == torch.float32
    assert cache.is_contiguous()
    assert given.positions.dtype in (torch.int32, torch.int64)
    assert head in (64, 128, 256, 512)
    assert given.is_neox
    half = cache.shape[1] // 2
    assert half % max(8, head // 32) == 0, "the kernel goes over whole vectors"
    cos, sin = (part[given.positions.long()][:, None] for part in cache.split(half, dim=1))
    for flat in (given.query, given.key):
        x = flat.view(flat.shape[0], -1, head)
        first, second = x[..., :half].float(), x[..., half : 2 * half].float()
        x[..., :half], x[..., half : 2 * half] = first * cos - second * sin, second * cos + first * sin


def _and_mul(activation: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[SimpleNamespace], torch.Tensor]:
    def compute(given: SimpleNamespace) -> torch.Tensor:
        assert given.input.is_contiguous()
        gate, up = given.input.float().chunk(2, dim=-1)
        return (activation(gate) * up).to(given.input.dtype)

    return compute


def top_k(given: SimpleNamespace) -> Any:
    assert given.input.is_contiguous()
    assert given.input.dtype == torch.float32
    assert 1 <= given.k <= given.input.shape[1]
    return torch.topk(given.input, given.k, sorted=given.sorted)


def module() -> ModuleType:
    """With a list `calls` of the names of the functions that were called."""
    made = ModuleType("flashinfer")
    made.__spec__ = ModuleSpec("flashinfer", None)
    calls: list[str] = []
    functions = {
        "rmsnorm": rmsnorm,
        "fused_add_rmsnorm": fused_add_rmsnorm,
        "apply_rope_with_cos_sin_cache_inplace": apply_rope_with_cos_sin_cache_inplace,
        "silu_and_mul": _and_mul(functional.silu),
        "gelu_and_mul": _and_mul(functional.gelu),
        "gelu_tanh_and_mul": _and_mul(lambda x: functional.gelu(x, approximate="tanh")),
        "top_k": top_k,
    }
    for name, function in functions.items():
        setattr(made, name, _bound(name, function, calls))
    made.calls = calls  # type: ignore[attr-defined]
    return made


def _bound(name: str, function: Callable[[SimpleNamespace], Any], calls: list[str]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        bound = SIGNATURES[name].bind(*args, **kwargs)
        bound.apply_defaults()
        calls.append(name)
        return function(SimpleNamespace(**bound.arguments))

    return called
