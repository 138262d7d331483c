"""Greedy tokens and log-probabilities do not depend on the stack, memory, chunks or company: a pairwise covering array on a tiny
random model, each row compared with transformers generating alone, and the deterministic ones bit by bit with themselves."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from jackfield.testing.covering import pairwise
from tests.e2e.engines import assert_alive, tiny
from tests.e2e.greedy_reference import Reference, assert_logprobs, references

NEW = 36
SHARED = [(7 * i + i * i) % 120 + 2 for i in range(128)]
"""Two pages of 64."""
PROMPTS = [
    [5],
    [(3 * i) % 120 + 2 for i in range(50)],
    [*SHARED[:40], *((5 * i) % 113 + 3 for i in range(20))],
    [*SHARED, *((9 * i) % 109 + 4 for i in range(10))],
    [*SHARED, *((13 * i) % 107 + 5 for i in range(26))],
]
GREEDY = {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True}
FIELDS: dict[str, Any] = {
    "priority": [0, 2, -1, 5, 0],
    "tenant": ["a", "b", "a", None, "b"],
    "deadline_s": [4, 3, None, 1, 2],
}
STARTS = [0, -1, 17, 130, 3]
IDS = [0, 7, 100]

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
NEED_A_CACHE = ("shortest-prefill-first", "lpm", "dfs-weight", "hrrn")
POLICY_OPTIONS = {"token-budget": {"step_tokens": 64, "min_prefill": 16, "partial_prefills": 2}}
EVICTIONS = ("lru", "lfu", "fifo", "mru", "filo", "priority", "slru")

FACTORS: dict[str, list[Any]] = {
    "policy": [*POLICIES],
    "cache": [*EVICTIONS, "chunk", "host tier"],
    # max_prefill_tokens and chunked_prefill_size; -1: prompts are never cut, though two are longer than 64
    "chunking": [(16384, None), (16384, 16), (16384, 64), (64, 48), (64, -1), (16, None)],
    "company": ["alone", "together", "staggered", "warm", "aborted neighbours", "drawn neighbours"],
    "page_size": [1, 16, 64],
    "asked": ["tokens", "logprobs", "prompt logprobs"],
    # Retracting: the pool holds any request alone, but not those at once that come at once.
    "memory": ["ample", "retracting"],
    "event_loop": ["normal", "overlap"],
    "n": [1, 2],
    "max_running_requests": [None, 3],
    "deterministic": [False, True],
}
PAGE = Path(__file__).parents[2] / "docs" / "scheduling.md"

RETRACTING = 192
"""Slots, for any page size: room for the longest request and no more."""


def allowed(row: Mapping[str, Any]) -> bool:
    """Left out is what a run refuses (a policy that needs to know the cache beside chunk, a step that holds no page) and what
    cannot be: one request alone is never retracted."""
    if row.get("cache") == "chunk" and row.get("policy") in NEED_A_CACHE:
        return False
    steps = [size for size in row.get("chunking", ()) if size not in (None, -1)]
    if steps and min(steps) < row.get("page_size", 1):
        return False
    return not (row.get("company") == "alone" and row.get("memory") == "retracting")


ROWS = pairwise(FACTORS, allowed)


@pytest.fixture(scope="module")
def expected(tiny_model: Path) -> list[Reference]:
    return references(tiny_model, PROMPTS, NEW)


@pytest.fixture(scope="module")
def bits(tiny_model: Path) -> list[dict[str, Any]]:
    """Each request alone with --enable-deterministic-inference, and all of its log-probabilities."""
    with tiny(tiny_model, enable_deterministic_inference=True, cache_policy="chunk") as engine:
        return [
            engine.generate(
                input_ids=prompt,
                sampling_params=GREEDY,
                return_logprob=True,
                logprob_start_len=0,
                top_logprobs_num=3,
                token_ids_logprob=IDS,
            )
            for prompt in PROMPTS
        ]


def test_the_size_of_the_array_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    full = math.prod(len(values) for values in FACTORS.values())
    with capsys.disabled():
        print(f"\nsameness: {len(ROWS)} rows cover all pairs of {full} combinations of {len(FACTORS)} factors")
    assert f"{len(ROWS)} rows" in PAGE.read_text()
    assert len(ROWS) < full


@pytest.mark.parametrize("row", ROWS, ids=["-".join(map(str, row.values())) for row in ROWS])
@pytest.mark.goal_row(24, 25, 26)
def test_tokens_and_logprobs_are_the_references(
    tiny_model: Path,
    expected: list[Reference],
    bits: list[dict[str, Any]],
    row: dict[str, Any],
    record_property: Callable[[str, object], None],
) -> None:
    with tiny(tiny_model, **engine_args(row)) as engine:
        record_property("stack", json.dumps(combination(engine, row)))  # for the table of what works with what
        answers = answers_of(engine, row)
        for at, ours in enumerate(answers):
            assert len(ours) == row["n"]
            for answer in ours:
                assert answer["output_ids"] == expected[at].output
                if row["asked"] != "tokens":
                    start = STARTS[at] if row["asked"] == "prompt logprobs" else -1
                    assert_logprobs(answer, expected[at], start)
                    if row["deterministic"]:
                        assert_same_bits(answer, bits[at], start)
                else:
                    assert not [name for name in answer["meta_info"] if "logprob" in name]
        if row["memory"] == "retracting":
            assert engine.get_server_info()["scheduler"]["retractions"] > 0
            if "neighbours" not in row["company"]:  # who may be those that are retracted
                assert sum(answer["meta_info"]["num_retractions"] for ours in answers for answer in ours) > 0
        if row["cache"] == "host tier":
            assert engine.get_server_info()["kv_tiers"]["host"]["errors"] == 0
        assert_alive(engine)


def engine_args(row: dict[str, Any]) -> dict[str, Any]:
    args = {name: row[name] for name in ("page_size", "max_running_requests", "event_loop")}
    args["max_prefill_tokens"], args["chunked_prefill_size"] = row["chunking"]
    args |= {"schedule_policy": row["policy"], "random_seed": 1, "options": {}}
    args["enable_deterministic_inference"] = row["deterministic"]
    args["cache_policy"] = "chunk" if row["cache"] == "chunk" else "radix"
    if row["policy"] in POLICY_OPTIONS:
        args["options"][f"schedule_policy.{row['policy']}"] = POLICY_OPTIONS[row["policy"]]
    if row["cache"] in EVICTIONS:
        args["options"]["cache.radix"] = {"eviction": row["cache"]}
    if row["cache"] == "host tier":
        args |= {"kv_tier": ["host"], "kv_tier_block_tokens": 16}
        args["options"]["kv_tier.host"] = {"size_mib": 8, "min_load_tokens": 16}
    if row["memory"] == "retracting":
        args |= {"max_total_tokens": RETRACTING, "schedule_conservativeness": 0.01}
    return args


def combination(engine: Any, row: dict[str, Any]) -> dict[str, Any]:
    """The plugins that serve, as the engine tells them, and what else a run may be chosen by."""
    uses = engine.get_server_info()["stack"]["plugins"]
    plugins = {use["kind"]: use["name"] for use in uses}
    return {**plugins, **{name: row[name] for name in ("page_size", "deterministic", "memory")}}


def wants(row: dict[str, Any], at: int) -> dict[str, Any]:
    if row["asked"] == "tokens":
        return {}
    found: dict[str, Any] = {"return_logprob": True, "top_logprobs_num": 3, "token_ids_logprob": IDS}
    return found | ({"logprob_start_len": STARTS[at]} if row["asked"] == "prompt logprobs" else {})


def answers_of(engine: Any, row: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """For each prompt the answers of its choices."""
    params = {**GREEDY, "n": row["n"]}
    company = row["company"]

    def stream(at: int) -> Any:
        fields = {name: values[at] for name, values in FIELDS.items()}
        return engine.generate(input_ids=PROMPTS[at], sampling_params=params, stream=True, **fields, **wants(row, at))

    if company == "alone":
        return [last(stream(at)) for at in range(len(PROMPTS))]
    if company == "warm":
        engine.generate(input_ids=PROMPTS[::-1], sampling_params={**GREEDY, "max_new_tokens": 3})
    streams, doomed = [], []
    for at in range(len(PROMPTS)):
        if company == "aborted neighbours":
            doomed.append(engine.generate(input_ids=[*PROMPTS[at], 3, 3], sampling_params=GREEDY, stream=True))
        if company == "drawn neighbours":
            doomed.append(engine.generate(input_ids=PROMPTS[at], sampling_params=DRAWN[at], stream=True))
        streams.append(stream(at))
        if company in ("staggered", "aborted neighbours"):
            for running in streams[-2:]:
                next(running)
            for neighbour in doomed[:-1]:
                neighbour.close()
    answers = [last(one) for one in streams]
    for neighbour in doomed:
        if company == "drawn neighbours":
            assert last(neighbour)[0]["output_ids"]
        neighbour.close()
    return answers


DRAWN: list[dict[str, Any]] = [
    {"temperature": 3.0, "seed": 3, "max_new_tokens": 30, "frequency_penalty": 1.5},
    {"temperature": 1e-6, "max_new_tokens": 7, "repetition_penalty": 1.7},
    {"temperature": 1.0, "top_p": 0.3, "max_new_tokens": 20, "logit_bias": {"9": 50}},
    {"temperature": 9.0, "top_k": 3, "max_new_tokens": 44, "min_new_tokens": 20},
    {"temperature": 1.0, "min_p": 0.2, "max_new_tokens": 1, "presence_penalty": -2},
]


def last(stream: Any) -> list[dict[str, Any]]:
    """The last part of each choice."""
    found: dict[int, dict[str, Any]] = {}
    for part in stream:
        found[part.get("index", 0)] = part
    return [found[index] for index in sorted(found)]


def assert_same_bits(answer: dict[str, Any], alone: dict[str, Any], start: int) -> None:
    meta, other = answer["meta_info"], alone["meta_info"]
    for name in ("token_logprobs", "top_logprobs", "token_ids_logprobs"):
        assert meta[f"output_{name}"] == other[f"output_{name}"]
        if start != -1:
            assert meta[f"input_{name}"][1:] == other[f"input_{name}"][start + 1 :]


LONG = [(7 * i) % 120 + 2 for i in range(300)]
CHUNKED = pairwise(
    {"chunked_prefill_size": [None, 16, 17, 64, -1], "page_size": [1, 16], "event_loop": ["normal", "overlap"]}
)
CHUNKED = [row for row in CHUNKED if (row["chunked_prefill_size"], row["page_size"]) != (17, 16)]  # refused at start


@pytest.fixture(scope="module")
def long_expected(tiny_model: Path) -> list[int]:
    return references(tiny_model, [LONG], NEW)[0].output


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
