"""The backend against Jackfield's float64 reference, in its own layout, as its manifest declares it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.resources import files

import pytest
import torch
from columnar_attention.backend import ColumnarAttention
from columnar_attention.probe import check as probe

from jackfield.hookspecs import KVLayout, KVTensorSpec, Need
from jackfield.testing.attention_cases import AttentionCase, check, prepare, run

(TABLE,) = tomllib.loads(files("columnar_attention").joinpath("plugin.toml").read_text())["layout"]
LAYOUT = KVLayout(
    name=TABLE["name"],
    tensors=tuple(KVTensorSpec(role=tensor["role"], shape=tuple(tensor["shape"])) for tensor in TABLE["tensors"]),
)
BATCHES = {
    "prefill": ((0, 1), (0, 7), (0, 16), (0, 33)),
    "chunk": ((5, 3), (16, 16), (31, 2), (64, 1)),
    "decode": ((0, 1), (15, 1), (16, 1), (40, 1), (7, 1)),
}


@pytest.mark.parametrize("lengths", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("page_size", [8, 16, 24])
@pytest.mark.parametrize("exact", [True, False])
def test_equals_the_reference(lengths: tuple[tuple[int, int], ...], page_size: int, exact: bool) -> None:
    check(AttentionCase(lengths=lengths, layout=LAYOUT, page_size=page_size, exact=exact), ColumnarAttention)


@pytest.mark.parametrize("heads", [(1, 1), (4, 1), (9, 3)])
@pytest.mark.parametrize("sizes", [(16, 16), (64, 24)])
def test_heads_and_sizes(heads: tuple[int, int], sizes: tuple[int, int]) -> None:
    case = AttentionCase(
        lengths=((0, 5), (11, 1), (6, 2)),
        layout=LAYOUT,
        page_size=8,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_size=sizes[0],
        v_head_size=sizes[1],
    )
    check(case, ColumnarAttention)


def test_bfloat16() -> None:
    for lengths in BATCHES.values():
        check(AttentionCase(lengths=lengths, layout=LAYOUT, page_size=8, dtype=torch.bfloat16), ColumnarAttention)


def test_kv_that_an_operator_wrote_is_not_written_again() -> None:
    case = AttentionCase(lengths=BATCHES["chunk"], layout=LAYOUT, page_size=8)
    ours, theirs = prepare(case), prepare(case)
    found = run(ours, ColumnarAttention(ours.context))
    assert torch.equal(found, run(theirs, ColumnarAttention(theirs.context), written=True))


def test_the_probe_names_the_page_size_without_torch() -> None:
    (problem,) = probe(Need(device="cpu", page_size=1), None)
    assert "--page-size" in str(problem)
    assert probe(Need(device="cpu", page_size=8), None) == []
    code = "import columnar_attention.plugin, columnar_attention.probe, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
