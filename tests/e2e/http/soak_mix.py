"""What the soak test sends: requests with everything that a request can ask for, drawn from one seed, and refused ones."""

from __future__ import annotations

import random
from typing import Any

BAD: list[tuple[str, Any]] = [
    ("/generate", {"input_ids": [10**9]}),
    ("/generate", {"input_ids": []}),
    ("/generate", {"text": "x", "sampling_params": {"n": 0}}),
    ("/generate", {"text": "x", "sampling_params": {"stop_regex": "(a"}}),
    ("/generate", {"text": "x", "sampling_params": {"frequency_penalty": 3}}),
    ("/generate", {"text": "x", "return_logprob": True, "logprob_start_len": 99}),
    ("/generate", {"text": "x", "session_params": {"id": "nobody's"}}),
    ("/generate", {"text": "x", "priority": 2**40}),
    ("/generate", {"input_ids": [3] * 2000}),
    ("/v1/completions", {"prompt": "x", "temperature": -1}),
    ("/v1/completions", {"prompt": "x", "logprobs": 6}),
    ("/v1/chat/completions", {"messages": []}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "model": "nobody"}),
    ("/nowhere", {}),
]

ENDLESS = {"max_new_tokens": 900, "temperature": 0, "ignore_eos": True, "n": 6}
"""In a pool for one of them at a time: thousands of steps, which no machine does within the running timeout."""


def text(dice: random.Random) -> str:
    return "the same words again and again " * dice.choice([0, 1, 3, 9]) + f"then {dice.randrange(1000)}"


def maybe(dice: random.Random, chance: float, **fields: Any) -> dict[str, Any]:
    return fields if dice.random() < chance else {}


def penalties(dice: random.Random) -> dict[str, Any]:
    return {
        **maybe(dice, 0.2, frequency_penalty=dice.choice([-1, 0.5, 2])),
        **maybe(dice, 0.2, presence_penalty=dice.choice([-1, 0.5, 2])),
        **maybe(dice, 0.15, logit_bias={str(dice.randrange(49000)): dice.choice([-100, 5, 100])}),
    }


def scheduling(dice: random.Random) -> dict[str, Any]:
    return {
        **maybe(dice, 0.5, priority=dice.choice([-20, -1, 0, 3, 40])),
        **maybe(dice, 0.3, tenant=dice.choice("abc")),
        **maybe(dice, 0.2, deadline_s=dice.choice([0.01, 5])),
        **maybe(dice, 0.2, cache_salt=dice.choice("xy")),
    }


def sampling(dice: random.Random) -> dict[str, Any]:
    new = dice.choice([0, 1, 5, 40, 100])
    return {
        "max_new_tokens": new,
        "temperature": dice.choice([0, 1]),
        "ignore_eos": dice.random() < 0.7,
        **penalties(dice),
        **maybe(dice, 0.25, n=dice.choice([2, 3])),
        **maybe(dice, 0.2, min_new_tokens=min(new, 4)),
        **maybe(dice, 0.15, repetition_penalty=dice.choice([0.8, 1.5])),
        **maybe(dice, 0.2, stop_regex=dice.choice([r"[aeiou]{2}", r"\d+", ["th?e", "x+y"]])),
        **maybe(dice, 0.2, stop=dice.choice(["a", [" the", "q"]])),
        **maybe(dice, 0.1, stop_token_ids=[dice.randrange(49000)]),
        **maybe(dice, 0.3, seed=dice.randrange(9)),
        **maybe(dice, 0.2, top_p=0.8),
        **maybe(dice, 0.2, top_k=40),
        **maybe(dice, 0.2, stream_interval=3),
        **maybe(
            dice,
            0.15,
            logits_processors=dice.choice([{"no-repeat-ngram": {"ngram_size": 2}}, {"dry": {"multiplier": 1}}]),
        ),
    }


def logprobs(dice: random.Random) -> dict[str, Any]:
    if dice.random() < 0.7:
        return {}
    return {
        "return_logprob": True,
        **maybe(dice, 0.4, logprob_start_len=dice.choice([0, 1])),
        **maybe(dice, 0.4, top_logprobs_num=dice.choice([1, 5])),
        **maybe(dice, 0.3, token_ids_logprob=[5, 700]),
        **maybe(dice, 0.3, return_text_in_logprobs=True),
    }


def random_request(dice: random.Random) -> tuple[str, dict[str, Any]]:
    route = dice.randrange(4)
    if route < 2:
        prompt = text(dice) if dice.random() < 0.8 else [text(dice), text(dice)]
        return "/generate", {"text": prompt, "sampling_params": sampling(dice), **logprobs(dice), **scheduling(dice)}
    common = {
        **penalties(dice),
        **scheduling(dice),
        **maybe(dice, 0.2, n=2),
        **maybe(dice, 0.4, seed=dice.randrange(9)),
    }
    if route == 2:
        body = {
            "prompt": text(dice),
            "max_tokens": dice.choice([1, 5, 40, 100]),
            **common,
            **maybe(dice, 0.3, logprobs=2),
        }
        return "/v1/completions", body
    messages = [{"role": "user", "content": text(dice)}]
    asked = maybe(dice, 0.3, logprobs=True, top_logprobs=2)
    return "/v1/chat/completions", {"messages": messages, "max_tokens": dice.choice([1, 5, 40]), **common, **asked}


def check(path: str, body: dict[str, Any], answer: Any) -> None:
    """What must hold for every answer, whatever was drawn. Raises AssertionError."""
    if path != "/generate":
        assert len(answer["choices"]) == body.get("n", 1)
        return
    params = body["sampling_params"]
    prompts = len(body["text"]) if isinstance(body.get("text"), list) else 1
    answers = answer if isinstance(answer, list) else [answer]
    assert len(answers) == prompts * params.get("n", 1)
    for one in answers:
        meta = one["meta_info"]
        assert meta["completion_tokens"] == len(one["output_ids"]) <= params["max_new_tokens"]
        if meta["finish_reason"]["type"] == "length":
            assert len(one["output_ids"]) == params["max_new_tokens"]
        if body.get("return_logprob"):
            assert [entry[1] for entry in meta["output_token_logprobs"]] == one["output_ids"]
            if "logprob_start_len" in body:
                assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"] - body["logprob_start_len"]
