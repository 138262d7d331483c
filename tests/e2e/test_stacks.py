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
NEW = 20
KNOWN = 13
GREEDY = {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True}
FIELDS = {"priority": [0, 20, 0, 5, -20, 0, 40, 0], "tenant": ["a", "b"] * 4}


def test_there_are_six() -> None:
    assert len(STACKS) == 6


@pytest.fixture(scope="module")
def expected(reference_model: Any) -> tuple[list[list[int]], list[list[int]]]:
    """(prompts, transformers' answers): if each token is the reference's first choice after the tokens before it, then the whole
    is the reference's own greedy answer, and one pass over it shows that."""
    import torch

    with Engine(dtype="float32", topology="inline", max_total_tokens=512) as engine:
        assert engine.tokenizer is not None
        prompts = [list(engine.tokenizer.encode(sentence)) for sentence in SENTENCES]
        answers = [answer["output_ids"] for answer in engine.generate(input_ids=prompts, sampling_params=GREEDY)]
    for prompt, answer in zip(prompts, answers, strict=True):
        with torch.inference_mode():
            logits = reference_model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        top = logits.topk(2, dim=-1)
        assert top.indices[:, 0].tolist() == answer
        assert float((top.values[:, 0] - top.values[:, 1]).min()) >= 1e-3, "a near tie: exchange this sentence"
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
