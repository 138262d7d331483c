"""The check of keys and values that a provider writes into the KV cache itself."""

from __future__ import annotations

import torch

from jackfield.hookspecs import CORE_LAYOUTS, KVLayout, KVWrite
from jackfield.stack.discovery.manifest import ANY_LAYOUT
from jackfield.testing.conformance.device import bits
from jackfield.testing.conformance.ops_layers import LayerConformance
from jackfield.testing.ops_twin import LayerWeights, TwinContext

PAGES = 5
MOST = 16
"""Tokens of a write: so many slots are there beside those of the dummy page."""
NARROW = ("float8_e4m3fn", "float8_e5m2")
"""Dtypes of a KV cache beside the run's own."""
BEYOND = 200
"""A factor that brings some values beyond the range of one of them."""
NARROW_STEP = 2.0**-2
"""Distance of neighbours in the coarser of them, relative."""


class KVWriteConformance(LayerConformance):
    """`OpsConformance` has the other operators."""

    def test_kv_write(self) -> None:
        """Keys and values lie in the slots of `kv_write` and nowhere else, or are returned; always, in a layout not listed."""
        listed = self.manifest().layouts
        for layout in CORE_LAYOUTS.values():
            may = layout.name in listed or ANY_LAYOUT in listed
            for dtype in self.dtypes():
                for kv_dtype in (dtype, *NARROW):
                    self._writes(layout, dtype, kv_dtype, may=may)
        if not listed:
            self.not_claimed("the manifest lists no layouts: keys and values were returned, as they must be")

    def _writes(self, layout: KVLayout, dtype: str, kv_dtype: str, *, may: bool) -> None:
        """may: the provider may write this layout."""
        ops = self.ops(dtype, layout=layout.name)
        narrow = kv_dtype in NARROW
        for full, page_size in ((True, 4),) if narrow else ((True, 4), (False, 1), (False, 16)):
            given = self.weights(dtype, full=full)
            if narrow:
                given.qkv = given.qkv * BEYOND  # values have no norm
            block, _ = self.blocks(ops, given)
            for n in (7,) if narrow else [n for n in self.rows() if n <= MOST]:
                positions = torch.arange(n, device=self.here()) * 3 + 5
                x, residual = (self.randn(n, self.hidden, dtype=dtype, seed=seed) for seed in (1, 2))
                write = self._pages(layout, given, page_size, kv_dtype, n)
                before = [bits(pages).clone() for pages in (write.k, write.v)]
                found = ops.pre_attention(block, x.clone(), residual.clone(), TwinContext(ops, positions, write=write))
                where = f"{layout.name}, pages of {page_size}, {kv_dtype} in a run in {dtype}"
                assert (found[1] is None) == (found[2] is None), f"k or v alone was returned ({where})"
                wanted = given.before(x, residual, positions)
                self.close(found[0], wanted[0], dtype, what="q beside a write", roundings=3)
                if found[1] is not None and found[2] is not None:
                    self.close(found[1], wanted[1], dtype, what="k beside a write", roundings=3)
                    self.close(found[2], wanted[2], dtype, what="v beside a write", roundings=3)
                    continue
                assert may, f"k and v were not returned, and the manifest does not list the layout ({where})"
                for what, pages, old, new in zip("kv", (write.k, write.v), before, wanted[1:3], strict=True):
                    self._landed(layout, write, pages, old, new, dtype, f"{what} ({where})")

    def _pages(self, layout: KVLayout, given: LayerWeights, page_size: int, kv_dtype: str, n: int) -> KVWrite:
        """A cache full of numbers, and slots in no order; the last two of many are padding."""
        layer = given.layer
        tensors = []
        for seed, spec in enumerate(layout.tensors):
            sizes = spec.sizes(
                page_size=page_size,
                num_kv_heads=layer.num_kv_heads,
                head_size=layer.head_size,
                v_head_size=layer.v_head_size,
            )
            pages = PAGES + MOST // page_size
            tensors.append(self.randn(pages, *sizes, seed=seed + 7).to(getattr(torch, kv_dtype)))
        order = torch.randperm((PAGES - 1 + MOST // page_size) * page_size, generator=torch.Generator().manual_seed(n))
        slots = order[:n] + page_size
        if n > 2:
            slots[-2:] = 0
        return KVWrite(slots=slots.to(self.here()), k=tensors[0], v=tensors[1], page_size=page_size, layout=layout.name)

    def _landed(
        self,
        layout: KVLayout,
        write: KVWrite,
        pages: torch.Tensor,
        old: torch.Tensor,
        new: torch.Tensor,
        dtype: str,
        where: str,
    ) -> None:
        """pages now hold the numbers `new` [n, kv_heads, size] in their slots, and elsewhere the bytes `old`."""
        # [slots, kv_heads, size], the order of the core's layouts
        by_slot = (pages.transpose(1, 2) if layout.name == "hnd-paged" else pages).flatten(0, 1)
        was = old.view(pages.dtype).view(pages.shape)
        was_by_slot = (was.transpose(1, 2) if layout.name == "hnd-paged" else was).flatten(0, 1).to(self.here())
        real = write.slots >= write.page_size
        slots = write.slots[real]
        rest = torch.ones(len(by_slot), dtype=torch.bool, device=self.here())
        rest[slots] = False
        rest[: write.page_size] = False
        same = torch.equal(bits(by_slot[rest]), bits(was_by_slot[rest]))
        assert same, f"slots changed into which nothing was to be written: {where}"
        landed, wanted = by_slot[slots], new[real]
        if str(pages.dtype) == f"torch.{dtype}":
            self.close(landed, wanted, dtype, what=f"what was written of {where}", roundings=3)
            return
        most = torch.finfo(pages.dtype).max
        wanted = wanted.clamp(-most, most)
        error = (landed.double() - wanted).abs()
        assert bool((error <= NARROW_STEP * wanted.abs() + 0.02).all()), f"what was written of {where} is no cast"
