"""A stand-in for FlashInfer on CPU tensors: takes the calls that the library takes, and computes from what it is handed.

Calls are bound by the recorded signatures. A plan reads the lengths as NumPy, which host tensors alone can be, and keeps what
the library's planner keeps, under the name of the memory that it would be written to. `run` reads pages, lengths and masks out
of the buffers at that moment, as kernels do, and refuses what a kernel would compute wrongly. Attention itself is done in
float64, with NaN spreading as in a product of matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from plugins.attention.flashinfer.tests.api import RECORDED

from jackfield.testing.recorded_signatures import recorded_signatures

SIGNATURES = recorded_signatures(RECORDED)
HEAD_SIZES, DTYPES = (64, 128, 256), (torch.float16, torch.bfloat16)
GROUPS_WITHOUT_TENSOR_CORES = (1, 2, 3, 4, 6, 8, 16)


def _bound(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The function gets the call's arguments by the names of the library's signature, defaults included."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            is_method = "self" in SIGNATURES[name].parameters
            bound = SIGNATURES[name].bind(*args, **kwargs)
            bound.apply_defaults()
            given = SimpleNamespace(**{key: value for key, value in bound.arguments.items() if key != "self"})
            return function(args[0], given) if is_method else function(given)

        return called

    return wrap


@dataclass(kw_only=True)
class Planned:
    """What the planner wrote down. kv_lens, q_lens: of each row as the host had them; whole: no row's keys are split."""

    kv_lens: list[int]
    q_lens: list[int]
    whole: bool
    given: SimpleNamespace


class _Wrapper:
    """What decode and prefill share."""

    plans: dict[int, Planned]

    def _start(self, scratch: torch.Tensor, kv_layout: str) -> None:
        assert scratch.dtype == torch.uint8
        assert kv_layout in ("NHD", "HND")
        self.scratch, self.kv_layout = scratch, kv_layout
        self.own = torch.empty(8, dtype=torch.uint8)
        self.indptr: Any = None
        self.indices: Any = None
        self.last_page_len: Any = None

    def _copy_pages(self, indptr: torch.Tensor, indices: torch.Tensor, last: torch.Tensor, *, graph: bool) -> None:
        for tensor in (indptr, indices, last):
            assert tensor.dtype == torch.int32
        if graph:
            assert len(last) == len(self.last_page_len), "the number of rows is fixed"
            assert len(indices) <= len(self.indices), "the buffer of the indices is too small"
            self.indptr.copy_(indptr)
            self.last_page_len.copy_(last)
            self.indices[: len(indices)].copy_(indices)
            assert indptr.numpy()[-1] <= len(self.indices), "the planned pages do not fit into the buffer"
        else:
            assert len(indices) == indptr.numpy()[-1]
            self.indptr, self.indices, self.last_page_len = indptr.clone(), indices.clone(), last.clone()

    def _keep(
        self, given: SimpleNamespace, indptr: torch.Tensor, last: torch.Tensor, q: list[int], whole: bool
    ) -> None:
        assert given.q_data_type in DTYPES
        assert given.num_qo_heads % given.num_kv_heads == 0
        lens = ((np.diff(indptr.numpy()) - 1) * given.page_size + last.numpy()).tolist()
        assert min(lens) >= 1, "a row without tokens"
        assert all(1 <= n <= given.page_size for n in last.numpy())
        type(self).plans[self.own.data_ptr()] = Planned(kv_lens=lens, q_lens=q, whole=whole, given=given)

    def _attend(
        self,
        given: SimpleNamespace,
        *,
        q_starts: list[int],
        causal: bool,
        reads_from_window: bool,
        mask: torch.Tensor | None = None,
        mask_starts: torch.Tensor | None = None,
    ) -> None:
        plan = type(self).plans[self.own.data_ptr()]
        q, (k_pages, v_pages), out = given.q, given.paged_kv_cache, given.out
        self.scratch[:256].fill_(0xAB)  # partial results
        assert q.dtype == plan.given.q_data_type
        assert k_pages.dtype == plan.given.kv_data_type == v_pages.dtype
        assert k_pages.stride() == v_pages.stride(), "one set of strides serves keys and values"
        assert q.stride(-1) == 1
        assert out.shape == q.shape
        assert out.dtype == q.dtype
        assert q.shape[0] == q_starts[-1]
        assert q.shape[1] == plan.given.num_qo_heads
        window, cap = plan.given.window_left, plan.given.logits_soft_cap or 0.0
        for i, (start, stop) in enumerate(pairwise(q_starts)):
            new, pages = stop - start, self.indices[int(self.indptr[i]) : int(self.indptr[i + 1])].long()
            length = (len(pages) - 1) * plan.given.page_size + int(self.last_page_len[i])
            assert length <= plan.kv_lens[i], f"row {i} was planned for {plan.kv_lens[i]} tokens and has {length}"
            if length < plan.kv_lens[i] and new > 1:
                assert plan.whole, "partial results of several queries are laid out by the planned length"
            if window >= 0 and not plan.whole:
                assert mask is None, "the planner splits by the window, and a mask may let a query see past it"
                assert causal or new == 1, "the planner splits by the window, and these queries see past it"
            keys, values = (self._row(one, pages, length) for one in (k_pages, v_pages))
            first = max(0, length - new - window) if window >= 0 and reads_from_window else 0
            at = torch.arange(first, length)
            query = torch.arange(new)[:, None]
            seen = torch.ones(new, length - first, dtype=torch.bool)
            if mask is not None and mask_starts is not None:
                offset = query * length + at
                seen &= (mask[int(mask_starts[i]) + offset // 8].int() >> (offset % 8) & 1).bool()
            elif causal:
                seen &= at <= length - new + query
            if window >= 0:
                seen &= at + new + window >= length + query
            share = q.shape[1] // keys.shape[1]
            scores = torch.einsum("qhd,khd->hqk", q[start:stop].double(), keys[first:].repeat_interleave(share, 1))
            scores = scores * plan.given.sm_scale
            if cap > 0:
                scores = cap * torch.tanh(scores / cap)
            weights = torch.softmax(scores.masked_fill(~seen, -math.inf), dim=-1)
            out[start:stop] = torch.einsum("hqk,khd->qhd", weights, values[first:].repeat_interleave(share, 1))

    def _row(self, cache: torch.Tensor, pages: torch.Tensor, length: int) -> torch.Tensor:
        """float64 [length, kv_heads, head]"""
        found = cache.view(torch.uint8)[pages].view(cache.dtype).float().double()
        found = found if self.kv_layout == "NHD" else found.transpose(1, 2)
        return found.flatten(0, 1)[:length]

    def reset_workspace_buffer(self, float_workspace_buffer: torch.Tensor, int_workspace_buffer: torch.Tensor) -> None:
        self.scratch, self.own = float_workspace_buffer, int_workspace_buffer


class Decode(_Wrapper):
    @_bound("decode.__init__")
    def __init__(self, given: SimpleNamespace) -> None:
        self._start(given.float_workspace_buffer, given.kv_layout)
        assert given.backend == "fa2"
        self.graph, self.tensor_cores = given.use_cuda_graph, given.use_tensor_cores
        self.indptr, self.indices = given.paged_kv_indptr_buffer, given.paged_kv_indices_buffer
        self.last_page_len = given.paged_kv_last_page_len_buffer
        if self.graph:
            assert len(self.indptr) == len(self.last_page_len) + 1

    @_bound("decode.plan")
    def plan(self, given: SimpleNamespace) -> None:
        group = given.num_qo_heads // given.num_kv_heads
        assert given.head_dim in HEAD_SIZES
        assert self.tensor_cores or group in GROUPS_WITHOUT_TENSOR_CORES
        self._copy_pages(given.indptr, given.indices, given.last_page_len, graph=self.graph)
        self._keep(given, given.indptr, given.last_page_len, [1] * len(given.last_page_len), False)

    @_bound("decode.workspace_size")
    def workspace_size(self, given: SimpleNamespace) -> tuple[int, int]:
        return 4096 * len(given.last_page_len), 64 * len(given.last_page_len)

    @_bound("decode.run")
    def run(self, given: SimpleNamespace) -> torch.Tensor:
        rows = len(self.last_page_len)
        self._attend(given, q_starts=list(range(rows + 1)), causal=False, reads_from_window=self.tensor_cores)
        out: torch.Tensor = given.out
        return out


class Prefill(_Wrapper):
    @_bound("prefill.__init__")
    def __init__(self, given: SimpleNamespace) -> None:
        self._start(given.float_workspace_buffer, given.kv_layout)
        self.graph, self.backend, self.most = given.use_cuda_graph, given.backend, given.max_total_num_rows
        self.q_starts, self.indptr = given.qo_indptr_buf, given.paged_kv_indptr_buf
        self.indices, self.last_page_len = given.paged_kv_indices_buf, given.paged_kv_last_page_len_buf
        self.mask, self.mask_starts = given.custom_mask_buf, given.mask_indptr_buf

    @_bound("prefill.plan")
    def plan(self, given: SimpleNamespace) -> None:
        assert given.head_dim_qk in HEAD_SIZES
        assert given.custom_mask is None, "packing it asks the device for a size"
        q_starts, starts, last = given.qo_indptr, given.paged_kv_indptr, given.paged_kv_last_page_len
        assert q_starts.dtype == torch.int32
        self._copy_pages(starts, given.paged_kv_indices, last, graph=self.graph)
        q_lens = np.diff(q_starts.numpy()).tolist()
        if self.graph:
            assert self.backend == "fa2"
            assert q_starts.numpy()[-1] <= self.most
            self.q_starts.copy_(q_starts)
        else:
            self.q_starts = q_starts.clone()
        if given.packed_custom_mask is not None:
            assert self.graph, "the library's own starts of a packed mask count bits"
            assert given.packed_custom_mask.dtype == torch.uint8
            self.mask[: len(given.packed_custom_mask)].copy_(given.packed_custom_mask)
            lens = (starts[1:] - starts[:-1] - 1) * given.page_size + last
            self.mask_starts[1:].copy_(
                torch.cumsum((q_starts[1:] - q_starts[:-1]) * lens, 0)
            )  # bits, as the library has it
        if self.backend == "fa3":
            assert given.window_left == -1, "fa3 loads what lies before a window"
        self._keep(given, starts, last, q_lens, given.disable_split_kv)
        self.causal = given.causal

    @_bound("prefill.run")
    def run(self, given: SimpleNamespace) -> torch.Tensor:
        self._attend(
            given,
            q_starts=self.q_starts.tolist(),
            causal=self.causal,
            reads_from_window=True,
            mask=self.mask,
            mask_starts=self.mask_starts,
        )
        out: torch.Tensor = given.out
        return out


@_bound("append_paged_kv_cache")
def append_paged_kv_cache(given: SimpleNamespace) -> None:
    """Token t goes to place positions[t] of the pages of row batch_indices[t]."""
    for name in ("batch_indices", "positions", "kv_indices", "kv_indptr", "kv_last_page_len"):
        assert getattr(given, name).dtype == torch.int32, name
    assert len(given.kv_indptr) == len(given.kv_last_page_len) + 1
    for values, cache in zip((given.append_key, given.append_value), given.paged_kv_cache, strict=True):
        assert values.dtype == cache.dtype, "it does not convert"
        assert values.stride(-1) == 1
        page_size = cache.shape[1] if given.kv_layout == "NHD" else cache.shape[2]
        place = given.kv_indptr[given.batch_indices] * page_size + given.positions
        page, at = given.kv_indices[place // page_size].long(), (place % page_size).long()
        target, source = cache.view(torch.uint8), values.contiguous().view(torch.uint8)
        if given.kv_layout == "NHD":
            target[page, at] = source
        else:
            target[page, :, at] = source


def module() -> ModuleType:
    """A fresh one, with no plans."""
    made = ModuleType("flashinfer")
    made.__spec__ = ModuleSpec("flashinfer", None)
    plans: dict[int, Planned] = {}
    made.BatchDecodeWithPagedKVCacheWrapper = type("Decode", (Decode,), {"plans": plans})  # type: ignore[attr-defined]
    made.BatchPrefillWithPagedKVCacheWrapper = type("Prefill", (Prefill,), {"plans": plans})  # type: ignore[attr-defined]
    made.append_paged_kv_cache = append_paged_kv_cache  # type: ignore[attr-defined]
    return made
