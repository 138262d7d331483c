"""How the attention suite makes a backend and its cases, and holds its outputs against the float64 reference."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from jackfield.config.dtype import KV_DTYPES
from jackfield.hookspecs import AttentionBackend, AttentionBatch, KVLayout, Need
from jackfield.model_executor.dtypes import dtype_name, torch_dtype
from jackfield.stack.discovery.claims import kv_feature
from jackfield.stack.selection.layouts import known_layouts
from jackfield.testing.attention_batches import AttentionCase, PreparedCase, prepare
from jackfield.testing.attention_cases import assert_close, attend_layers, copied, wanted, write_new
from jackfield.testing.attention_grid import BATCHES, small, thinned
from jackfield.testing.conformance.attention_probes import DirtyWorkspace
from jackfield.testing.conformance.device import ComputingConformance

CHUNK = BATCHES["one-token rows among longer ones"]
_COMMON = ("kind", "name", "instance", "options")


class AttentionRig(ComputingConformance):
    """Override `refused_batch` if there are batches within the limits that your `plan` refuses with a BatchFault."""

    kind = "attention"

    def refused_batch(self, prepared: PreparedCase) -> AttentionBatch | None:
        """A variation of `prepared.batch` that `plan` must refuse; None: there is none."""
        return None

    def layouts(self) -> list[KVLayout]:
        """Those that it claims."""
        known = known_layouts(self.catalogue())
        return [known[name] for name in self.manifest().layouts]

    def features_of(self, case: AttentionCase) -> frozenset[str]:
        """The features of attention that a run with these layers asks for."""
        asked = {"window": case.window is not None, "soft_cap": case.soft_cap is not None}
        asked |= {"non_causal": not case.causal, "mixed": case.mixed, "tree_mask": case.tree is not None}
        if case.kv_dtype not in (None, case.dtype):
            asked[kv_feature(dtype_name(case.kv_dtype))] = True
        return frozenset(name for name, wants in asked.items() if wants)

    def prepared(self, case: AttentionCase, **context: Any) -> PreparedCase:
        device = self.here()
        return prepare(replace(case, device=device), workspace=DirtyWorkspace(device), **context)

    def backend(self, prepared: PreparedCase) -> AttentionBackend:
        """Made by the plugin's hook for the case's context, and bound to its KV."""
        fields = {name: value for name, value in vars(prepared.context).items() if name not in _COMMON}
        backend: AttentionBackend = self.make(**fields)
        backend.bind(prepared.pools)
        return backend

    def possible(self, tried: Iterable[AttentionCase]) -> list[AttentionCase]:
        """Those that its probe would let run, fewer under an interpreter, in its first dtype where they are in one that it does
        not claim; ends the check if that is none."""
        device, refusals, found = self.here(), [], []
        listed = [torch_dtype(name) for name in self.dtypes()]
        for given in thinned(tried) if self.interpreted() else tried:
            case = given if given.dtype in listed else replace(given, dtype=listed[0])
            need = Need(
                device=device,
                dtype=dtype_name(case.dtype),
                head_sizes=tuple(sorted({case.head_size, case.layer.v_head_size})),
                page_size=case.page_size,
                layout=case.layout.name,
                features=self.features_of(case),
            )
            problems = self.refusals(need)
            refusals += problems
            found += [] if problems else [case]
        if not found:
            self.not_claimed(f"the probe refuses every case: {refusals[0]}")
        return found

    def some(self, lengths: Sequence[tuple[int, int]] = CHUNK, **changes: Any) -> AttentionCase:
        """One ordinary case that it can serve, in its first layout and dtype."""
        plain = AttentionCase(lengths=lengths, layout=self.layouts()[0], dtype=torch_dtype(self.dtypes()[0]))
        return self.possible(replace(plain, head_size=64, page_size=size, **changes) for size in (16, 1, 64))[0]

    def holds(self, tried: Iterable[AttentionCase]) -> None:
        """Outputs within the dtype's tolerance, in each case; an interpreter, which is slow, gets small ones."""
        for case in self.possible(map(small, tried) if self.interpreted() else tried):
            prepared = self.prepared(case)
            pools = copied(prepared.pools)
            write_new(prepared, pools)
            backend = self.backend(prepared)
            assert_close(attend_layers(prepared, backend, backend.plan(prepared.batch)), wanted(prepared, pools), case)

    def kv_dtypes(self) -> list[torch.dtype]:
        """Those in which it can keep the KV, beside the run's; ends the check if there are none."""
        known = (torch_dtype(name) for name in KV_DTYPES if self.claims(kv_feature(name)))
        return list(known) or self.not_claimed("features has no kv:<dtype>")

    def claims(self, *features: str) -> bool:
        return set(features) <= set(self.manifest().features)
