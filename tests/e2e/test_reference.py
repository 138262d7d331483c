"""The embedded model against transformers, float32, greedy: every token, up to near ties of the reference itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from tests.e2e.engines import assert_alive

pytestmark = [pytest.mark.model, pytest.mark.slow]

NEW = 200
PROMPTS = (Path(__file__).parent / "data" / "prompts.txt").read_text().splitlines()


def test_there_are_twenty_prompts() -> None:
    assert len(PROMPTS) == len(set(PROMPTS)) == 20


def test_greedy_tokens_are_transformers(embedded_model: Path, reference_model: Any) -> None:
    """Teacher-forced: if each token is the reference's first choice after the tokens before it, then the whole answer is the
    reference's own greedy answer. A prompt whose answer passes a near tie (top-two gap under 1e-3) has to be exchanged."""
    import torch

    with Engine(dtype="float32", topology="inline", check_invariants="step", max_total_tokens=16384) as engine:
        assert engine.tokenizer is not None
        prompts = [engine.tokenizer.encode(prompt) for prompt in PROMPTS]
        answers = engine.generate(
            input_ids=prompts, sampling_params={"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True}
        )
        assert_alive(engine)
    ties, wrong = [], []
    for text, prompt, answer in zip(PROMPTS, prompts, answers, strict=True):
        ids = answer["output_ids"]
        assert len(ids) == NEW
        with torch.inference_mode():
            logits = reference_model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
        top = logits.topk(2, dim=-1)
        gaps = top.values[:, 0] - top.values[:, 1]
        if float(gaps.min()) < 1e-3:
            ties.append((text, int(gaps.argmin())))
        if top.indices[:, 0].tolist() != ids:
            wrong.append(text)
    assert not ties, f"near ties within reach; exchange these prompts: {ties}"
    assert not wrong
