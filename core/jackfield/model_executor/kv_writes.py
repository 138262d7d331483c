"""Where the layers of one forward put their new keys and values, for operators that write them. It writes nothing itself."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from jackfield.hookspecs import AttentionLayer, KVTensors, KVWrite

_ROLES = {"k", "v"}


class KVWrites:
    """`ForwardContext.kv_write` of one forward. out_slots: group name -> int64 [total new], as in `AttentionBatch`."""

    __slots__ = ("_kv", "_out_slots")

    def __init__(self, kv: Mapping[str, KVTensors], out_slots: Mapping[str, torch.Tensor]) -> None:
        self._kv = kv
        self._out_slots = out_slots

    def of(self, layer: AttentionLayer) -> KVWrite | None:
        """None: the layer has no keys and values of its own, or they lie otherwise than in one tensor each."""
        if layer.kv_source is not None:
            return None
        kv = self._kv[layer.group]
        if kv.tensors.keys() != _ROLES:
            return None
        return KVWrite(
            slots=self._out_slots[layer.group],
            k=kv.of("k", layer.id),
            v=kv.of("v", layer.id),
            page_size=kv.page_size,
            layout=kv.layout.name,
        )
