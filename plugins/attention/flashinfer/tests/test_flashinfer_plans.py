"""Plans: tree masks, graphs, wrappers that are still in use. Over the stand-in."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import (
    CORE_LAYOUTS,
    NHD_PAGED,
    AttentionLimits,
    AttentionMode,
    BatchFault,
    GraphShape,
    KVLayout,
    TreeMask,
)
from jackfield.testing.attention_batches import AttentionCase, PreparedCase, part, prepare
from jackfield.testing.attention_cases import assert_close, attend_layers, wanted, write_new
from jackfield.testing.reference import read_slots
from jackfield_attention_flashinfer import graph, pool
from jackfield_attention_flashinfer.backend import FlashInferAttention
from jackfield_attention_flashinfer.pool import Pool, Slot
from jackfield_attention_flashinfer.settings import Settings
from jackfield_attention_flashinfer.wrappers import Wrappers

SETTINGS = Settings(workspace_mib=1)
DECODE = ((40, 1), (3, 1), (127, 1), (16, 1))
LAYOUTS = pytest.mark.parametrize("layout", CORE_LAYOUTS.values(), ids=CORE_LAYOUTS)

pytestmark = pytest.mark.usefixtures("standin")


def made(
    case: AttentionCase, settings: Settings = SETTINGS, **context: Any
) -> tuple[PreparedCase, FlashInferAttention]:
    prepared = prepare(case, **context)
    backend = FlashInferAttention(prepared.context, settings)
    backend.bind(prepared.pools)
    return prepared, backend


def some(lengths: Any, **changes: Any) -> AttentionCase:
    plain = AttentionCase(lengths=lengths, layout=NHD_PAGED, head_size=64, page_size=16, dtype=torch.bfloat16)
    return replace(plain, **changes)


def tree(q_lens: np.ndarray[Any, Any], width: int, seed: int) -> torch.Tensor:
    """bool [total new, width]: each token sees its parents in a random tree, and itself or not."""
    random = np.random.default_rng(seed)
    among = torch.zeros(int(q_lens.sum()), width, dtype=torch.bool)
    start = 0
    for new in q_lens.tolist():
        for token in range(1, new):
            parent = int(random.integers(0, token))
            among[start + token] = among[start + parent]
            among[start + token, parent] = True
        start += new
    return among


def attended(prepared: PreparedCase, among: torch.Tensor) -> torch.Tensor:
    """The first layer under a tree mask, float64, one token at a time."""
    layer, batch = prepared.case.layers[0], prepared.batch
    table, kv = prepared.context.tables[layer.group], prepared.pools[layer.group]
    out, token = torch.zeros(*prepared.q.shape, dtype=torch.float64), 0
    for row, new, length in zip(
        batch.rows.tolist(), batch.host.q_lens.tolist(), prepared.true_kv_lens.tolist(), strict=True
    ):
        for query in range(new):
            at = length - new + query
            first = 0 if layer.window is None else max(0, at - layer.window + 1)
            seen = [t for t in range(length) if t < length - new or t == at or among[token, t - (length - new)]]
            slots = table[row, [t for t in seen if t >= first]].long()
            keys, values = (read_slots(kv, role, 0, slots).double() for role in "kv")
            share = layer.num_heads // layer.num_kv_heads
            scores = (
                torch.einsum("hd,khd->hk", prepared.q[token].double(), keys.repeat_interleave(share, 1)) * layer.scale
            )
            if layer.soft_cap is not None:
                scores = layer.soft_cap * torch.tanh(scores / layer.soft_cap)
            weights = torch.softmax(scores, -1)
            out[token] = torch.einsum("hk,khd->hd", weights, values.repeat_interleave(share, 1))
            token += 1
    return out


@LAYOUTS
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("changes", [{}, {"window": 9}, {"soft_cap": 2.0, "page_size": 1}], ids=str)
def test_tree_mask(layout: KVLayout, exact: bool, changes: dict[str, Any]) -> None:
    prepared, backend = made(some(((20, 7), (0, 5), (33, 1), (16, 6)), layout=layout, exact=exact, **changes))
    among = tree(prepared.batch.host.q_lens, prepared.batch.max_q, seed=3)
    batch = replace(prepared.batch, mode=AttentionMode.EXTEND, mask=TreeMask(among=among))
    found = attend_layers(prepared, backend, backend.plan(batch))
    assert_close(found, {0: attended(prepared, among)}, prepared.case)


def in_graph(prepared: PreparedCase, backend: FlashInferAttention, rows: int) -> tuple[Any, PreparedCase]:
    """A graph plan made of a padded batch, and the case with that batch."""
    n = len(prepared.batch.host.q_lens)
    batch = prepared.batch

    def padded(tensor: torch.Tensor, size: int, value: int) -> torch.Tensor:
        return torch.cat([tensor, torch.full((size - len(tensor),), value, dtype=tensor.dtype)])

    host = replace(
        batch.host,
        q_lens=np.ones(rows, dtype=np.int32),
        kv_lens=np.concatenate([batch.host.kv_lens, np.ones(rows - n, dtype=np.int32)]),
    )
    wide = replace(
        batch,
        rows=padded(batch.rows, rows, 0),
        kv_lens=padded(batch.kv_lens, rows, 1),
        q_starts=torch.arange(rows + 1, dtype=torch.int32),
        out_slots={name: padded(slots, rows, 0) for name, slots in batch.out_slots.items()},
        host=host,
    )
    inputs = {
        layer: tuple(
            None if x is None else torch.cat([x, torch.zeros(rows - n, *x.shape[1:], dtype=x.dtype)]) for x in given
        )
        for layer, given in prepared.inputs.items()
    }
    plan = backend.plan_graph(wide, GraphShape(rows=rows, max_kv=140))
    return plan, replace(prepared, batch=wide, inputs=inputs)  # type: ignore[arg-type]


@LAYOUTS
@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("found", ["in the graph", "by refresh"])
def test_a_graph_s_plan_serves_other_rows_of_other_lengths(
    layout: KVLayout, window: int | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its pages are found in the graph or, where they may be too many for that, ahead of it."""
    if found == "by refresh":
        monkeypatch.setattr(graph, "_MOST_IN_GRAPH", 0)
    prepared, backend = made(some(DECODE, layout=layout, window=window, variety=True))
    write_new(prepared, prepared.pools)
    expected = wanted(prepared, prepared.pools)
    plan, wide = in_graph(prepared, backend, 6)
    full = wide.batch
    for members in ([0, 1, 2, 3], [2], [3, 0], [1, 3, 2]):
        for tensor, source, idle in (
            (full.rows, prepared.batch.rows, 0),
            (full.kv_lens, prepared.batch.kv_lens, 1),
            *((full.out_slots[name], prepared.batch.out_slots[name], 0) for name in full.out_slots),
        ):
            tensor.fill_(idle)
            tensor[: len(members)] = source[members]
        kv_lens = np.ones(6, dtype=np.int32)
        kv_lens[: len(members)] = prepared.batch.host.kv_lens[members] + 2  # bounds
        backend.refresh(plan, replace(full, host=replace(full.host, kv_lens=kv_lens, exact=False)))
        backend.in_graph(plan)
        inputs = {
            layer: tuple(
                None if x is None else torch.cat([x[members], x[:1].expand(6 - len(members), *x.shape[1:])])
                for x in given
            )
            for layer, given in prepared.inputs.items()
        }
        prepared.pools["full"].tensors["k"][0][0].zero_()  # the dummy page holds numbers in a run
        outs = attend_layers(replace(wide, inputs=inputs), backend, plan)  # type: ignore[arg-type]
        assert_close(
            {layer: out[: len(members)] for layer, out in outs.items()},
            {layer: out[members] for layer, out in expected.items()},
            prepared.case,
        )


def test_a_graph_s_addresses_stay(standin: ModuleType) -> None:
    """What `run` reads of a graph's plan is where it was, whichever wrapper planned the last use."""
    prepared, backend = made(some(DECODE))
    plan, wide = in_graph(prepared, backend, 4)
    kind = backend._distinct[0]
    before = plan.wrapper(kind)
    places = [t.data_ptr() for t in (before.indptr, before.indices, before.last_page_len, before.own, before.scratch)]
    unpassed(plan._planners[kind]._slots)
    backend.refresh(plan, wide.batch)
    after = plan.wrapper(kind)
    assert after is before
    assert places == [
        t.data_ptr() for t in (after.indptr, after.indices, after.last_page_len, after.own, after.scratch)
    ]
    assert len(plan._planners[kind]._slots) == 3, "all were in use, so another wrapper planned"


@pytest.mark.parametrize("most", [0, 1 << 20])
def test_graphs_of_all_sizes_share_the_memory_for_their_pages(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of their own, at pages of one token and a context of 128k, they would take 2 GB."""
    monkeypatch.setattr(graph, "_MOST_IN_GRAPH", most)
    prepared, backend = made(some(DECODE))
    write_new(prepared, prepared.pools)
    expected = wanted(prepared, prepared.pools)
    graphs = [in_graph(prepared, backend, rows) for rows in (6, 4)]
    kind = backend._distinct[0]
    assert len({plan.wrapper(kind).indices.data_ptr() for plan, _ in graphs}) == 1
    prepared.pools["full"].tensors["k"][0][0].zero_()  # the dummy page holds numbers in a run
    for plan, wide in (*graphs, graphs[0]):
        backend.refresh(plan, wide.batch)
        backend.in_graph(plan)
        found = attend_layers(wide, backend, plan)
        assert_close({layer: out[:4] for layer, out in found.items()}, expected, prepared.case)


def unpassed(slots: list[Slot]) -> None:
    for slot in slots:
        slot.mark = Never()


class Never(pool.Mark):
    """A device that never comes by."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))

    def passed(self) -> bool:
        return False


def test_a_wrapper_whose_plan_the_device_has_not_taken_is_left_alone() -> None:
    names: Iterator[str] = iter("abc")
    wrappers = Pool()

    def slot() -> Slot:
        return Slot(key="k", wrapper=next(names), mark=pool.Mark(torch.device("cpu")))

    first = wrappers.take("k", slot)
    assert first.slot.wrapper == "a"
    unpassed([first.slot])
    del first
    gc.collect()
    second = wrappers.take("k", slot)
    assert second.slot.wrapper == "b", "the first one's plan may still be copied"
    del second
    gc.collect()
    assert wrappers.take("k", slot).slot.wrapper == "b", "and this one's was taken"


def test_too_little_scratch_is_told_with_the_option(monkeypatch: pytest.MonkeyPatch, standin: ModuleType) -> None:
    prepared, backend = made(some(((20, 7), (0, 5))))

    def fails(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("Buffer overflow when allocating memory. Increase the workspace buffer size.")

    monkeypatch.setattr(standin.BatchPrefillWithPagedKVCacheWrapper, "plan", fails)
    with pytest.raises(BatchFault, match=r"Buffer overflow.*raise its option workspace_mib from 1"):
        backend.plan(prepared.batch)


def test_layers_that_the_kernels_do_not_have_stop_the_start() -> None:
    with pytest.raises(ValueError, match=r"layer 0 has heads of size 80; attention\.flashinfer has 64, 128, 256"):
        made(some(DECODE, head_size=80))
    with pytest.raises(ValueError, match="layer 0 has keys of size 128 and values of size 64"):
        made(some(DECODE, head_size=128, v_head_size=64))


def test_what_cannot_be_compiled_stops_the_start(monkeypatch: pytest.MonkeyPatch, standin: ModuleType) -> None:
    """Each phase's kernels are planned once when the backend is made, for every kind."""

    def fails(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("ninja: build stopped")

    monkeypatch.setattr(standin.BatchPrefillWithPagedKVCacheWrapper, "plan", fails)
    made(some(DECODE), phases=("decode",))
    with pytest.raises(RuntimeError, match="ninja"):
        made(some(DECODE), phases=("prefill",))


def test_short_and_long_rows_have_their_kernels_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where long rows take fa3, as on an H200, the first short prompt must not wait for fa2 to be compiled."""
    planned = list[str]()
    kernels = Wrappers.prefill_kernels
    monkeypatch.setattr(
        Wrappers, "prefill_kernels", lambda self, kind, max_q: "fa3" if max_q > 64 else kernels(self, kind, max_q)
    )
    prefill = Wrappers.prefill

    def noted(self: Wrappers, layout: str, scratch: torch.Tensor, kind: str) -> Any:
        planned.append(kind)
        return prefill(self, layout, scratch, kind)

    monkeypatch.setattr(Wrappers, "prefill", noted)
    limits = AttentionLimits(max_rows=8, max_tokens=512, max_context=512)
    made(some(DECODE), phases=("prefill",), limits=limits)
    assert planned == ["fa3", "fa2"]


def test_which_kernels_decode() -> None:
    """Tensor cores where several heads share a KV head, and with a window, before which the other kernel would read."""
    for changes, expected in (
        ({"num_heads": 2, "num_kv_heads": 2}, False),
        ({"num_heads": 8, "num_kv_heads": 1}, True),
        ({"num_heads": 2, "num_kv_heads": 2, "window": 9}, True),
    ):
        prepared, backend = made(some(DECODE, **changes))
        plan = backend.plan(prepared.batch)
        assert plan.wrapper(backend._distinct[0]).tensor_cores is expected
    _, backend = made(some(DECODE, num_heads=2, num_kv_heads=2), Settings(workspace_mib=1, tensor_cores="always"))
    assert backend._wrappers.uses_tensor_cores(backend._distinct[0])


def test_one_plan_serves_all_layers_alike() -> None:
    """Layers of the same sizes, window, cap and scale share one; and plans that are gone give their wrappers back."""
    prepared, backend = made(some(DECODE, variety=True, window=9, soft_cap=3.0))
    assert len(prepared.case.layers) == 4
    assert len(backend._distinct) == 3
    plan = backend.plan(prepared.batch)
    first = {id(plan.wrapper(kind)) for kind in backend._distinct}
    assert len(first) == 3
    del plan
    gc.collect()
    again = backend.plan(part(prepared, [0, 2]).batch)
    assert {id(again.wrapper(kind)) for kind in backend._distinct} == first
