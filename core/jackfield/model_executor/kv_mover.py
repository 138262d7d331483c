"""`TorchMover`: copies the KV of slots between the pool and the host, all layers and tensors of a slot side by side."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from jackfield.hookspecs import KVMover, KVTensors, Moved
from jackfield.model_executor.dtypes import movable


class TorchMover(KVMover):
    """Each copy is made in the call, on the stream of the forwards, and has ended when the call returns: correct on every
    device, and on one whose launches do not block it costs their time."""

    def __init__(self, kv: Mapping[str, KVTensors]) -> None:
        self._views: list[torch.Tensor] = []
        told = []
        page_size = 0
        for name in sorted(kv):
            tensors = kv[name]
            page_size = tensors.page_size
            for spec in tensors.layout.tensors:
                if "page" not in spec.shape:
                    raise ValueError(f"KV tensor {spec.role!r} of layout {tensors.layout.name!r} is not kept by slot")
                at = 1 + spec.shape.index("page")
                self._views += [movable(tensor).movedim(at, 1) for tensor in tensors.tensors[spec.role]]
                rest = tuple(self._views[-1].shape[2:])
                dtype = tensors.tensors[spec.role][0].dtype
                told.append(f"{name}.{spec.role}:{len(tensors.group.layers)}x{rest}:{dtype}")
        self._page_size = page_size
        self._sizes = [view.dtype.itemsize * view[0, 0].numel() for view in self._views]
        self.bytes_per_slot = sum(self._sizes)
        # Page size and order of the dimensions are not in it: the bytes of a slot are the same.
        self.layout = "torch/" + ";".join(told)
        self._tickets = 0
        self._ended: list[Moved] = []

    @torch.inference_mode()
    def read(self, slots: NDArray[np.int32]) -> int:
        data = np.empty((len(slots), self.bytes_per_slot), dtype=np.uint8)
        begin = 0
        for view, size in zip(self._views, self._sizes, strict=True):
            pages, places = self._places(slots, view.device)
            rows = view[pages, places].contiguous().cpu().view(torch.uint8)
            data[:, begin : begin + size] = rows.reshape(len(slots), size).numpy()
            begin += size
        return self._end(data)

    @torch.inference_mode()
    def write(self, slots: NDArray[np.int32], data: NDArray[np.uint8]) -> int:
        if data.shape != (len(slots), self.bytes_per_slot):
            raise ValueError(f"{data.shape} bytes for {len(slots)} slots of {self.bytes_per_slot}")
        begin = 0
        for view, size in zip(self._views, self._sizes, strict=True):
            pages, places = self._places(slots, view.device)
            part = torch.from_numpy(data[:, begin : begin + size].copy()).view(view.dtype)
            view[pages, places] = part.reshape(len(slots), *view.shape[2:]).to(view.device)
            begin += size
        return self._end(None)

    def poll(self) -> list[Moved]:
        ended, self._ended = self._ended, []
        return ended

    def wait(self, timeout: float | None) -> None:
        """Every copy has ended."""

    def _places(self, slots: NDArray[np.int32], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        at = torch.from_numpy(slots.astype(np.int64)).to(device)
        return at // self._page_size, at % self._page_size

    def _end(self, data: NDArray[np.uint8] | None) -> int:
        self._tickets += 1
        self._ended.append(Moved(ticket=self._tickets, data=data))
        return self._tickets
