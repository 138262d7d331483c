"""Small checkpoints written by other people's writers (`gguf`, `safetensors`), so that ours are read against them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from jackfield.testing.packed import packed_rows

HIDDEN, INNER, HEADS, KV_HEADS, HEAD_SIZE, LAYERS = 256, 256, 4, 2, 64, 2  # rows are whole blocks of every type

GgufMaker = Callable[..., Path]


def byte_symbols() -> list[str]:
    """GPT-2's 256 printable stand-ins for bytes, in the order of their characters."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [256 + index for index in range(256 - len(shown))]
    return [chr(code) for code in (*shown, *others)]


def byte_level_tokens() -> tuple[list[str], list[int], list[str]]:
    """tokens, types, merges of a small byte-level vocabulary with special tokens at both ends."""
    merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "1 2", "Ġ Ġ"]
    tokens = ["<s>", "</s>", *byte_symbols(), *(merge.replace(" ", "") for merge in merges), "<tool>", "[PAD]"]
    types = [3, 3, *[1] * (len(tokens) - 4), 4, 5]
    return tokens, types, merges


def quantized(shape: tuple[int, ...], kind: gguf.GGMLQuantizationType, seed: int) -> np.ndarray[Any, Any]:
    if kind.name.endswith("_K"):  # the package cannot make these
        return packed_rows(kind.name.lower(), *shape, seed=seed)
    values = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    packed: np.ndarray[Any, Any] = gguf.quants.quantize(values, kind)
    return packed


@pytest.fixture
def make_gguf(tmp_path: Path) -> GgufMaker:
    """Writes a tiny Llama; arguments change one thing each. `metadata`: callbacks on the writer."""

    def make(
        name: str = "tiny.gguf",
        *,
        architecture: str = "llama",
        kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q8_0,
        embedding_kind: gguf.GGMLQuantizationType | None = None,
        head_kind: gguf.GGMLQuantizationType | None = None,
        tied: bool = True,
        bias: bool = False,
        pre: str | None = "smollm",
        tokenizer: bool = True,
        head_count: Any = HEADS,
        vocab: int | None = None,
        metadata: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
        tensors: dict[str, np.ndarray[Any, Any]] | None = None,
        leave_out: tuple[str, ...] = (),
    ) -> Path:
        path = tmp_path / name
        writer = gguf.GGUFWriter(path, architecture)
        tokens, types, merges = byte_level_tokens()
        vocab = vocab or len(tokens)
        writer.add_block_count(LAYERS)
        writer.add_context_length(128)
        writer.add_embedding_length(HIDDEN)
        writer.add_feed_forward_length(INNER)
        writer.add_head_count(head_count)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(50000.0)
        writer.add_rope_dimension_count(HEAD_SIZE)
        writer.add_vocab_size(vocab)
        if tokenizer:
            writer.add_tokenizer_model("gpt2")
            if pre is not None:
                writer.add_tokenizer_pre(pre)
            writer.add_token_list(tokens)
            writer.add_token_types(types)
            writer.add_token_merges(merges)
            writer.add_bos_token_id(0)
            writer.add_eos_token_id(1)
            writer.add_chat_template("{{ messages[0]['content'] }}")
        metadata(writer)
        plain = gguf.GGMLQuantizationType.F32
        shapes: dict[str, tuple[tuple[int, ...], gguf.GGMLQuantizationType]] = {
            "token_embd.weight": ((vocab, HIDDEN), embedding_kind or kind),
            "output_norm.weight": ((HIDDEN,), plain),
        }
        if not tied or head_kind is not None:
            shapes["output.weight"] = ((vocab, HIDDEN), head_kind or kind)
        for layer in range(LAYERS):
            rows = {"attn_q": HEADS * HEAD_SIZE, "attn_k": KV_HEADS * HEAD_SIZE, "attn_v": KV_HEADS * HEAD_SIZE}
            rows |= {"attn_output": HIDDEN, "ffn_gate": INNER, "ffn_up": INNER, "ffn_down": HIDDEN}
            for stem, count in rows.items():
                shapes[f"blk.{layer}.{stem}.weight"] = ((count, INNER if stem == "ffn_down" else HIDDEN), kind)
                if bias and stem.startswith("attn"):
                    shapes[f"blk.{layer}.{stem}.bias"] = ((count,), plain)
            for norm in ("attn_norm", "ffn_norm"):
                shapes[f"blk.{layer}.{norm}.weight"] = ((HIDDEN,), plain)
        for index, (tensor, (shape, type_)) in enumerate(shapes.items()):
            if tensor not in leave_out:
                raw_dtype = None if type_ in (plain, gguf.GGMLQuantizationType.F16) else type_
                writer.add_tensor(tensor, quantized(shape, type_, index), raw_dtype=raw_dtype)
        for tensor, array in (tensors or {}).items():
            writer.add_tensor(tensor, array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return make
