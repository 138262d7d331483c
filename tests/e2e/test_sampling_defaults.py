"""Whose word counts for what a request leaves out: the model's generation_config, the operator's, OpenAI's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e.engines import tiny

PROMPT = [5, 6, 7]
LENGTH = {"max_new_tokens": 12, "ignore_eos": True, "seed": 3}
THEIRS: dict[str, Any] = {"json_model_override_args": {"generation_config": {"top_k": 1, "temperature": 1.0}}}


def ids(model: Path, *requests: dict[str, Any], **args: Any) -> list[list[int]]:
    with tiny(model, **args) as engine:
        return [
            engine.generate(input_ids=PROMPT, sampling_params={**LENGTH, **more})["output_ids"] for more in requests
        ]


def test_the_request_then_the_operator_then_the_model(tiny_model: Path) -> None:
    greedy, drawn, hot = ids(tiny_model, {"temperature": 0}, {}, {"temperature": 2.0})
    assert len({tuple(greedy), tuple(drawn), tuple(hot)}) == 3
    # top_k 1 of the model's own settings makes every draw the likeliest token; a request's word goes before it.
    assert ids(tiny_model, {}, {"top_k": -1}, **THEIRS) == [greedy, drawn]
    assert ids(tiny_model, {}, **THEIRS, sampling_defaults="openai") == [drawn]
    ours = {"preferred_sampling_params": {"top_k": -1, "temperature": 2.0}}
    assert ids(tiny_model, {}, {"temperature": 1.0}, {"top_k": 1}, **THEIRS, **ours) == [hot, drawn, greedy]
