"""Runs a backend on a prepared case, and holds it against the float64 reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from jackfield.hookspecs import AttentionBackend, AttentionContext, AttentionPlan, KVTensors
from jackfield.testing.attention_batches import AttentionCase, PreparedCase, prepare
from jackfield.testing.reference import reference_attention, write_slots

__all__ = (
    "TOLERANCE",
    "TOLERANCES",
    "AttentionCase",
    "PreparedCase",
    "assert_close",
    "assert_same_kv",
    "attend_layers",
    "check",
    "check_prepared",
    "copied",
    "prepare",
    "run",
    "wanted",
    "write_new",
)

Tolerance = tuple[float, float]

TOLERANCES: Mapping[torch.dtype, Tolerance] = MappingProxyType(
    {torch.float32: (3e-6, 1e-6), torch.float16: (2e-3, 4.5e-4), torch.bfloat16: (1.6e-2, 3.5e-3)}
)
"""Largest error and root mean square of the errors against the float64 reference on the same (rounded) inputs, each as a
share of the same measure of the reference.

Half a unit in the last place is 2**-24, 2**-11 and 2**-8 of a value. Rounding the result alone costs half of that on
average (0.6 * 2**-9 in bfloat16 = 1.2e-3), rounding the probabilities before they meet the values about as much again;
both are allowed. The sum itself must be kept wider: in bfloat16 it costs several times the second number. In float32 the
order of some hundred additions costs a few units, and products in fewer bits (TF32: 2**-11) a thousand times what is allowed.
"""

TOLERANCE: Mapping[torch.dtype, float] = MappingProxyType({dtype: most for dtype, (most, _) in TOLERANCES.items()})
"""The first of the two alone."""


def attend_layers(
    prepared: PreparedCase, backend: AttentionBackend, plan: AttentionPlan, *, written: bool = False
) -> dict[int, torch.Tensor]:
    """One forward: layer id -> output, which was full of NaN. `written`: the KV is in place already, k and v are None."""
    found = {}
    for layer in prepared.case.layers:
        q, k, v = prepared.inputs[layer.id]
        out = torch.full((q.shape[0], layer.num_heads, layer.v_head_size), math.nan, dtype=q.dtype, device=q.device)
        backend.attend(plan, layer, q, None if written else k, None if written else v, out)
        found[layer.id] = out
    return found


def write_new(prepared: PreparedCase, pools: Mapping[str, KVTensors]) -> None:
    """What the write of the new tokens' KV must come to."""
    for layer in prepared.case.layers:
        _, k, v = prepared.inputs[layer.id]
        if k is not None and v is not None:
            slots = prepared.batch.out_slots[layer.group]
            write_slots(pools[layer.group], "k", layer.id, slots, k)
            write_slots(pools[layer.group], "v", layer.id, slots, v)


def copied(pools: Mapping[str, KVTensors]) -> dict[str, KVTensors]:
    """The same KV in other memory."""
    return {
        name: replace(kv, tensors={role: tuple(t.clone() for t in ts) for role, ts in kv.tensors.items()})
        for name, kv in pools.items()
    }


def run(prepared: PreparedCase, backend: AttentionBackend, *, written: bool = False) -> torch.Tensor:
    """`bind`, one `plan`, and `attend` into an output full of NaN; the first layer's output."""
    backend.bind(prepared.pools)
    if written:
        write_new(prepared, prepared.pools)
    return attend_layers(prepared, backend, backend.plan(prepared.batch), written=written)[0]


def wanted(prepared: PreparedCase, pools: Mapping[str, KVTensors]) -> dict[int, torch.Tensor]:
    """The reference's answer for each layer, float64; `pools` hold the new tokens' KV too."""
    batch = prepared.batch
    return {
        layer.id: reference_attention(
            layer,
            pools[layer.group],
            prepared.context.tables[layer.group],
            batch.rows.cpu().numpy(),
            batch.host.q_lens,
            prepared.true_kv_lens.numpy(),
            prepared.inputs[layer.id][0],
            None if batch.mask is None else batch.mask.among,
        )
        for layer in prepared.case.layers
    }


def assert_same_kv(found: Mapping[str, KVTensors], expected: Mapping[str, KVTensors]) -> None:
    """Bit for bit, except in the dummy page: AssertionError with the first slot that differs."""
    for name, kv in expected.items():
        for role in ("k", "v"):
            for layer, ours, theirs in zip(kv.group.layers, found[name].tensors[role], kv.tensors[role], strict=True):
                same = ours.view(torch.uint8)[1:] == theirs.view(torch.uint8)[1:]  # as bytes: NaN equals NaN
                if not bool(same.all()):
                    page, *place = (~same).nonzero()[0].tolist()
                    place[-1] //= ours.element_size()
                    is_there, belongs = (float(each[1:][page, *place]) for each in (ours, theirs))
                    raise AssertionError(
                        f"the {role} of layer {layer} (group {name!r}) is not what `attend` should leave in page {page + 1}: "
                        f"{is_there:g} stands where {belongs:g} belongs (at {place} of the page, as {kv.layout.name} has it); "
                        "the new tokens' KV belongs at out_slots, and nothing else changes but the dummy page 0"
                    )


def assert_close(found: Mapping[int, torch.Tensor], expected: Mapping[int, torch.Tensor], case: AttentionCase) -> None:
    """AssertionError that says by how much a layer is off, and in which case."""
    most, mean = TOLERANCES[case.dtype]
    for layer, theirs in expected.items():
        out = found[layer].double().cpu()
        assert not torch.isnan(out).any(), (
            f"layer {layer}: rows of the output were not written, or memory was read that the row does not own: {case}"
        )
        error = out - theirs
        largest = float(error.abs().max() / theirs.abs().max())
        typical = float(error.square().mean().sqrt() / theirs.square().mean().sqrt())
        assert largest <= most, f"layer {layer} is off by {largest:.2e}, allowed {most:.0e}: {case}"
        assert typical <= mean, f"layer {layer} is off by {typical:.2e} on average, allowed {mean:.1e}: {case}"


def check_prepared(prepared: PreparedCase, backend: AttentionBackend, *, written: bool = False) -> None:
    """`bind`, `plan`, `attend`: outputs and KV."""
    pools = copied(prepared.pools)
    write_new(prepared, pools)
    backend.bind(prepared.pools)
    if written:
        write_new(prepared, prepared.pools)
    found = attend_layers(prepared, backend, backend.plan(prepared.batch), written=written)
    assert_same_kv(prepared.pools, pools)
    assert_close(found, wanted(prepared, pools), prepared.case)


def check(case: AttentionCase, make: Callable[[AttentionContext], AttentionBackend], **changes: Any) -> None:
    """Hold a backend against the reference on one case; AssertionError says by how much it is off."""
    prepared = prepare(replace(case, **changes) if changes else case)
    check_prepared(prepared, make(prepared.context))
