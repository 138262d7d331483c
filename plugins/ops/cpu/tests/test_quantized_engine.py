"""Whole models with weights that stay packed, against the same models with decoded weights."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jackfield import ConfigurationError, Engine
from jackfield.model_executor.weight_cache import kept
from jackfield.testing.packed import PackedShape, write_packed_gguf
from jackfield_ops_cpu.quantized import FORMS

PROMPTS = ([5, 6, 7, 300, 8, 9, 10, 41, 42], [*range(3, 63)])
"""Fewer tokens than are multiplied code by code, and more."""


def log_probabilities(path: Path, prompts: tuple[list[int], ...] = PROMPTS, **args: Any) -> NDArray[np.float64]:
    """Of the prompts' tokens, and of one more each."""
    args = {"weight_cache_dir": "none", **args}
    with Engine(model_path=str(path), ops="cpu", device="cpu", max_total_tokens=2048, **args) as engine:
        found: list[float] = []
        for prompt in prompts:
            answer = engine.generate(
                input_ids=prompt,
                sampling_params={"max_new_tokens": 1, "temperature": 0, "ignore_eos": True},
                return_logprob=True,
                logprob_start_len=0,
            )
            meta = answer["meta_info"]
            found += [value for value, *_ in [*meta["input_token_logprobs"][1:], *meta["output_token_logprobs"]]]
    return np.array(found)


def apart(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.abs(one - other).mean())


@pytest.mark.parametrize("encoding", FORMS)
def test_packed_weights_say_what_their_decoded_values_say(tmp_path: Path, encoding: str) -> None:
    path = write_packed_gguf(tmp_path / "m.gguf", {"": encoding})
    exact = log_probabilities(path, dtype="float32", quantization="none")
    assert apart(log_probabilities(path, dtype="float32", quantization="gguf"), exact) < 1e-4
    decoded = apart(log_probabilities(path, dtype="bfloat16", quantization="none"), exact)
    packed = apart(log_probabilities(path, dtype="bfloat16", quantization="gguf"), exact)
    assert packed < 1.3 * decoded + 1e-3, "further from the exact values than bfloat16 takes the decoded weights"


def test_a_layer_of_two_encodings_stays_packed(tmp_path: Path) -> None:
    path = write_packed_gguf(tmp_path / "m.gguf", {"attn_v": "q6_k", "": "q4_k"})
    exact = log_probabilities(path, dtype="float32", quantization="none")
    assert apart(log_probabilities(path, dtype="float32", quantization="gguf"), exact) < 1e-4
    assert apart(log_probabilities(path, dtype="bfloat16", quantization="gguf"), exact) < 0.05


def test_int8_is_near_what_it_was_made_of(tmp_path: Path) -> None:
    path = write_packed_gguf(tmp_path / "m.gguf", {"": "q8_0"}, PackedShape(tied=False))
    exact = log_probabilities(path, dtype="float32", quantization="none")
    assert apart(log_probabilities(path, dtype="bfloat16", quantization="w8a8_int8"), exact) < 0.1


def test_an_encoding_that_has_no_product_is_refused_where_packed_ones_are_asked_for(tmp_path: Path) -> None:
    path = write_packed_gguf(tmp_path / "m.gguf", {"ffn_down": "q5_k", "": "q4_k"}, PackedShape(layers=1))
    log_probabilities(path, PROMPTS[:1], dtype="bfloat16")  # decoded where nothing was asked for
    with pytest.raises(ConfigurationError, match="q5_k"):
        log_probabilities(path, PROMPTS[:1], dtype="bfloat16", quantization="gguf")


def test_what_auto_decoded_and_kept_is_not_taken_where_packed_weights_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """q, k and v in two encodings and in rows that are no whole tiles: they cannot be packed together."""
    monkeypatch.setattr(kept, "LEAST_BYTES", 0)
    path = write_packed_gguf(tmp_path / "m.gguf", {"attn_v": "q6_k", "": "q4_k"}, PackedShape(heads=32, kv_heads=1))
    args = {"dtype": "bfloat16", "weight_cache_dir": str(tmp_path / "kept")}
    log_probabilities(path, PROMPTS[:1], **args)
    for saver in [thread for thread in threading.enumerate() if thread.name == "weight-cache"]:
        saver.join()
    assert list((tmp_path / "kept").glob("*.packed"))
    with pytest.raises(ConfigurationError, match=r"v_proj\.weight.*cannot pack together"):
        log_probabilities(path, PROMPTS[:1], quantization="gguf", **args)


def test_a_truncated_file_is_refused_with_the_tensors_name(tmp_path: Path) -> None:
    path = write_packed_gguf(tmp_path / "m.gguf", {"": "q4_1"}, PackedShape(layers=1))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ConfigurationError, match=r"tensor '?[a-z0-9_.]+\.weight"):
        log_probabilities(path, PROMPTS[:1], dtype="bfloat16", quantization="gguf")


@pytest.mark.model
@pytest.mark.slow
def test_the_embedded_model(embedded_model: Path) -> None:
    """Its Q4_1 and Q8_0 as they lie against the decoded ones, both in bfloat16 round float32."""
    random = np.random.default_rng(0)
    prompts = ([*map(int, random.integers(100, 40_000, 20))], [*map(int, random.integers(100, 40_000, 200))])
    exact = log_probabilities(embedded_model, prompts, dtype="float32", quantization="none")
    decoded = apart(log_probabilities(embedded_model, prompts, dtype="bfloat16", quantization="none"), exact)
    packed = apart(log_probabilities(embedded_model, prompts, dtype="bfloat16", quantization="gguf"), exact)
    assert packed < 1.3 * decoded
