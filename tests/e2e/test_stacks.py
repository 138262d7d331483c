"""Six whole stacks, each a file, on the embedded model: the same sentences from all of them, and those of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from tests.e2e.engines import assert_alive

pytestmark = [pytest.mark.model, pytest.mark.slow]

STACKS = sorted((Path(__file__).parent / "stacks").glob("*.toml"))
SENTENCES = (Path(__file__).parent / "data" / "prompts.txt").read_text().splitlines()[:8]
NEW = 32
KNOWN = 20
GREEDY = {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True}
FIELDS = {"priority": [0, 20, 0, 5, -20, 0, 40, 0], "tenant": ["a", "b"] * 4}


def test_there_are_six() -> None:
    assert len(STACKS) == 6


@pytest.fixture(scope="module")
def expected(reference_model: Any) -> tuple[list[list[int]], list[list[int]]]:
    """(prompts, transformers' answers)"""
    import torch

    with Engine(dtype="float32", topology="inline", max_total_tokens=256) as engine:
        assert engine.tokenizer is not None
        prompts = [list(engine.tokenizer.encode(sentence)) for sentence in SENTENCES]
    answers = []
    for prompt in prompts:
        with torch.inference_mode():
            ids = reference_model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=False,
                repetition_penalty=1.0,
                min_new_tokens=NEW,
                max_new_tokens=NEW,
                eos_token_id=None,
                pad_token_id=0,
            )[0].tolist()
            top = reference_model(torch.tensor([ids])).logits[0, len(prompt) - 1 : -1].topk(2, dim=-1).values
        assert float((top[:, 0] - top[:, 1]).min()) >= 1e-3, "a near tie: exchange this sentence"
        answers.append(ids[len(prompt) :])
    return prompts, answers


@pytest.mark.parametrize("stack", STACKS, ids=lambda path: path.stem)
def test_every_stack_says_the_same(stack: Path, expected: tuple[list[list[int]], list[list[int]]]) -> None:
    prompts, answers = expected
    # Who begins with what another has said goes on as the other did.
    begun = [[*prompt, *answer[:KNOWN]] for prompt, answer in zip(prompts, answers, strict=True)]
    rest = {**GREEDY, "max_new_tokens": NEW - KNOWN}
    with Engine(stack=str(stack), check_invariants="step") as engine:
        for _ in range(2):
            found = engine.generate(input_ids=prompts, sampling_params=GREEDY, **FIELDS)
            assert [answer["output_ids"] for answer in found] == answers
        found = engine.generate(input_ids=begun, sampling_params=rest, **FIELDS)
        assert [answer["output_ids"] for answer in found] == [answer[KNOWN:] for answer in answers]
        info = engine.get_server_info()
        small = info["kv"]["total"] < 4096
        assert (info["scheduler"]["retractions"] > 0) == small
        if info.get("kv_tiers"):
            assert info["kv_tiers"][""]["loads"] > 0
        assert_alive(engine)
