"""The conformance suite of kind `attention`.

Numbers are held against a float64 reference over paged memory that is full of NaN where a row may not look. Everything
that the contract allows is asked for as far as the manifest claims it; what it does not claim, or the probe refuses, is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from jackfield.hookspecs import BatchFault
from jackfield.model_executor.dtypes import torch_dtype
from jackfield.testing.attention_batches import part
from jackfield.testing.attention_cases import (
    assert_close,
    assert_same_kv,
    attend_layers,
    copied,
    wanted,
    write_new,
)
from jackfield.testing.attention_grid import BATCHES, MIXED, SOFT_CAPS, TREES, WINDOWS, cases
from jackfield.testing.attention_sequences import one_by_one, outputs, random_steps
from jackfield.testing.conformance.attention_graphs import GraphUse
from jackfield.testing.conformance.attention_probes import frozen, fused, waits
from jackfield.testing.conformance.attention_rig import AttentionRig
from jackfield.testing.conformance.device import bits
from jackfield.testing.reference import read_slots


class AttentionConformance(AttentionRig):
    """Every check; what an author may set stands in `AttentionRig`."""

    # --- numbers ---

    def test_numbers(self) -> None:
        """Equals a float64 reference over head sizes, GQA ratios, page sizes, scales, layouts and ragged batches."""
        self.holds(cases(self.layouts(), dtype=[torch_dtype(self.dtypes()[0])]))

    def test_every_dtype(self) -> None:
        """Each dtype that it claims is as exact as its bits allow: sums are kept in float32."""
        others = [torch_dtype(name) for name in self.dtypes()[1:]]
        if not others:
            self.not_claimed(f"dtypes has {self.dtypes()[0]} alone")
        caps: list[float | None] = [None, *(SOFT_CAPS[:1] if self.claims("soft_cap") else ())]
        self.holds(cases(self.layouts(), few=True, dtype=others, soft_cap=caps))

    def test_window(self) -> None:
        """A token sees itself and the window - 1 tokens before it, and nothing before them is read."""
        self.needs_feature("window")
        self.holds(cases(self.layouts(), few=True, window=WINDOWS, exact=(True, False)))

    def test_soft_cap(self) -> None:
        """Scores are capped by soft_cap * tanh(scores / soft_cap)."""
        self.needs_feature("soft_cap")
        self.holds(cases(self.layouts(), few=True, soft_cap=SOFT_CAPS, scale=(None, 2.0), v_head_size=(None, 24)))

    def test_non_causal(self) -> None:
        """Where a layer is not causal, a token also sees the row's later ones."""
        self.needs_feature("non_causal")
        windows: list[int | None] = [None, *(WINDOWS[:1] if self.claims("window") else ())]
        self.holds(cases(self.layouts(), few=True, causal=(False,), window=windows, exact=(True, False)))

    def test_mixed(self) -> None:
        """Batches of prefill and decode rows may come as mode MIXED."""
        self.needs_feature("mixed")
        self.holds(cases(self.layouts(), MIXED, few=True, mixed=(True,), exact=(True, False)))

    def test_tree_mask(self) -> None:
        """A mask among a row's new tokens says which a token sees; what was there before them it sees as ever. A chain's mask
        gives what causality gives."""
        self.needs_feature("tree_mask")
        factors: dict[str, Sequence[Any]] = {"exact": (True, False), "variety": (True, False)}
        if self.claims("window"):
            factors["window"] = (None, 8, 100)
        if self.claims("soft_cap"):
            factors["soft_cap"] = (None, 2.0)
        self.holds(cases(self.layouts(), TREES, few=True, tree=("random",), **factors))
        case = self.some(BATCHES["chunk"], tree="chain")
        prepared = self.prepared(case)
        pools = copied(prepared.pools)
        write_new(prepared, pools)
        backend = self.backend(prepared)
        found = attend_layers(prepared, backend, backend.plan(prepared.batch))
        assert_close(found, wanted(replace(prepared, batch=replace(prepared.batch, mask=None)), pools), case)

    def test_layers_of_several_kinds(self) -> None:
        """One plan serves all layers: of several KV groups, and ones that read another layer's KV (kv_source)."""
        factors: dict[str, Sequence[Any]] = {"variety": (True,)}
        if self.claims("window"):
            factors["window"] = (9, None)
        if self.claims("soft_cap"):
            factors["soft_cap"] = (2.0, None)
        self.holds(cases(self.layouts(), few=True, **factors))

    def test_large_scores(self) -> None:
        """Scores of some hundreds, whose exponentials no float holds, give weights all the same."""
        for case in self.possible(cases(self.layouts(), few=True, scale=(8.0,), dtype=[torch_dtype(self.dtypes()[0])])):
            prepared = self.prepared(case)
            pools = copied(prepared.pools)
            write_new(prepared, pools)
            backend = self.backend(prepared)
            found = attend_layers(prepared, backend, backend.plan(prepared.batch))
            for layer, theirs in wanted(prepared, pools).items():
                # Scores are rounded to some units of a hundred-thousandth, and weights with them.
                near = torch.allclose(found[layer].double().cpu(), theirs, rtol=0.02, atol=0.02)
                assert near, f"large scores overflow; take the largest of a row from all before the exponential: {case}"

    def test_parts_of_one_product(self) -> None:
        """q, k and v may be parts of one product: each token's heads are dense, but tokens are apart."""
        case = self.some(BATCHES["chunk"])
        prepared = self.prepared(case)
        apart = replace(prepared, inputs={layer: fused(*given) for layer, given in prepared.inputs.items()})
        pools = copied(prepared.pools)
        write_new(prepared, pools)
        backend = self.backend(apart)
        found = attend_layers(apart, backend, backend.plan(apart.batch))
        assert_same_kv(apart.pools, pools)
        assert_close(found, wanted(prepared, pools), case)

    def test_upper_bounds(self) -> None:
        """Where the host's lengths are upper bounds (exact=False), the true ones count."""
        self.holds(cases(self.layouts(), few=True, exact=(False,)))

    # --- memory ---

    def test_kv_writes(self) -> None:
        """attend writes the new keys and values at out_slots, bit for bit, and no other slot but the dummy page's."""
        windows: list[int | None] = [None, *((9,) if self.claims("window") else ())]
        for case in self.possible(cases(self.layouts(), few=True, variety=(True,), window=windows)):
            prepared = self.prepared(case)
            pools = copied(prepared.pools)
            write_new(prepared, pools)
            backend = self.backend(prepared)
            attend_layers(prepared, backend, backend.plan(prepared.batch))
            assert_same_kv(prepared.pools, pools)

    def test_kv_written_before(self) -> None:
        """Where k and v are None, an operator wrote them: they are read as they are and not written again."""
        for case in self.possible(cases(self.layouts(), few=True)):
            prepared = self.prepared(case)
            write_new(prepared, prepared.pools)
            pools = copied(prepared.pools)
            backend = self.backend(prepared)
            found = attend_layers(prepared, backend, backend.plan(prepared.batch), written=True)
            assert_same_kv(prepared.pools, pools)
            assert_close(found, wanted(prepared, pools), case)

    def test_kv_dtype(self) -> None:
        """Where the KV is kept in another dtype (kv:<dtype>), each token is seen as it is kept, the batch's own too."""
        factors: dict[str, Sequence[Any]] = {"kv_dtype": self.kv_dtypes(), "soft_cap": (None,)}
        if self.claims("window"):
            factors["window"] = (None, 9)
        dtypes = [torch_dtype(name) for name in self.dtypes()]
        self.holds(cases(self.layouts(), MIXED, few=True, dtype=dtypes, **factors))

    def test_kv_dtype_writes(self) -> None:
        """In another dtype, what is beyond its range is kept as its largest value, NaN as NaN, and all else is rounded."""
        for kv_dtype in self.kv_dtypes():
            for case in self.possible([self.some(BATCHES["chunk"], kv_dtype=kv_dtype)]):
                prepared = self.prepared(case)
                beyond = 2 * torch.finfo(kv_dtype).max
                if beyond < torch.finfo(case.dtype).max:
                    prepared.k[0, :, :2], prepared.v[1, :, 1] = beyond, -beyond
                    prepared.v[0, 0, 0] = math.inf
                pools = copied(prepared.pools)
                write_new(prepared, pools)
                backend = self.backend(prepared)
                attend_layers(prepared, backend, backend.plan(prepared.batch))
                assert_same_kv(prepared.pools, pools)
                prepared.k[2, 0, 0] = math.nan
                attend_layers(prepared, backend, backend.plan(prepared.batch))
                kept = read_slots(prepared.kv, "k", 0, prepared.out_slots[2:3])[0, 0, 0]
                assert bool(kept.isnan()), f"a NaN was not kept as one: {case}"

    def test_rows_apart(self) -> None:
        """A row whose keys and values are NaN spoils no other row, and gives NaN itself."""
        for lengths in (((30, 1), (28, 1), (29, 1)), ((9, 4), (0, 8), (12, 4))):
            case = self.some(lengths)
            prepared = self.prepared(case)
            start, stop = prepared.batch.q_starts[1:3].tolist()
            prepared.k[start:stop], prepared.v[start:stop] = math.nan, math.nan
            backend = self.backend(prepared)
            found = attend_layers(prepared, backend, backend.plan(prepared.batch))[0]
            spoilt = torch.isnan(found).flatten(1).any(dim=1).cpu()
            assert bool(spoilt[start:stop].all()), f"the row's own NaN was hidden: {case}"
            spoilt[start:stop] = False
            assert not bool(spoilt.any()), f"NaN of one row reached another: {case}"

    def test_bound_again(self) -> None:
        """After the KV has moved, `bind` is called again, and the old memory is neither read nor written."""
        prepared = self.prepared(self.some(variety=True))
        backend = self.backend(prepared)
        attend_layers(prepared, backend, backend.plan(prepared.batch))
        moved = replace(prepared, pools=copied(prepared.pools))
        for kv in prepared.pools.values():
            for tensors in kv.tensors.values():
                for tensor in tensors:
                    tensor.zero_()
        before = copied(prepared.pools)
        backend.bind(moved.pools)
        found = attend_layers(moved, backend, backend.plan(moved.batch))
        assert_close(found, wanted(moved, moved.pools), moved.case)
        assert_same_kv(prepared.pools, before)

    # --- plans ---

    def test_plans_alive(self) -> None:
        """Plans of several batches may be alive at once, and are attended in any order."""
        prepared = self.prepared(self.some((*BATCHES["chunk"], *BATCHES["decode"], *BATCHES["long"])))
        batches = [part(prepared, members) for members in ([0, 1, 2], [5, 6, 7, 8], [3], [11, 12, 14], [4, 9, 13])]
        backend = self.backend(prepared)
        plans = [backend.plan(one.batch) for one in batches]
        for i in (2, 0, 4, 3, 1, 0):
            found = attend_layers(batches[i], backend, plans[i])
            assert_close(found, wanted(batches[i], prepared.pools), prepared.case)

    def test_buffers_used_again(self) -> None:
        """The caller may fill the tensors of an attended batch with the next one: each plan looks at what is there."""
        prepared = self.prepared(self.some(((9, 1), (33, 1), (20, 1))))
        backend = self.backend(prepared)
        attend_layers(prepared, backend, backend.plan(prepared.batch))
        batch = prepared.batch
        order = [2, 0, 1]
        batch.rows.copy_(batch.rows[order].clone())
        batch.kv_lens.copy_(batch.kv_lens[order].clone())
        prepared.true_kv_lens.copy_(prepared.true_kv_lens[order].clone())
        slots = next(iter(batch.out_slots.values()))
        slots.copy_(slots[order].clone())
        host = replace(batch.host, kv_lens=batch.host.kv_lens[order].copy())
        again = replace(prepared, batch=replace(batch, host=host))
        found = attend_layers(again, backend, backend.plan(again.batch))
        assert_close(found, wanted(again, again.pools), again.case)

    def test_graph(self) -> None:
        """After one `plan_graph`, `refresh`, `in_graph` and `attend` give what `plan` and `attend` give, for batch after batch in
        the same tensors, with fewer rows than the graph has; and no padding reaches a slot but that of the dummy page."""
        self.needs_feature("graph")
        factors: dict[str, Sequence[Any]] = {"variety": (True,), "exact": (True, False)}
        if self.claims("window"):
            factors["window"] = (9, None)
        if self.claims("soft_cap"):
            factors["soft_cap"] = (2.0, None)
        for case in self.possible(cases(self.layouts(), ("decode",), few=True, **factors)):
            prepared = self.prepared(case)
            backend = self.backend(prepared)
            use = GraphUse(prepared, backend, rows=8)
            for members in (range(6), [4, 1], [5], [3, 0, 2, 1]):
                some = part(prepared, list(members))
                pools = copied(prepared.pools)
                write_new(some, pools)
                found = use.attend(some)
                assert_same_kv(prepared.pools, pools)
                assert_close(found, wanted(some, pools), case)

    def test_graphs_side_by_side(self) -> None:
        """Plans of several graphs live beside each other and beside ordinary ones, and are used in any order."""
        self.needs_feature("graph")
        prepared = self.prepared(self.some(BATCHES["decode"]))
        backend = self.backend(prepared)
        large, small = (GraphUse(prepared, backend, rows=rows) for rows in (7, 2))
        for use, members in (
            (large, [0, 2, 4, 1, 5]),
            (small, [1]),
            (None, [3, 5, 2]),
            (small, [5, 0]),
            (large, [1, 4]),
        ):
            some = part(prepared, members)
            pools = copied(prepared.pools)
            write_new(some, pools)
            found = attend_layers(some, backend, backend.plan(some.batch)) if use is None else use.attend(some)
            assert_close(found, wanted(some, pools), prepared.case)

    def test_inputs_untouched(self) -> None:
        """plan and attend change nothing of the batch, the tables, q, k and v."""
        prepared = self.prepared(self.some(variety=True))
        before = frozen(prepared)
        backend = self.backend(prepared)
        attend_layers(prepared, backend, backend.plan(prepared.batch))
        for name, value in frozen(prepared).items():
            assert np.array_equal(value, before[name]), f"{name} was changed"

    def test_plan_does_not_wait(self) -> None:
        """plan may enqueue device work and never waits for it: it reads no value of a device tensor on the host."""
        if set(self.manifest().devices) == {"cpu"}:
            self.not_claimed("devices has cpu alone, where there is nothing to wait for")
        prepared = self.prepared(self.some(variety=True))
        backend = self.backend(prepared)
        backend.plan(prepared.batch)  # the first one may compile and allocate
        found = waits(prepared.case.device, lambda: backend.plan(prepared.batch))
        assert not found, f"plan waits for the device: {found}"

    def test_one_phase(self) -> None:
        """Made for prefill or decode alone, it serves the batches of that phase."""
        for phase, name in (("prefill", "chunk"), ("decode", "decode")):
            prepared = self.prepared(self.some(BATCHES[name]), phases=(phase,))
            backend = self.backend(prepared)
            found = attend_layers(prepared, backend, backend.plan(prepared.batch))
            assert_close(found, wanted(prepared, prepared.pools), prepared.case)

    def test_batch_fault(self) -> None:
        """What plan refuses, it refuses with BatchFault before anything is done, and goes on with the next batch."""
        prepared = self.prepared(self.some())
        refused = self.refused_batch(prepared)
        if refused is None:
            self.not_claimed("`refused_batch` names no batch that it refuses")
        backend = self.backend(prepared)
        before = copied(prepared.pools)
        with pytest.raises(BatchFault, match=r"\S"):
            backend.plan(refused)
        assert_same_kv(prepared.pools, before)
        found = attend_layers(prepared, backend, backend.plan(prepared.batch))
        assert_close(found, wanted(prepared, prepared.pools), prepared.case)

    def test_deterministic(self) -> None:
        """With `deterministic`, a token's bits are the same however its sequence is cut, batched and placed."""
        for number, dtype in enumerate(self.invariant_dtypes()):
            random = np.random.default_rng(number)
            lengths = random.integers(1, 290, 5).tolist()
            for window in (None, *((40,) if self.claims("window") else ())):
                case = self.some([(0, n) for n in lengths], window=window)
                case = replace(case, dtype=torch_dtype(dtype), num_heads=3, num_kv_heads=1, seed=number)
                here, there = (self.prepared(replace(case, placement=place), deterministic=True) for place in (0, 1))
                alone = outputs(here, self.backend(here), one_by_one(lengths))
                backend = self.backend(there)
                for _ in range(2):
                    found = outputs(there, backend, random_steps(lengths, random))
                    for mine, theirs in zip(found, alone, strict=True):
                        assert torch.equal(bits(mine), bits(theirs)), f"the bits depend on the batch: {case}"
