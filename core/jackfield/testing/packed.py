"""Packed weights at random, and tiny checkpoints of them, for tests of formats: every encoding that `jackfield.layers` decodes.

The blocks are drawn, not quantised from anything, so every bit pattern of codes and sub-scales occurs, negative block scales
and zeros too; what they are worth is for the decoder under test to say. Scales are such that the values spread like the
weights of a model (`spread`), so that a forward pass through them stays in the range of float16. No torch; a GGUF file is
written by the package `gguf`, which is imported when one is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from jackfield.testing.checkpoints import TEMPLATE


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The bytes of one encoding's block that are not codes or sub-scales, which may be anything.

    elements, nbytes   weights in a block, and bytes
    scale, minimum     byte offsets of the float16 scale and of the float16 that moves the values; None: there is none
    unit               standard deviation of the values where the scale is 1
    centre             the minimum that centres the values where the scale is 1, with the sign that the format gives it
    """

    elements: int
    nbytes: int
    scale: int
    minimum: int | None = None
    unit: float
    centre: float = 0.0


BLOCKS: Mapping[str, Blocks] = MappingProxyType(
    {
        "q8_0": Blocks(elements=32, nbytes=34, scale=0, unit=73.9),
        "q4_0": Blocks(elements=32, nbytes=18, scale=0, unit=4.64),
        "q5_0": Blocks(elements=32, nbytes=22, scale=0, unit=9.25),
        "q4_1": Blocks(elements=32, nbytes=20, scale=0, minimum=2, unit=4.61, centre=-7.5),
        "q5_1": Blocks(elements=32, nbytes=24, scale=0, minimum=2, unit=9.23, centre=-15.5),
        # Sub-scales and sub-minima are drawn too: uniform in 0..15 (q2_k) and 0..63, so centred only on the whole.
        "q2_k": Blocks(elements=256, nbytes=84, scale=80, minimum=82, unit=15.3, centre=1.5),
        "q4_k": Blocks(elements=256, nbytes=144, scale=0, minimum=2, unit=256.0, centre=7.5),
        "q5_k": Blocks(elements=256, nbytes=176, scale=0, minimum=2, unit=525.0, centre=15.5),
        "q3_k": Blocks(elements=256, nbytes=110, scale=108, unit=43.3),
        "q6_k": Blocks(elements=256, nbytes=210, scale=208, unit=1366.0),
    }
)
"""Encoding -> where its float16 numbers lie, by ggml's definitions."""


def packed_rows(encoding: str, rows: int, elements: int, seed: int = 0, spread: float = 1 / 16) -> NDArray[np.uint8]:
    """uint8 [rows, bytes a row] of random blocks. elements: of a row, whole blocks; spread: about the values' deviation.

    Raises KeyError for an encoding that is not in `BLOCKS`, ValueError for rows that are not whole blocks.
    """
    form = BLOCKS[encoding]
    if elements % form.elements:
        raise ValueError(f"a row of {encoding} is whole blocks of {form.elements}, and {elements} is not")
    random = np.random.default_rng([seed, rows, elements])
    blocks = random.integers(0, 256, (rows * elements // form.elements, form.nbytes), dtype=np.uint8)
    scale = random.uniform(0.5, 1.5, len(blocks)) * spread / form.unit
    if form.minimum is not None:
        moved = scale * form.centre * random.uniform(0.9, 1.1, len(blocks))
        blocks[:, form.minimum : form.minimum + 2] = _bytes(moved)
    else:
        scale *= random.choice([-1.0, 1.0], len(blocks))  # where no minimum is, quantisers write negative scales too
    blocks[:, form.scale : form.scale + 2] = _bytes(scale)
    blocks[random.integers(0, len(blocks)), form.scale : form.scale + 2] = 0  # as a block of zeros is written
    return blocks.reshape(rows, -1)


def _bytes(values: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values.astype("<f2")).view(np.uint8).reshape(len(values), 2)


@dataclass(frozen=True, kw_only=True)
class PackedShape:
    """A Llama whose rows are whole blocks of every encoding."""

    hidden: int = 256
    inner: int = 256
    heads: int = 4
    kv_heads: int = 2
    layers: int = 2
    vocab: int = 512
    tied: bool = True

    def rows(self) -> dict[str, tuple[int, int]]:
        """Matrix's GGUF name without `.weight` -> (rows, elements of a row)."""
        kv = self.hidden // self.heads * self.kv_heads
        found = {"token_embd": (self.vocab, self.hidden)}
        for layer in range(self.layers):
            outputs = {"attn_q": self.hidden, "attn_k": kv, "attn_v": kv, "attn_output": self.hidden}
            outputs |= {"ffn_gate": self.inner, "ffn_up": self.inner, "ffn_down": self.hidden}
            for stem, count in outputs.items():
                found[f"blk.{layer}.{stem}"] = (count, self.inner if stem == "ffn_down" else self.hidden)
        return found if self.tied else {**found, "output": (self.vocab, self.hidden)}


def write_packed_gguf(
    path: Path,
    encoding: str | Mapping[str, str],
    shape: PackedShape | None = None,
    seed: int = 0,
) -> Path:
    """A Llama with random packed weights in one GGUF file, of a megabyte or so; gives `path`.

    encoding: of every matrix, or end of a matrix's GGUF name (`attn_v`, `blk.1.ffn_down`) -> encoding, the first that fits;
    `"": ...` for the rest. Its vocabulary is single characters, with special tokens 0 and 1. Needs the package `gguf`.
    Raises KeyError for an encoding that is not in `BLOCKS` and where nothing is said of a matrix.
    """
    import gguf

    shape = shape or PackedShape()
    given = {"": encoding} if isinstance(encoding, str) else encoding
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(shape.layers)
    writer.add_context_length(512)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(shape.hidden // shape.heads)
    writer.add_vocab_size(shape.vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    signs = [chr(0x4E00 + number) for number in range(shape.vocab - 3)]
    writer.add_token_list(["<s>", "</s>", *signs, signs[0] + signs[1]])
    writer.add_token_types([3, 3, *[1] * (shape.vocab - 2)])
    writer.add_token_merges([f"{signs[0]} {signs[1]}"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    random = np.random.default_rng([seed, 1])
    norms = [f"blk.{layer}.{stem}" for layer in range(shape.layers) for stem in ("attn_norm", "ffn_norm")]
    for name in (*norms, "output_norm"):
        writer.add_tensor(f"{name}.weight", random.uniform(0.5, 1.5, shape.hidden).astype(np.float32))
    for number, (name, (rows, elements)) in enumerate(shape.rows().items()):
        kind = next((value for end, value in given.items() if name.endswith(end)), None)
        if kind is None:
            raise KeyError(f"no encoding is given for {name}; given: {', '.join(given)}")
        data = packed_rows(kind, rows, elements, seed=seed + number)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=gguf.GGMLQuantizationType[kind.upper()])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
