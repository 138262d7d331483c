"""Greedy tokens do not depend on the stack, the page size, the chunking or the neighbours: a covering array on a tiny random
model, each row compared with transformers generating alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.covering import pairwise
from tests.e2e.engines import assert_alive, tiny

NEW = 32
SHARED = [(7 * i) % 120 + 2 for i in range(40)]
PROMPTS = [
    [5],
    [(3 * i) % 120 + 2 for i in range(17)],
    [*SHARED, 9, 10, 11],
    [*SHARED, 90, 91],
]
GREEDY = {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True}

POLICIES = (
    "fcfs",
    "shortest-prefill-first",
    "lpm",
    "dfs-weight",
    "token-budget",
    "lof",
    "hrrn",
    "random",
    "priority",
    "fair-share",
    "edf",
)

POLICY_OPTIONS = {"token-budget": {"step_tokens": 8, "min_prefill": 2, "partial_prefills": 2}}
FIELDS: dict[str, Any] = {"priority": [0, 2, -1, 5], "tenant": ["a", "b", "a", None], "deadline_s": [4, 3, None, 1]}

FACTORS: dict[str, list[Any]] = {
    # Those that need to know what the cache holds are refused beside chunk.
    "stack": [*(("radix", policy) for policy in POLICIES), ("chunk", "fcfs"), ("chunk", "token-budget")],
    "page_size": [1, 4, 16],
    "composition": ["alone", "together", "staggered", "warm", "aborted neighbours"],
    # max_prefill_tokens and chunked_prefill_size; -1: prompts are never cut, though most are longer than 16
    "chunking": [(16384, None), (16, None), (64, 16), (16, -1)],
    "max_running_requests": [None, 2],
    "event_loop": ["normal", "overlap"],
    # The small one holds any request alone, but not all of them at once: some are retracted.
    "max_total_tokens": [4096, 112],
}
ROWS = pairwise(FACTORS)


@pytest.fixture(scope="module")
def expected(tiny_model: Path) -> list[list[int]]:
    return greedy(tiny_model, PROMPTS)


def greedy(tiny_model: Path, prompts: list[list[int]]) -> list[list[int]]:
    """transformers' greedy tokens, each prompt alone. The reference's own choices are far from ties, or the test says so."""
    import torch
    from transformers import LlamaForCausalLM

    model: Any = LlamaForCausalLM.from_pretrained(tiny_model, dtype=torch.float32, attn_implementation="eager").eval()
    found = []
    for prompt in prompts:
        ids = list(prompt)
        with torch.inference_mode():
            for _ in range(NEW):
                logits = model(torch.tensor([ids])).logits[0, -1]
                top = logits.topk(2)
                gap = float(top.values[0] - top.values[1])
                assert gap >= 1e-3, f"a near tie within reach ({gap:.1e}): exchange this prompt"
                ids.append(int(top.indices[0]))
        found.append(ids[len(prompt) :])
    return found


def test_the_size_of_the_array_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    full = 1
    for values in FACTORS.values():
        full *= len(values)
    with capsys.disabled():
        print(f"\nsameness: {len(ROWS)} rows cover all pairs of {full} combinations of {len(FACTORS)} factors")
    assert len(ROWS) < full


@pytest.mark.parametrize(
    "row", ROWS, ids=["-".join(map(str, (*row["stack"], *list(row.values())[1:]))) for row in ROWS]
)
def test_tokens_are_the_references(tiny_model: Path, expected: list[list[int]], row: dict[str, Any]) -> None:
    composition = row["composition"]
    cache, policy = row["stack"]
    args = {name: row[name] for name in ("page_size", "max_running_requests", "event_loop", "max_total_tokens")}
    args["max_prefill_tokens"], args["chunked_prefill_size"] = row["chunking"]
    args |= {"cache_policy": cache, "schedule_policy": policy}
    small = row["max_total_tokens"] < 4096
    if small:
        args["schedule_conservativeness"] = 0.01
    if policy in POLICY_OPTIONS:
        args["options"] = {f"schedule_policy.{policy}": POLICY_OPTIONS[policy]}
    with tiny(tiny_model, **args) as engine:
        if composition == "alone":
            answers = [engine.generate(input_ids=prompt, sampling_params=GREEDY) for prompt in PROMPTS]
        elif composition == "together":
            answers = engine.generate(input_ids=PROMPTS, sampling_params=GREEDY, **FIELDS)
        elif composition == "warm":
            engine.generate(input_ids=PROMPTS, sampling_params={**GREEDY, "max_new_tokens": 3})
            answers = engine.generate(input_ids=PROMPTS, sampling_params=GREEDY, **FIELDS)
        else:
            answers = staggered(engine, abort_neighbours=composition == "aborted neighbours")
        assert [answer["output_ids"] for answer in answers] == expected
        if small and composition in ("together", "warm") and row["max_running_requests"] is None:
            assert sum(answer["meta_info"]["num_retractions"] for answer in answers) > 0
        assert_alive(engine)


LONG = [(7 * i) % 120 + 2 for i in range(300)]
CHUNKED = pairwise(
    {"chunked_prefill_size": [None, 16, 17, 64, -1], "page_size": [1, 16], "event_loop": ["normal", "overlap"]}
)
CHUNKED = [row for row in CHUNKED if (row["chunked_prefill_size"], row["page_size"]) != (17, 16)]  # refused at start


@pytest.fixture(scope="module")
def long_expected(tiny_model: Path) -> list[int]:
    return greedy(tiny_model, [LONG])[0]


@pytest.mark.parametrize("row", CHUNKED, ids=lambda row: "-".join(map(str, row.values())))
def test_b53_a_long_prompt_is_the_references_in_chunks_of_any_size(
    tiny_model: Path, long_expected: list[int], row: dict[str, Any]
) -> None:
    """Cold, then warm: positions of every chunk are those of the whole prompt, whatever of it comes out of the cache."""
    with tiny(tiny_model, **row) as engine:
        for cached in (0, 299 if row["page_size"] == 1 else 288):
            answer = engine.generate(input_ids=LONG, sampling_params=GREEDY)
            assert answer["output_ids"] == long_expected
            assert answer["meta_info"]["cached_tokens"] == cached
        assert_alive(engine)


def staggered(engine: Any, *, abort_neighbours: bool) -> list[dict[str, Any]]:
    """Each request starts while those before it are decoding; between them come neighbours that are dropped half-way."""
    streams = []
    for prompt in PROMPTS:
        if abort_neighbours:
            doomed = engine.generate(input_ids=[*prompt, 3, 3, 3], sampling_params=GREEDY, stream=True)
            next(doomed)
        streams.append(engine.generate(input_ids=prompt, sampling_params=GREEDY, stream=True))
        for stream in streams[-2:]:
            next(stream)
        if abort_neighbours:
            doomed.close()
    return [list(stream)[-1] for stream in streams]
