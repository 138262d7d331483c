"""How llamacpp-q4_k_m.gguf and its logits were made: by llama.cpp's own quantiser and its own forward pass.

    PYTHON_WITH_LLAMA_CPP tests/data/make_llamacpp.py        # llama-cpp-python 0.3.36 and gguf; jackfield from PYTHONPATH=core

A Llama of one layer with random weights: Q4_K, and Q6_K where that mixture has it (embedding, values, down). The logits
[tokens, vocab] are float32; llama.cpp rounds activations to 8 bits for such products, so they are near, not exact.
"""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

import llama_cpp as library
import numpy as np

from jackfield.testing.packed import PackedShape, write_packed_gguf

HERE = Path(__file__).resolve().parent
TARGET = HERE / "llamacpp-q4_k_m.gguf"
SHAPE = PackedShape(layers=1, kv_heads=1, vocab=256)
TOKENS = [7, 200, 31, 5, 99, 100, 31, 250, 64, 12, 180, 3]
Q4_K_M = 15


def quantise() -> None:
    with tempfile.TemporaryDirectory() as folder:
        source = write_packed_gguf(Path(folder) / "source.gguf", "q8_0", SHAPE, seed=11)
        parameters = library.llama_model_quantize_default_params()
        parameters.ftype, parameters.allow_requantize, parameters.nthread = Q4_K_M, True, 1
        assert library.llama_model_quantize(str(source).encode(), str(TARGET).encode(), parameters) == 0


def logits() -> np.ndarray:
    model = library.llama_model_load_from_file(str(TARGET).encode(), library.llama_model_default_params())
    parameters = library.llama_context_default_params()
    parameters.n_ctx, parameters.n_threads = 64, 1
    parameters.type_k = parameters.type_v = 0  # float32
    parameters.flash_attn_type = 0
    context = library.llama_init_from_model(model, parameters)
    batch = library.llama_batch_init(len(TOKENS), 0, 1)
    for at, token in enumerate(TOKENS):
        batch.token[at], batch.pos[at], batch.logits[at] = token, at, True
        batch.n_seq_id[at], batch.seq_id[at][0] = 1, 0
    batch.n_tokens = len(TOKENS)
    assert library.llama_decode(context, batch) == 0
    rows = []
    for at in range(len(TOKENS)):
        pointer = ctypes.cast(library.llama_get_logits_ith(context, at), ctypes.POINTER(ctypes.c_float))
        rows.append(np.ctypeslib.as_array(pointer, (SHAPE.vocab,)).copy())
    return np.stack(rows)


if __name__ == "__main__":
    quantise()
    np.savez_compressed(TARGET.with_suffix(".npz"), tokens=np.array(TOKENS), logits=logits())
