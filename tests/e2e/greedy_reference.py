"""What transformers answers, greedily and alone, and the log-probabilities of every token after every prefix of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NEAR_TIE = 1e-3
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Reference:
    prompt: list[int]
    output: list[int]
    logprobs: NDArray[np.float64]
    """[prompt + output - 1, vocabulary]; row p: of the token at position p + 1."""


def references(path: Path, prompts: Sequence[list[int]], new: int) -> list[Reference]:
    """One for each prompt. Raises AssertionError if one of its own choices is a near tie, which decides nothing."""
    import torch
    from transformers import LlamaForCausalLM

    model: Any = LlamaForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    found = []
    for prompt in prompts:
        with torch.inference_mode():
            ids = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=False,
                min_new_tokens=new,
                max_new_tokens=new,
                eos_token_id=None,
                pad_token_id=0,
            )[0].tolist()
            logits = model(torch.tensor([ids])).logits[0, :-1]
            gaps = logits[len(prompt) - 1 :].topk(2).values.diff().abs()
        assert float(gaps.min()) >= NEAR_TIE, f"a near tie within reach ({float(gaps.min()):.1e}): exchange this prompt"
        output = ids[len(prompt) :]
        assert logits[len(prompt) - 1 :].argmax(dim=-1).tolist() == output
        found.append(Reference(prompt, output, torch.log_softmax(logits.double(), dim=-1).numpy()))
    return found


def assert_logprobs(answer: dict[str, Any], reference: Reference, start: int) -> None:
    """The answer's values are the reference's within 1e-3: of each token, of the likeliest, of the ids asked for.

    start: `logprob_start_len`; -1: of no token of the prompt."""
    meta = answer["meta_info"]
    length = len(reference.prompt)
    begin = length if start == -1 else start
    sides = [("output", reference.output, reference.logprobs[length - 1 :], 0)]
    if begin < length:
        # The first of the prompt's has no value: nothing is known of what stood before.
        sides.append(("input", reference.prompt[begin:], reference.logprobs[begin : length - 1], 1))
    else:
        assert not meta.get("input_token_logprobs")
    for side, tokens, rows, blank in sides:
        entries = meta[f"{side}_token_logprobs"]
        assert [entry[1] for entry in entries] == tokens
        assert all(entry[0] is None for entry in entries[:blank])
        values = np.array([entry[0] for entry in entries[blank:]], dtype=np.float64)
        assert np.abs(values - rows[np.arange(len(rows)), tokens[blank:]]).max(initial=0) <= TOLERANCE
        for name in ("top_logprobs", "token_ids_logprobs"):
            lists = meta[f"{side}_{name}"]
            assert len(lists) == len(tokens)
            ids = np.array([[entry[1] for entry in one] for one in lists[blank:]], dtype=np.int64)
            values = np.array([[entry[0] for entry in one] for one in lists[blank:]], dtype=np.float64)
            if not len(ids):
                continue
            assert np.abs(values - np.take_along_axis(rows, ids, axis=1)).max() <= TOLERANCE
            if name == "top_logprobs":
                likeliest = -np.sort(-rows, axis=1)[:, : ids.shape[1]]
                assert np.abs(values - likeliest).max() <= TOLERANCE
