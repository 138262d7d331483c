"""The checks of linear weights: packing, products, logits, quantisation, and what a cache on disk keeps of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from mmap import ACCESS_READ, mmap
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch

from jackfield.hookspecs import DenseWeight, Ops
from jackfield.layers.quantization import ENCODINGS, decode
from jackfield.model_executor.dtypes import torch_dtype
from jackfield.stack.discovery.claims import quantizations
from jackfield.testing.attention_cases import TOLERANCES
from jackfield.testing.conformance.device import bits
from jackfield.testing.conformance.ops_sampling import SamplingConformance

ROWS = (1, 2, 7, 33)
QUANTISED = 0.05
"""Typical error of a quantised product of normal numbers, of the product's own size: twice what int8 on both sides makes."""


class WeightConformance(SamplingConformance):
    """`OpsConformance` has the other operators."""

    # --- what the checks are made of ---

    def rows(self) -> tuple[int, ...]:
        """Numbers of tokens; few where an interpreter runs a program for each."""
        return (1, 3) if self.interpreted() else ROWS

    def randn(self, *shape: int, dtype: str = "float32", seed: int = 0, scale: float = 1.0) -> torch.Tensor:
        drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale
        return drawn.to(torch_dtype(dtype)).to(self.here())

    def pack(self, ops: Ops, data: torch.Tensor) -> Any:
        return ops.pack(
            DenseWeight(encoding="plain", out_features=data.shape[0], in_features=data.shape[1], data=data.clone())
        )

    def close(self, found: torch.Tensor, wanted: torch.Tensor, dtype: str, *, what: str, roundings: int = 1) -> None:
        """Within the dtype's tolerance, once for each intermediate result that is rounded to it."""
        expected = torch_dtype(dtype)
        assert found.dtype == expected, f"{what} is {found.dtype}, not {expected}"
        assert found.shape == wanted.shape, f"{what} has the shape {tuple(found.shape)}, not {tuple(wanted.shape)}"
        most, mean = (bound * roundings for bound in TOLERANCES[expected])
        error, wanted = found.double().cpu() - wanted.cpu(), wanted.cpu()
        assert not error.isnan().any(), f"{what} holds NaN"
        largest = float(error.abs().max() / wanted.abs().max())
        typical = float(error.square().mean().sqrt() / wanted.square().mean().sqrt())
        assert largest <= most, f"{what} in {dtype} is off by {largest:.1e}, allowed {most:.0e}"
        assert typical <= mean, f"{what} in {dtype} is off by {typical:.1e} on average, allowed {mean:.1e}"

    # --- products ---

    def test_linear(self) -> None:
        """A packed plain weight multiplies as it did before, with and without a bias, for any number of rows."""
        for dtype in self.dtypes():
            ops = self.ops(dtype)
            for out, into in ((5, 7), (64, 96), (33, 256)):
                weight, bias = self.randn(out, into, dtype=dtype, seed=1), self.randn(out, dtype=dtype, seed=2)
                packed = self.pack(ops, weight)
                for n in (0, *ROWS):
                    x = self.randn(n, into, dtype=dtype, seed=3)
                    for added in (None, bias):
                        found = ops.linear(x, packed, added)
                        if n == 0:
                            assert found.shape == (0, out), f"no rows give the shape {tuple(found.shape)}"
                            continue
                        wanted = x.double() @ weight.double().t() + (0 if added is None else added.double())
                        self.close(found, wanted, dtype, what=f"linear of {n} rows")

    def test_encodings(self) -> None:
        """Every packed encoding that it lists multiplies as its decoded weight does."""
        listed = [name for name in self.manifest().encodings if name != "plain"]
        if not listed:
            self.not_claimed("encodings has nothing beside 'plain'")
        for dtype in self.dtypes():
            ops = self.ops(dtype)
            for name in listed:
                assert name in ENCODINGS, (
                    f"encodings has {name!r}, which nothing decodes; known: {', '.join(ENCODINGS)}"
                )
                given = self.encoded(name, rows=24, columns=512)
                packed = ops.pack(replace(given, data=given.data.clone()))
                plain = decode(name, given.data).double()
                for n in ROWS:
                    x = self.randn(n, 512, dtype=dtype, seed=n)
                    self.close(ops.linear(x, packed), x.double() @ plain.t(), dtype, what=f"linear in {name}")

    def test_logits(self) -> None:
        """The vocabulary's product is float32, of its own memory, and no less exact than `linear`."""
        for dtype in self.dtypes():
            ops, weight = self.ops(dtype), self.randn(70, 64, dtype=dtype, seed=1)
            packed = self.pack(ops, weight)
            for n in ROWS:
                x = self.randn(n, 64, dtype=dtype, seed=2)
                found = ops.logits(x, packed)
                assert found.dtype == torch.float32, f"logits are {found.dtype}, not float32"
                rounded = found.to(torch_dtype(dtype))
                self.close(rounded, x.double() @ weight.double().t(), dtype, what=f"logits of {n} rows")
                kept = found.clone()
                ops.logits(self.randn(n, 64, dtype=dtype, seed=3), packed)
                assert torch.equal(found, kept), "a later call of logits changes what an earlier one gave"

    def test_quantization(self) -> None:
        """Each quantisation that it declares makes a product near that of the plain weight, for any number of rows."""
        names = quantizations(self.manifest().features)
        if not names:
            self.not_claimed("features has no 'quantization:<name>'")
        for dtype in self.dtypes():
            for name in names:
                ops, weight = self.ops(dtype, quantization=name), self.randn(64, 256, dtype=dtype, seed=1)
                packed = self.pack(ops, weight)
                for n in ROWS:
                    x = self.randn(n, 256, dtype=dtype, seed=2)
                    wanted = x.double() @ weight.double().t()
                    error = (ops.linear(x, packed).double() - wanted).square().mean().sqrt()
                    typical = float(error / wanted.square().mean().sqrt())
                    assert typical <= QUANTISED, f"{name} of {n} rows is off by {typical:.1e}, allowed {QUANTISED:.0e}"

    def test_export(self) -> None:
        """What it exports comes back from a read-only map with the same bits, header and all through JSON."""
        for dtype in self.dtypes():
            for packing, fields, given in self.packed_forms(dtype):
                ops, again = self.ops(dtype, **fields), self.ops(dtype, **fields)
                packed = ops.pack(given)
                exported = ops.export(packed)
                if exported is None:
                    self.not_claimed(f"export gives nothing for {packing} weights in {dtype}")
                header, data = exported
                assert data.dtype == np.uint8, f"export gives {data.dtype}, not uint8"
                assert data.ndim == 1, f"export gives {data.ndim} dimensions"
                assert again.packing() == ops.packing(), "packing() differs from one object to the next"
                with TemporaryFile() as file:
                    file.write(data.tobytes())
                    file.flush()
                    mapped = np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_READ), dtype=np.uint8)
                restored = again.restore(json.loads(json.dumps(dict(header))), mapped)
                for n in ROWS:
                    x = self.randn(n, given.in_features, dtype=dtype, seed=n)
                    for one, other in (
                        (ops.linear(x, packed), again.linear(x, restored)),
                        (ops.logits(x, packed), again.logits(x, restored)),
                    ):
                        assert torch.equal(bits(one), bits(other)), f"{packing} in {dtype} differs once it is restored"

    def test_looks_up(self) -> None:
        """A packed weight that serves as an embedding gives the rows that a table would."""
        for dtype in self.dtypes():
            ops, table = self.ops(dtype), self.randn(50, 32, dtype=dtype)
            packed = self.pack(ops, table)
            if not ops.looks_up(packed):
                self.not_claimed("looks_up is false for plain weights")
            ids = torch.tensor([3, 0, 49, 3], device=self.here())
            assert torch.equal(ops.embedding(ids, packed), table[ids]), "not the rows of the table"
            assert ops.embedding(ids[:0], packed).shape == (0, 32), "no ids give another shape than [0, 32]"

    def packed_forms(self, dtype: str) -> Iterator[tuple[str, dict[str, Any], DenseWeight]]:
        """(what, fields of the context, weight) for plain weights and for each encoding and quantisation of the manifest."""
        plain = self.randn(24, 512, dtype=dtype, seed=1)
        for name in (None, *quantizations(self.manifest().features)):
            dense = DenseWeight(encoding="plain", out_features=24, in_features=512, data=plain.clone())
            yield name or "plain", {"quantization": name}, dense
        for name in self.manifest().encodings:
            if name != "plain":
                yield name, {}, self.encoded(name, rows=24, columns=512)

    def encoded(self, name: str, *, rows: int, columns: int) -> DenseWeight:
        """A random weight in a packed encoding; small bytes, as a float16 scale of them is a small number."""
        form = ENCODINGS[name]
        size = (rows, columns // form.elements * form.nbytes)
        data = torch.randint(0, 60, size, generator=torch.Generator().manual_seed(3)).to(torch.uint8)
        return DenseWeight(encoding=name, out_features=rows, in_features=columns, data=data.to(self.here()))
