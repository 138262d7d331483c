"""Small checkpoints on disk, for tests of loaders: what stands in them is known to the byte. No torch.

Safetensors files are written here, by the format's definition; GGUF files by the package `gguf`, which is imported when one
is written.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIG: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "dtype": "float32",
}
TEMPLATE = "{{ messages[0]['content'] }}"
TOKENS = ["<s>", "</s>", *(chr(code) for code in range(33, 94)), '!"']


@dataclass(frozen=True, kw_only=True)
class Stored:
    """One tensor as it was written: rows of bytes; `dtype` a name of the contract, shape in Hugging Face's order."""

    dtype: str
    shape: tuple[int, ...]
    rows: NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What a loader is given, and what it must find.

    path      the file or directory that an operator would name
    files     the files that hold weights
    tensors   Hugging Face name -> what was written; None: nothing is known of the weights
    config    entries that `config()` must have
    rows_move   the format keeps the rows of a tensor in an order of its own (GGUF: queries and keys)
    """

    path: Path
    files: tuple[Path, ...] = ()
    tensors: Mapping[str, Stored] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    rows_move: bool = False


def tensors(dtype: str = "float32", seed: int = 0) -> dict[str, Stored]:
    """Random tensors of the model that `CONFIG` describes."""
    random = np.random.default_rng(seed)
    width = {"float32": 4, "float16": 2, "bfloat16": 2}[dtype]
    hidden, inner, vocab = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab, hidden)}
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        shapes |= {f"{at}.input_layernorm.weight": (hidden,), f"{at}.post_attention_layernorm.weight": (hidden,)}
        rows = {"q_proj": hidden, "k_proj": hidden // 2, "v_proj": hidden // 2, "o_proj": hidden}
        shapes |= {f"{at}.self_attn.{stem}.weight": (count, hidden) for stem, count in rows.items()}
        shapes |= {f"{at}.mlp.{stem}.weight": (inner, hidden) for stem in ("gate_proj", "up_proj")}
        shapes[f"{at}.mlp.down_proj.weight"] = (hidden, inner)
    shapes |= {"model.norm.weight": (hidden,), "lm_head.weight": (vocab, hidden)}
    found = {}
    for name, shape in shapes.items():
        values = random.standard_normal(shape, dtype=np.float32)
        raw = values.astype(np.float16) if dtype == "float16" else values
        data = np.ascontiguousarray(raw).view(np.uint8).reshape(-1, 4 if dtype != "float16" else 2)
        data = data[:, -width:]  # the upper half of a float32 is a bfloat16
        found[name] = Stored(dtype=dtype, shape=shape, rows=np.ascontiguousarray(data).reshape(shape[0], -1))
    return found


def write_text_side(folder: Path, **config: Any) -> None:
    """config.json, generation_config.json and a tokenizer of single characters."""
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 0.5, "do_sample": True}))
    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    special = [
        {
            "id": i,
            "content": TOKENS[i],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for i in range(2)
    ]
    model = {"type": "BPE", "vocab": vocabulary, "merges": ['! "'], "unk_token": None, "byte_fallback": False}
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    document = {"version": "1.0", **empty, "added_tokens": special, "model": model}
    (folder / "tokenizer.json").write_text(json.dumps(document))
    settings = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def safetensors_bytes(given: Mapping[str, Stored]) -> bytes:
    """One file: the length of the header, the header, the data."""
    names = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
    header, data = {}, b""
    for name, stored in given.items():
        raw = stored.rows.tobytes()
        header[name] = {
            "dtype": names[stored.dtype],
            "shape": list(stored.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write_safetensors(folder: Path, dtype: str = "float32") -> Checkpoint:
    """One file."""
    given = tensors(dtype)
    write_text_side(folder, dtype=dtype)
    file = folder / "model.safetensors"
    file.write_bytes(safetensors_bytes(given))
    return Checkpoint(path=folder, files=(file,), tensors=given, config={**CONFIG, "dtype": dtype})


def write_sharded_safetensors(folder: Path) -> Checkpoint:
    """Three files and their index."""
    given, files = tensors("bfloat16"), []
    placed: dict[str, str] = {}
    write_text_side(folder, dtype="bfloat16")
    names = list(given)
    for number in range(3):
        file = folder / f"model-{number + 1:05}-of-00003.safetensors"
        mine = {name: given[name] for name in names[number::3]}
        file.write_bytes(safetensors_bytes(mine))
        placed |= dict.fromkeys(mine, file.name)
        files.append(file)
    total = sum(stored.rows.size for stored in given.values())
    index = {"metadata": {"total_size": total}, "weight_map": placed}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return Checkpoint(path=folder, files=tuple(files), tensors=given, config={**CONFIG, "dtype": "bfloat16"})


def write_gguf(folder: Path) -> Checkpoint:
    """A Llama in float32, in one file. Needs the package `gguf`."""
    import gguf

    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(CONFIG["num_hidden_layers"])
    writer.add_context_length(CONFIG["max_position_embeddings"])
    writer.add_embedding_length(CONFIG["hidden_size"])
    writer.add_feed_forward_length(CONFIG["intermediate_size"])
    writer.add_head_count(CONFIG["num_attention_heads"])
    writer.add_head_count_kv(CONFIG["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(CONFIG["rms_norm_eps"])
    writer.add_rope_freq_base(50000.0)
    writer.add_rope_dimension_count(CONFIG["hidden_size"] // CONFIG["num_attention_heads"])
    writer.add_vocab_size(CONFIG["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, *[1] * (len(TOKENS) - 2)])
    writer.add_token_merges(['! "'])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    words = {"embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}
    words |= {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v"}
    words |= {"self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up"}
    words |= {"mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    given = tensors()
    for name, stored in given.items():
        own = name
        for theirs, ours in words.items():
            own = own.replace(theirs, ours)
        own = own.replace("model.layers.", "blk.").replace("model.", "")
        writer.add_tensor(own, stored.rows.reshape(-1).view(np.float32).reshape(stored.shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    known = ("architectures", "vocab_size", "hidden_size", "num_hidden_layers", "num_key_value_heads")
    entries = {key: CONFIG[key] for key in known}
    return Checkpoint(path=path, files=(path,), tensors=given, config=entries, rows_move=True)
