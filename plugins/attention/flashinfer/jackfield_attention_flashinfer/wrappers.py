"""FlashInfer's wrapper objects: how they are made and planned for one run. It knows nothing of batches, pages or masks.

Every plan is given host tensors of lengths, so that it reads nothing back from the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import AttentionContext, BatchFault
from jackfield.model_executor.dtypes import torch_dtype
from jackfield_attention_flashinfer.layer_kind import LayerKind
from jackfield_attention_flashinfer.library import flashinfer
from jackfield_attention_flashinfer.limits import CUDA_CORE_GROUPS
from jackfield_attention_flashinfer.pages import DevicePages, HostPages
from jackfield_attention_flashinfer.pool import Buffers, Mark, Slot
from jackfield_attention_flashinfer.settings import Settings

_LONG_ROW = 64
"""FlashInfer's own threshold: below it, fa2's smaller query tiles beat fa3's fixed one."""
_LAYOUTS = {"nhd-paged": "NHD", "hnd-paged": "HND"}


class Wrappers:
    """device, page_size; layouts: group name -> "NHD" or "HND", FlashInfer's words."""

    def __init__(self, context: AttentionContext, settings: Settings) -> None:
        self.device = torch.device(context.device)
        self.page_size = context.page_size
        self.layouts = {name: _LAYOUTS[layout.name] for name, layout in context.layouts.items()}
        self._dtype = torch_dtype(context.dtype)
        self._kv_dtype = torch_dtype(context.kv_dtype or context.dtype)
        self._settings = settings
        self._workspace = context.workspace

    def scratch(self, nbytes: int = 0) -> torch.Tensor:
        """uint8, as much as the option says or as is asked for. Another tensor than before if the core has moved it."""
        return self._workspace(max(nbytes, self._settings.workspace_mib << 20))

    # --- which kernels ---

    def uses_tensor_cores(self, kind: LayerKind) -> bool:
        """For decode. The other kernel goes over all of a row's pages, also over what lies before a window."""
        few = kind.num_heads // kind.num_kv_heads in CUDA_CORE_GROUPS
        return self._settings.tensor_cores == "always" or kind.window is not None or not few

    def prefill_kernels(self, kind: LayerKind, max_q: int) -> str:
        """ "fa2" or "fa3", for a batch without a mask. fa3 loads whole tiles, and so what lies before a window; and it takes no
        fp8 KV without fp8 queries."""
        if self._settings.prefill != "auto":
            return self._settings.prefill if kind.window is None else "fa2"
        hopper = self.device.type == "cuda" and torch.cuda.get_device_capability(self.device) == (9, 0)
        return "fa3" if hopper and kind.window is None and max_q > _LONG_ROW and self._plain_kv else "fa2"

    @property
    def _plain_kv(self) -> bool:
        return self._kv_dtype == self._dtype

    # --- making them ---

    def decode(self, layout: str, scratch: torch.Tensor, *, tensor_cores: bool) -> Any:
        """For batches of any number of rows of one new token each."""
        make = flashinfer().BatchDecodeWithPagedKVCacheWrapper
        return make(scratch, layout, use_tensor_cores=tensor_cores, backend="fa2")

    def prefill(self, layout: str, scratch: torch.Tensor, kernels: str) -> Any:
        """For rows of any lengths."""
        return flashinfer().BatchPrefillWithPagedKVCacheWrapper(scratch, layout, backend=kernels)

    def decode_in_graph(self, layout: str, scratch: torch.Tensor, pages: DevicePages) -> Any:
        """For one number of rows, over pages that the device finds."""
        return flashinfer().BatchDecodeWithPagedKVCacheWrapper(
            scratch,
            layout,
            use_cuda_graph=True,
            use_tensor_cores=True,
            paged_kv_indptr_buffer=pages.indptr,
            paged_kv_indices_buffer=pages.indices,
            paged_kv_last_page_len_buffer=pages.last_page_len,
            backend="fa2",
        )

    def prefill_on_device(self, layout: str, scratch: torch.Tensor, buffers: Buffers, most_tokens: int) -> Any:
        """For one number of rows, over pages and masks that the device finds: FlashInfer's buffers for graphs are the caller's,
        so what a plan wrote there can be written again by whoever knows better. Of fa2 alone, whose kernels take the lengths from
        there; fa3 takes them from the plan."""
        return flashinfer().BatchPrefillWithPagedKVCacheWrapper(
            scratch,
            layout,
            use_cuda_graph=True,
            qo_indptr_buf=buffers.q_starts,
            paged_kv_indptr_buf=buffers.pages.indptr,
            paged_kv_indices_buf=buffers.pages.indices,
            paged_kv_last_page_len_buf=buffers.pages.last_page_len,
            custom_mask_buf=buffers.mask,
            mask_indptr_buf=buffers.mask_starts,
            backend="fa2",
            max_total_num_rows=most_tokens,
        )

    def slot(self, key: Any, wrapper: Any, buffers: Buffers | None = None) -> Slot:
        """For the pool."""
        return Slot(key=key, wrapper=wrapper, mark=Mark(self.device), buffers=buffers)

    # --- planning them ---

    def plan_decode(self, wrapper: Any, kind: LayerKind, pages: HostPages, indices: torch.Tensor) -> None:
        """indices int32 on the device; none of them: the wrapper's own buffer is filled by others."""
        with self._planning():
            wrapper.plan(*self._decode_shape(kind, pages, indices), **self._common(kind), non_blocking=True)

    def decode_sizes(self, wrapper: Any, kind: LayerKind, pages: HostPages) -> tuple[int, int]:
        """Bytes of scratch and of the plan's own device memory that such a plan needs."""
        found = wrapper.workspace_size(*self._decode_shape(kind, pages, self.no_indices()), **self._common(kind))
        return int(found[0]), int(found[1])

    def plan_prefill(
        self,
        wrapper: Any,
        kind: LayerKind,
        q_starts: NDArray[np.int32],
        pages: HostPages,
        indices: torch.Tensor,
        *,
        mask: torch.Tensor | None = None,
        whole: bool = False,
    ) -> None:
        """mask: packed bits, which replace `kind.causal`; whole: no row's keys are split."""
        with self._planning():
            wrapper.plan(
                self.pinned(q_starts),
                self.pinned(pages.indptr),
                indices,
                self.pinned(pages.last_page_len),
                kind.num_heads,
                kind.num_kv_heads,
                kind.head_size,
                self.page_size,
                packed_custom_mask=mask,
                causal=kind.causal,
                disable_split_kv=whole,
                non_blocking=True,
                **self._common(kind),
            )

    def no_indices(self) -> torch.Tensor:
        """int32 [0]"""
        return torch.empty(0, dtype=torch.int32, device=self.device)

    def pinned(self, array: NDArray[np.int32]) -> torch.Tensor:
        """A host tensor that the device can be given without waiting. Nobody may write to the array any more."""
        tensor = torch.from_numpy(array)
        return tensor.pin_memory() if self.device.type == "cuda" else tensor

    def _decode_shape(self, kind: LayerKind, pages: HostPages, indices: torch.Tensor) -> tuple[Any, ...]:
        return (
            self.pinned(pages.indptr),
            indices,
            self.pinned(pages.last_page_len),
            kind.num_heads,
            kind.num_kv_heads,
            kind.head_size,
            self.page_size,
        )

    def _common(self, kind: LayerKind) -> dict[str, Any]:
        return {
            "window_left": kind.window_left,
            "logits_soft_cap": kind.soft_cap,
            "sm_scale": kind.scale,
            "q_data_type": self._dtype,
            "kv_data_type": self._kv_dtype,
        }

    @contextmanager
    def _planning(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if "workspace" not in str(error):
                raise
            raise BatchFault(
                f"attention.flashinfer has too little scratch memory for this batch ({error}): raise its option workspace_mib "
                f"from {self._settings.workspace_mib}"
            ) from error
