"""Random layers and batches in Triton's interpreter, under tiles and splits so small that each case meets many of their edges.

Run in the same process as `interpreted_attention.py`, see there. The examples are the same in every run.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import NHD_PAGED, GraphShape
from jackfield.testing.attention_cases import (
    AttentionCase,
    PreparedCase,
    assert_close,
    assert_same_kv,
    attend_layers,
    check_prepared,
    copied,
    prepare,
    wanted,
    write_new,
)
from jackfield_attention_triton import backend as backends
from jackfield_attention_triton.backend import TritonAttention
from jackfield_attention_triton.tuning import Blocks, Tuning

SAME_EACH_TIME = settings(derandomize=True, deadline=None)
KV_DTYPES = [None, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]

blocks = st.builds(
    Blocks, lines=st.sampled_from([16, 32]), keys=st.sampled_from([16, 32]), warps=st.just(1), stages=st.just(1)
)
tunings = st.builds(
    Tuning,
    decode=blocks,
    extend=blocks,
    programs=st.sampled_from([1, 8, 500]),
    least_keys=st.sampled_from([16, 32]),
    max_splits=st.sampled_from([1, 2, 3, 7]),
)
cached = st.sampled_from([0, 1, 15, 16, 17, 33, 70])


def cases(new_tokens: st.SearchStrategy[int], trees: st.SearchStrategy[str | None]) -> st.SearchStrategy[AttentionCase]:
    def made(share: int, num_kv_heads: int, tree: str | None, causal: bool, **rest: object) -> AttentionCase:
        return AttentionCase(
            layout=NHD_PAGED,
            num_heads=share * num_kv_heads,
            num_kv_heads=num_kv_heads,
            tree=tree,
            causal=causal or tree is not None,
            **rest,  # type: ignore[arg-type]
        )

    return st.builds(
        made,
        lengths=st.lists(st.tuples(cached, new_tokens), min_size=1, max_size=3).map(tuple),
        share=st.integers(1, 18),
        num_kv_heads=st.integers(1, 2),
        head_size=st.sampled_from([5, 16, 64, 80, 96]),
        v_head_size=st.sampled_from([None, None, 8, 33]),
        page_size=st.sampled_from([1, 3, 16]),
        window=st.sampled_from([None, None, 1, 2, 17, 200]),
        soft_cap=st.sampled_from([None, 2.0]),
        tree=trees,
        causal=st.booleans(),
        dtype=st.sampled_from([torch.float32, torch.float16]),
        kv_dtype=st.sampled_from(KV_DTYPES),
        exact=st.booleans(),
        seed=st.integers(0, 99),
    )


def apart(prepared: PreparedCase) -> PreparedCase:
    """The same with q, k and v as parts of one product, and no numbers behind them."""
    inputs = {}
    for layer, given_ in prepared.inputs.items():
        parts = [one for one in given_ if one is not None]
        nothing = torch.full((len(parts[0]), 7), math.nan, dtype=parts[0].dtype)
        widths = [one[0].numel() for one in parts]
        product = torch.cat([*(one.flatten(1) for one in parts), nothing], dim=1).split_with_sizes([*widths, 7], dim=1)
        q, k, v = (part.view(one.shape) for part, one in zip(product, parts, strict=False))
        inputs[layer] = (q, k, v)
    return replace(prepared, inputs=inputs)


@settings(SAME_EACH_TIME, max_examples=25)
@given(
    tuning=tunings,
    case=cases(st.sampled_from([0, 1, 1, 2, 3, 8, 19]), st.sampled_from([None, None, "random", "chain"])).filter(
        lambda case: any(new for _, new in case.lengths)
    ),
)
def test_batches_of_all_kinds(tuning: Tuning, case: AttentionCase) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(backends, "tuning_for", lambda *_: tuning)
        prepared = apart(prepare(case))
        check_prepared(prepared, TritonAttention(prepared.context))


@settings(SAME_EACH_TIME, max_examples=10)
@given(
    tuning=tunings,
    case=cases(st.just(1), st.none()),
    padding=st.sampled_from([0, 1, 3]),
    further=st.sampled_from([0, 300, 5000]),
)
def test_steps_of_a_graph(tuning: Tuning, case: AttentionCase, padding: int, further: int) -> None:
    """Planned when nothing was known but how many rows there are, some of them padding."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(backends, "tuning_for", lambda *_: tuning)
        prepared = prepare(replace(case, exact=True))
        backend = TritonAttention(prepared.context)
    batch, real = prepared.batch, len(case.lengths)
    rows = real + padding
    zeros = torch.zeros(padding, dtype=torch.int32)
    pools = copied(prepared.pools)
    write_new(prepared, pools)
    backend.bind(prepared.pools)
    ones = np.ones(rows, dtype=np.int32)
    held = replace(
        batch,
        rows=torch.zeros(rows, dtype=torch.int32),
        kv_lens=torch.ones(rows, dtype=torch.int32),
        q_starts=torch.arange(rows + 1, dtype=torch.int32),
        out_slots={name: torch.zeros(rows, dtype=torch.int64) for name in batch.out_slots},
        host=replace(batch.host, q_lens=ones, kv_lens=ones),
    )
    plan = backend.plan_graph(held, GraphShape(rows=rows, max_kv=batch.max_kv + further))
    held.rows.copy_(torch.cat([batch.rows, zeros]))
    held.kv_lens.copy_(torch.cat([batch.kv_lens, zeros + 1]))
    for name, slots in held.out_slots.items():
        slots[:real] = batch.out_slots[name]
    backend.refresh(plan, held)
    backend.in_graph(plan)
    inputs = {
        layer: tuple(
            None if one is None else torch.cat([one, one.new_zeros((padding, *one.shape[1:]))]) for one in given_
        )
        for layer, given_ in prepared.inputs.items()
    }
    found = attend_layers(replace(prepared, inputs=inputs), backend, plan)  # type: ignore[arg-type]
    assert_same_kv(prepared.pools, pools)
    assert_close({layer: out[:real] for layer, out in found.items()}, wanted(prepared, pools), case)
