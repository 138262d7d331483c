"""An engine whose packed weights come from disk says what one says that packs them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from jackfield.model_executor.weight_cache import kept
from jackfield.testing.packed import PackedShape, write_packed_gguf

PROMPT = [2, 40, 41, 7, 7, 90, 300]


@pytest.mark.parametrize(
    ("encodings", "quantization", "weights"),
    [
        ({"attn_v": "q6_k", "ffn_down": "q6_k", "": "q4_k"}, "auto", "gguf"),
        ({"": "q4_1", "token_embd": "q8_0"}, "gguf", "gguf"),
        ({"": "q8_0"}, "none", "none"),
        ({"": "q8_0"}, "w8a8_int8", "w8a8_int8"),
    ],
    ids=["mixed", "q4_1", "decoded", "int8"],
)
def test_a_warm_start_gives_the_same_log_probabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encodings: dict[str, str], quantization: str, weights: str
) -> None:
    monkeypatch.setattr(kept, "LEAST_BYTES", 0)
    taken: list[str] = []
    take = kept.KeptWeights.take

    def counted(self: kept.KeptWeights, name: str) -> Any:
        found = take(self, name)
        taken.append("kept" if found is not None else "packed")
        return found

    monkeypatch.setattr(kept.KeptWeights, "take", counted)
    model = write_packed_gguf(tmp_path / "model.gguf", {**encodings}, PackedShape(layers=1))

    def answer(directory: str) -> Any:
        taken.clear()
        with Engine(
            model_path=str(model),
            ops="cpu",
            dtype="bfloat16",
            quantization=quantization,
            weight_cache_dir=directory,
            device="cpu",
            max_total_tokens=128,
        ) as engine:
            stack = engine._runtime.resolution.stack.weights
            assert stack is not None
            assert stack.name == weights
            made = engine.generate(
                input_ids=PROMPT, sampling_params={"max_new_tokens": 8, "temperature": 0}, return_logprob=True
            )
        for thread in threading.enumerate():  # what the engine still writes while it answers
            if thread.name == "weight-cache":
                thread.join()
        return made["output_ids"], made["meta_info"]["output_token_logprobs"]

    without = answer("none")
    assert taken == []
    cold = answer(str(tmp_path / "cache"))
    assert set(taken) == {"packed"}
    (file,) = (tmp_path / "cache").glob("*.packed")
    written = file.stat().st_ino
    warm = answer(str(tmp_path / "cache"))
    assert set(taken) == {"kept"}
    assert without == cold == warm
    assert file.stat().st_ino == written, "it was not made again"
