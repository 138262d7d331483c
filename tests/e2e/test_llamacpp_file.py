"""A file by llama.cpp's own quantiser, Q4_K and Q6_K, and the logits that it computes with it (tests/data/make_llamacpp.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from jackfield import Engine

DATA = Path(__file__).resolve().parents[1] / "data"
FILE = DATA / "llamacpp-q4_k_m.gguf"


@pytest.mark.parametrize(
    ("ops", "dtype", "quantization"),
    [
        ("torch", "float32", "none"),
        ("torch", "bfloat16", "none"),
        ("cpu", "float32", "gguf"),
        ("cpu", "bfloat16", "gguf"),
        ("cpu", "float16", "gguf"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 32], ids=["token by token", "at once"])
def test_log_probabilities_are_llama_cpps(ops: str, dtype: str, quantization: str, chunk: int) -> None:
    """llama.cpp rounds activations to 8 bits, which moves a log-probability by a few hundredths here; a wrong scale, order of
    blocks or rotary layout moves it by whole units."""
    told = np.load(FILE.with_suffix(".npz"))
    logits = told["logits"].astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    tokens, vocab = told["tokens"].tolist(), logits.shape[1]
    with Engine(
        model_path=str(FILE),
        ops=ops,
        dtype=dtype,
        quantization=quantization,
        weight_cache_dir="none",
        device="cpu",
        max_total_tokens=256,
        max_top_logprobs=vocab,
        chunked_prefill_size=chunk,
    ) as engine:
        answer = engine.generate(
            input_ids=tokens,
            sampling_params={"max_new_tokens": 1, "temperature": 0},
            return_logprob=True,
            logprob_start_len=0,
            top_logprobs_num=vocab,
        )
    meta = answer["meta_info"]
    found = np.empty_like(expected)
    for row, entries in enumerate([*meta["input_top_logprobs"][1:], meta["output_top_logprobs"][0]]):
        for value, token, _ in entries:
            found[row, token] = value
    apart = np.abs(found - expected)
    assert apart.max() < 0.2
    assert apart.mean() < 0.05
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.999
