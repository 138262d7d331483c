"""Log-probabilities through the engine: within 1e-3 of transformers in float32 on the tiny model, the same under chunk sizes,
caches, page sizes, loops and company, and refused where they cannot be had."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from jackfield import Engine
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.limits import RequestLimits
from jackfield.managers.fields.worker_features import WorkerFeatures
from jackfield.testing.covering import pairwise
from tests.e2e.engines import assert_alive, tiny, without_tokenizer

NEW = 12
IDS = [0, 7, 100]
SHARED = [(7 * i) % 120 + 2 for i in range(40)]
PROMPTS = [[5], [(3 * i) % 120 + 2 for i in range(17)], [*SHARED, 9, 10, 11], [*SHARED, 90, 91]]
STARTS = [0, -1, 5, 33]
SAMPLING = {"temperature": 0.7, "top_k": 30, "max_new_tokens": NEW, "ignore_eos": True}
FACTORS: dict[str, list[Any]] = {
    "cache_policy": ["radix", "chunk"],
    "page_size": [1, 4, 16],
    "chunked_prefill_size": [None, 16],
    "event_loop": ["normal", "overlap"],
    "topology": ["inline", "processes"],
}
ROWS = list(pairwise(FACTORS))


@pytest.fixture(scope="module")
def reference(tiny_model: Path) -> Any:
    import torch
    from transformers import LlamaForCausalLM

    loaded: Any = LlamaForCausalLM.from_pretrained(tiny_model, dtype=torch.float32, attn_implementation="eager")
    model = loaded.eval()

    def logprobs(ids: list[int]) -> list[list[float]]:
        """Row p: of the token at position p + 1."""
        with torch.inference_mode():
            found: list[list[float]] = torch.log_softmax(model(torch.tensor([ids])).logits[0], dim=-1).tolist()
        return found

    return logprobs


def close(entry: list[Any], row: list[float], token: int) -> None:
    value, found, text = entry
    assert text is None
    assert found == token
    assert value == pytest.approx(row[token], abs=1e-3)


def check(answer: dict[str, Any], prompt: list[int], start: int, reference: Any) -> None:
    ids, meta = answer["output_ids"], answer["meta_info"]
    assert len(ids) == NEW == meta["output_token_logprobs_length"]
    rows = reference([*prompt, *ids])
    begin = len(prompt) if start == -1 else start
    told = [prompt[begin:], ids]
    before: list[list[Any]] = [
        [None, *rows[begin : len(prompt) - 1]] if begin < len(prompt) else [],
        rows[len(prompt) - 1 : -1],
    ]
    for side, tokens, expected in zip(("input", "output"), told, before, strict=True):
        entries, tops, chosen = (
            meta[f"{side}_{name}"] for name in ("token_logprobs", "top_logprobs", "token_ids_logprobs")
        )
        assert len(entries) == len(tops) == len(chosen) == len(tokens)
        for token, row, entry, top, picked in zip(tokens, expected, entries, tops, chosen, strict=True):
            if row is None:
                assert entry == [None, token, None]
                assert top is picked is None
                continue
            close(entry, row, token)
            assert len(top) == 3
            for rank, likely in enumerate(sorted(row, reverse=True)[:3]):
                assert top[rank][0] == pytest.approx(likely, abs=1e-3)
                close(top[rank], row, top[rank][1])
            for other, wanted in zip(picked, IDS, strict=True):
                close(other, row, wanted)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "-".join(str(value) for value in row.values()))
def test_they_are_transformers_whatever_the_stack(row: dict[str, Any], tiny_model: Path, reference: Any) -> None:
    wants: dict[str, Any] = {"return_logprob": True, "top_logprobs_num": 3, "token_ids_logprob": IDS}
    with tiny(tiny_model, **row) as engine:
        for _ in range(2):  # cold, then with what the cache has
            answers = engine.generate(input_ids=PROMPTS, sampling_params=SAMPLING, logprob_start_len=STARTS, **wants)
            for answer, prompt, start in zip(answers, PROMPTS, STARTS, strict=True):
                check(answer, prompt, start, reference)
        if row["cache_policy"] == "radix" and row["page_size"] == 1:
            assert [answer["meta_info"]["cached_tokens"] for answer in answers] == [0, 16, 5, 33]
        (plain,) = engine.generate(input_ids=[PROMPTS[1]], sampling_params=SAMPLING)
        assert not [name for name in plain["meta_info"] if "logprob" in name]
        assert_alive(engine)


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> Any:
    with tiny(tiny_model) as made:
        yield made


def test_a_prompt_alone_is_scored_without_an_answer(engine: Engine, reference: Any) -> None:
    prompt = PROMPTS[1]
    answer = engine.generate(
        input_ids=prompt, sampling_params={"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0
    )
    rows = reference(prompt)
    entries = answer["meta_info"]["input_token_logprobs"]
    assert entries[0] == [None, prompt[0], None]
    for i, entry in enumerate(entries[1:], start=1):
        close(entry, rows[i - 1], prompt[i])
    assert len(entries) == len(prompt)
    assert answer["meta_info"]["output_token_logprobs"] == []


@pytest.mark.parametrize("interval", [1, 3, 100])
def test_a_stream_loses_none_and_ends_as_the_whole(engine: Engine, interval: int) -> None:
    wants: dict[str, Any] = {"return_logprob": True, "top_logprobs_num": 2, "logprob_start_len": 3}
    sampling = {**SAMPLING, "temperature": 0, "stream_interval": interval}
    whole = engine.generate(input_ids=PROMPTS[1], sampling_params=sampling, **wants)
    parts = list(engine.generate(input_ids=PROMPTS[1], sampling_params=sampling, stream=True, **wants))
    for part in parts:
        meta = part["meta_info"]
        assert [entry[1] for entry in meta["output_token_logprobs"]] == part["output_ids"]
        assert len(meta["output_top_logprobs"]) == len(part["output_ids"])
        assert len(meta["input_token_logprobs"]) == len(PROMPTS[1]) - 3
    for name in ("output_token_logprobs", "output_top_logprobs", "input_token_logprobs", "input_top_logprobs"):
        for mine, other in zip(parts[-1]["meta_info"][name], whole["meta_info"][name], strict=True):
            assert _flat(mine) == pytest.approx(_flat(other), abs=1e-4)


def _flat(entry: Any) -> list[float]:
    if isinstance(entry, list | tuple):
        return [value for part in entry for value in _flat(part)]
    return [] if entry is None else [float(entry)]


def test_b26_greedy_answers_have_the_models_values_and_no_temperature(engine: Engine, reference: Any) -> None:
    """B26: not 0 for the chosen token and the float minimum for all others."""
    answers = [
        engine.generate(
            input_ids=PROMPTS[1],
            sampling_params={"temperature": temperature, "top_k": 1, "max_new_tokens": 5, "ignore_eos": True},
            return_logprob=True,
            top_logprobs_num=5,
        )
        for temperature in (0, 1, 5)
    ]
    rows = reference([*PROMPTS[1], *answers[0]["output_ids"]])[len(PROMPTS[1]) - 1 : -1]
    for answer in answers:
        assert answer["output_ids"] == answers[0]["output_ids"]
        for entry, row, token in zip(
            answer["meta_info"]["output_token_logprobs"], rows, answer["output_ids"], strict=True
        ):
            close(entry, row, token)
        assert all(
            -1e30 < value < 0
            for value in _flat([[e[0] for e in top] for top in answer["meta_info"]["output_top_logprobs"]])
        )


def test_choices_of_one_prompt_have_their_own(engine: Engine) -> None:
    answers = engine.generate(
        input_ids=PROMPTS[1],
        sampling_params={**SAMPLING, "n": 3, "temperature": 3.0, "seed": 1},
        return_logprob=True,
        logprob_start_len=14,
    )
    for answer in answers:
        meta = answer["meta_info"]
        assert [entry[1] for entry in meta["output_token_logprobs"]] == answer["output_ids"]
        assert [entry[1] for entry in meta["input_token_logprobs"]] == PROMPTS[1][14:]
    assert len({tuple(answer["output_ids"]) for answer in answers}) > 1


VOCAB = 131
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("return_logprob", {"return_logprob": 1}),
    ("return_logprob", {"return_logprob": [True, False]}),
    ("logprob_start_len", {"return_logprob": True, "logprob_start_len": -2}),
    ("logprob_start_len", {"return_logprob": True, "logprob_start_len": 4}),
    ("logprob_start_len", {"return_logprob": True, "logprob_start_len": True}),
    ("logprob_start_len", {"logprob_start_len": 0}),
    ("top_logprobs_num", {"return_logprob": True, "top_logprobs_num": 10**6}),
    ("top_logprobs_num", {"return_logprob": True, "top_logprobs_num": 1.5}),
    ("top_logprobs_num", {"top_logprobs_num": 3}),
    ("token_ids_logprob", {"return_logprob": True, "token_ids_logprob": list(range(101))}),
    ("token_ids_logprob", {"token_ids_logprob": [1]}),
    ("return_text_in_logprobs", {"return_logprob": True, "return_text_in_logprobs": "yes"}),
    ("return_text_in_logprobs", {"return_logprob": True, "return_text_in_logprobs": True}),
    *(
        ("token_ids_logprob", {"return_logprob": True, "token_ids_logprob": [token]})
        for token in (49152, 10**18, -1, True, 1.5, "a")
    ),
]


@pytest.mark.parametrize(("field", "wants"), REFUSED, ids=lambda value: str(value)[:60])
def test_b29_b85_what_is_out_of_range_is_refused_by_name(engine: Engine, field: str, wants: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        engine.generate(input_ids=[5, 6, 7], sampling_params=SAMPLING, **wants)
    assert refused.value.param == field
    assert refused.value.status_code == 400


def with_limits(engine: Engine, monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """The engine of the module, as if it had been started with these."""
    builder = engine._runtime.tokenizer_manager._builder
    changed = dataclasses.replace(builder._limits, requests=RequestLimits(**limits))
    monkeypatch.setattr(builder, "_limits", changed)


def test_b85_more_values_than_one_request_may_have(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(engine, monkeypatch, max_logprob_values=100)
    ask: dict[str, Any] = {"return_logprob": True, "top_logprobs_num": 7}
    engine.generate(input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 12}, **ask)
    with pytest.raises(
        RequestError, match=r"0 tokens of the prompt and 13 new ones with 8 .* each are 104; at most 100"
    ):
        engine.generate(input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 13}, **ask)


@pytest.mark.parametrize("stream", [False, True])
def test_b85_the_prompts_of_all_answers_count_together(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    with_limits(
        engine,
        monkeypatch,
        max_prompt_logprob_values=10**6 if stream else 48,
        max_streamed_prompt_logprob_values=48 if stream else 1,
    )

    def ask(n: int) -> Any:
        told = engine.generate(
            input_ids=[[5, 6, 7], [8, 9, 10]],
            sampling_params={"max_new_tokens": 2, "n": n},
            return_logprob=True,
            logprob_start_len=0,
            top_logprobs_num=1,
            stream=stream,
        )
        return list(told) if stream else told

    ask(4)
    with pytest.raises(RequestError, match="60 log-probabilities; at most 48") as refused:
        ask(5)
    assert refused.value.param == "logprob_start_len"


def test_what_asks_for_nothing_passes(engine: Engine) -> None:
    answer = engine.generate(
        input_ids=[5, 6, 7],
        sampling_params={"max_new_tokens": 1},
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=[],
    )
    assert "output_token_logprobs" not in answer["meta_info"]


@pytest.mark.parametrize("declared", [(), ("logprobs",)])
def test_a_worker_that_does_not_declare_them_is_never_asked(declared: tuple[str, ...]) -> None:
    with without_tokenizer() as simulated:
        manager = simulated._runtime.tokenizer_manager
        manager._builder._worker = WorkerFeatures(name="plain", declared=frozenset(declared))
        with pytest.raises(RequestError, match=r"worker 'plain' does not declare '(prompt_)?logprobs'") as refused:
            simulated.generate(input_ids=[5, 6], return_logprob=True, logprob_start_len=0)
        assert refused.value.param == ("logprob_start_len" if declared else "return_logprob")
        assert refused.value.status_code == 400
        assert_alive(simulated)
