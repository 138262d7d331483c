"""The random packed weights that tests of formats are made of, against the `gguf` package."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from jackfield import Engine
from jackfield.layers.quantization import ENCODINGS
from jackfield.testing.packed import BLOCKS, PackedShape, packed_rows, write_packed_gguf


def test_there_are_blocks_of_every_encoding_that_can_be_decoded() -> None:
    assert {name: (form.elements, form.nbytes) for name, form in BLOCKS.items()} == {
        name: (form.elements, form.nbytes) for name, form in ENCODINGS.items()
    }


@pytest.mark.parametrize("encoding", BLOCKS)
def test_values_spread_like_weights_and_follow_the_seed(encoding: str) -> None:
    rows = packed_rows(encoding, 64, 512, seed=3, spread=0.05)
    values = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[encoding.upper()])
    assert values.shape == (64, 512)
    assert np.isfinite(values).all()
    assert values.std() == pytest.approx(0.05, rel=0.15)
    assert abs(values.mean()) < 0.005
    assert np.array_equal(rows, packed_rows(encoding, 64, 512, seed=3, spread=0.05))
    assert not np.array_equal(rows, packed_rows(encoding, 64, 512, seed=4, spread=0.05))


def test_rows_that_are_not_whole_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="whole blocks of 256, and 288 is not"):
        packed_rows("q4_k", 2, 288)


def test_each_matrix_has_the_encoding_that_its_name_was_given(tmp_path: Path) -> None:
    path = write_packed_gguf(tmp_path / "m.gguf", {"attn_v": "q6_k", "1.ffn_down": "q8_0", "": "q4_k"})
    kinds = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(path).tensors if tensor.shape.size > 1}
    assert set(kinds.values()) == {"Q4_K", "Q6_K", "Q8_0"}
    assert [name for name, kind in kinds.items() if kind == "Q6_K"] == ["blk.0.attn_v.weight", "blk.1.attn_v.weight"]
    assert [name for name, kind in kinds.items() if kind == "Q8_0"] == ["blk.1.ffn_down.weight"]
    with pytest.raises(KeyError, match=r"no encoding is given for blk\.0\.attn_q"):
        write_packed_gguf(tmp_path / "n.gguf", {"token_embd": "q8_0"})


@pytest.mark.parametrize("tied", [True, False])
def test_such_a_checkpoint_runs(tmp_path: Path, tied: bool) -> None:
    path = write_packed_gguf(tmp_path / "m.gguf", {"ffn_down": "q6_k", "": "q4_0"}, PackedShape(layers=1, tied=tied))
    with Engine(model_path=str(path), dtype="float32", device="cpu", max_total_tokens=256) as engine:
        answer = engine.generate(
            input_ids=[[5, 6, 7]], sampling_params={"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}
        )
    assert len(answer[0]["output_ids"]) == 4
