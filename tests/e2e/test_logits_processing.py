"""Penalties, bias, least lengths and logits processors through an engine: against transformers' logits and the written formulas,
in a batch, under every loop, after retractions, and what happens to neighbours of a processor that fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.hookspecs import RowOpen
from jackfield.managers.errors import RequestError
from jackfield.model_executor.logits_pipeline import LogitsPipeline
from jackfield_sampling_processors.dry import Dry
from jackfield_sampling_processors.no_repeat_ngram import NoRepeatNgram, completing
from tests.e2e.engines import assert_alive, simulated, tiny

NEW = 24
EOS = 1
GREEDY: dict[str, Any] = {"temperature": 0, "max_new_tokens": NEW, "ignore_eos": True}
PROCESSORS = ["no-repeat-ngram", "dry"]

REQUESTS: list[tuple[list[int], dict[str, Any]]] = [
    ([5], {}),
    ([9, 9, 10, 11], {"frequency_penalty": 1.2}),
    ([(3 * i) % 120 + 2 for i in range(17)], {"presence_penalty": 2, "repetition_penalty": 1.4}),
    ([(7 * i) % 120 + 2 for i in range(40)], {"repetition_penalty": 0.7, "logit_bias": {"17": 4.5, "3": -100}}),
    ([8, 3], {"frequency_penalty": -2, "min_new_tokens": 9, "stop_token_ids": [40], "logit_bias": {40: 100}}),
    ([6, 5, 4], {"logits_processors": {"no-repeat-ngram": {"ngram_size": 2}}, "logit_bias": {"77": 3}}),
]


@pytest.fixture(scope="module")
def expected(tiny_model: Path) -> list[list[int]]:
    """Each request alone: transformers' logits, then the formulas of OpenAI and transformers token by token."""
    import torch
    from transformers import LlamaForCausalLM

    model: Any = LlamaForCausalLM.from_pretrained(tiny_model, dtype=torch.float32, attn_implementation="eager")
    model.eval()

    def answer(prompt: list[int], asked: dict[str, Any]) -> list[int]:
        out: list[int] = []
        stops = asked.get("stop_token_ids", [])
        while len(out) < NEW and not (out and out[-1] in stops):
            with torch.inference_mode():
                logits = model(torch.tensor([prompt + out])).logits[0, -1].numpy().copy()
            for token, count in Counter(out).items():
                logits[token] -= count * asked.get("frequency_penalty", 0) + asked.get("presence_penalty", 0)
            penalty = asked.get("repetition_penalty", 1)
            for token in {*prompt, *out}:
                logits[token] = logits[token] * penalty if logits[token] < 0 else logits[token] / penalty
            for token, bias in asked.get("logit_bias", {}).items():
                logits[int(token)] += bias
            if len(out) < asked.get("min_new_tokens", 0):
                logits[stops] = -np.inf
            size = asked.get("logits_processors", {}).get("no-repeat-ngram", {}).get("ngram_size")
            if size:
                logits[completing(np.array(prompt + out, dtype=np.int32), size)] = -np.inf
            second, first = np.sort(logits)[-2:]
            assert first - second >= 1e-3, "a near tie: exchange this request"
            out.append(int(logits.argmax()))
        return out

    found = [answer(prompt, asked) for prompt, asked in REQUESTS]
    assert len(found[4]) == 10  # the bias ends it as soon as it may
    return found


@pytest.mark.parametrize("event_loop", ["normal", "overlap"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"page_size": 4, "max_prefill_tokens": 8},
        {"page_size": 4, "max_total_tokens": 96, "schedule_conservativeness": 0.01},
    ],
    ids=["plain", "chunks", "little memory"],
)
def test_b66_tokens_are_what_the_formulas_say_in_any_batch(
    tiny_model: Path,
    expected: list[list[int]],
    event_loop: str,
    more: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With little memory, requests are retracted and opened again with what they have (R16)."""
    again: list[int] = []
    real_open = LogitsPipeline.open

    def watched(self: LogitsPipeline, opened: Sequence[RowOpen]) -> None:
        again.extend(row.outputs for row in opened if row.outputs)
        real_open(self, opened)

    monkeypatch.setattr(LogitsPipeline, "open", watched)
    with tiny(tiny_model, event_loop=event_loop, logits_processors=PROCESSORS, **more) as engine:
        for rounds in range(2):  # the second from the cache, in rows that others had
            at = range(len(REQUESTS)) if rounds == 0 else reversed(range(len(REQUESTS)))
            order = list(at)
            answers = engine.generate(
                input_ids=[REQUESTS[i][0] for i in order], sampling_params=[{**GREEDY, **REQUESTS[i][1]} for i in order]
            )
            assert [answer["output_ids"] for answer in answers] == [expected[i] for i in order]
        for (prompt, asked), wanted in zip(REQUESTS, expected, strict=True):
            assert engine.generate(input_ids=prompt, sampling_params={**GREEDY, **asked})["output_ids"] == wanted
        assert_alive(engine)
    assert bool(again) == ("max_total_tokens" in more)


def test_seeded_draws_with_penalties_are_the_same_alone_and_batched(tiny_model: Path) -> None:
    sampling = [{**GREEDY, **asked, "temperature": 0.9, "top_k": 20, "seed": 5} for _, asked in REQUESTS]
    with tiny(tiny_model, logits_processors=PROCESSORS) as engine:
        together = engine.generate(input_ids=[prompt for prompt, _ in REQUESTS], sampling_params=sampling)
        for (prompt, _), params, answer in zip(REQUESTS, sampling, together, strict=True):
            assert engine.generate(input_ids=prompt, sampling_params=params)["output_ids"] == answer["output_ids"]


def test_b67_nothing_ends_before_the_least_length(tiny_model: Path) -> None:
    eager = {"temperature": 0, "max_new_tokens": 40, "logit_bias": {str(EOS): 100, "50": 99}, "stop_token_ids": [50]}
    with tiny(tiny_model) as engine:
        assert engine.generate(input_ids=[5], sampling_params=eager)["output_ids"] == [EOS]
        answer = engine.generate(input_ids=[5], sampling_params={**eager, "min_new_tokens": 20})
        assert len(answer["output_ids"]) == 21
        assert answer["output_ids"][-1] == EOS
        assert not {EOS, 50} & set(answer["output_ids"][:-1])
        assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": EOS}
        ignoring = {**eager, "min_new_tokens": 20, "ignore_eos": True}
        answer = engine.generate(input_ids=[5], sampling_params=ignoring)
        assert set(answer["output_ids"]) == {EOS}  # it ends nothing, so it is held back for nothing
        assert len(answer["output_ids"]) == 40


def test_dry_keeps_a_model_from_going_in_circles(tiny_model: Path) -> None:
    circle = [5, 6, 7, 8] * 6
    push = {"temperature": 0, "max_new_tokens": 1, "logit_bias": {"5": 30}}
    with tiny(tiny_model, logits_processors=PROCESSORS) as engine:
        assert engine.generate(input_ids=circle, sampling_params=push)["output_ids"] == [5]
        asking = {**push, "logits_processors": {"dry": {"multiplier": 1.0}, "no-repeat-ngram": None}}
        assert engine.generate(input_ids=circle, sampling_params=asking)["output_ids"] != [5]


@pytest.mark.parametrize(
    ("given", "param", "told"),
    [
        ({"dri": {}}, "logits_processors", "did you mean 'dry'"),
        (
            {"no-repeat-ngram": {"ngram_size": 2}},
            "logits_processors",
            "started with --logits-processors no-repeat-ngram",
        ),
        ({"dry": {"multiplier": "1"}}, "logits_processors.dry.multiplier", "not '1'"),
        ({"dry": {"multiplier": 1, "bace": 2}}, "logits_processors.dry.bace", "did you mean 'base'"),
        ({"dry": {}}, "logits_processors.dry.multiplier", "must be given"),
        ({"dry": {"multiplier": 1, "breakers": [1, "x"]}}, "logits_processors.dry.breakers.1", "not 'x'"),
        ({"dry": {"multiplier": float("nan")}}, "logits_processors.dry", "no JSON"),
        ({"dry": [1]}, "logits_processors.dry", "must be an object"),
        ({"dry": {"multiplier": object()}}, "logits_processors.dry", "no JSON"),
        ("dry", "logits_processors", "must be an object"),
        ({5: {}}, "logits_processors", "'5'"),
    ],
)
def test_what_a_request_may_not_ask_of_processors(tiny_model: Path, given: Any, param: str, told: str) -> None:
    with tiny(tiny_model, logits_processors=["dry"]) as engine:
        with pytest.raises(RequestError) as refused:
            engine.generate(input_ids=[5], sampling_params={"logits_processors": given})
        assert (refused.value.param, refused.value.status_code) == (param, 400)
        assert told in refused.value.message


def test_one_plugin_may_run_under_two_names(tiny_model: Path) -> None:
    uses: list[Any] = [{"plugin": "no-repeat-ngram", "as": "first"}, {"plugin": "no-repeat-ngram", "as": "second"}]
    with tiny(tiny_model, logits_processors=uses) as engine:
        asked = {**GREEDY, "logits_processors": {"second": {"ngram_size": 1}, "first": {"ngram_size": 3}}}
        ids = engine.generate(input_ids=[5, 6], sampling_params=asked)["output_ids"]
        assert len({5, 6, *ids}) == 2 + NEW


def test_an_operators_default_goes_to_every_request(tiny_model: Path) -> None:
    defaults = {"logits_processors": {"no-repeat-ngram": {"ngram_size": 1}}, "min_new_tokens": 3}
    with tiny(tiny_model, logits_processors=PROCESSORS, preferred_sampling_params=defaults) as engine:
        ids = engine.generate(input_ids=[5, 6], sampling_params=GREEDY)["output_ids"]
        assert len({5, 6, *ids}) == 2 + NEW
    wrong: dict[str, Any] = {"logits_processors": {"no-repeat-ngram": {}}}
    with pytest.raises(ConfigurationError, match="ngram_size"):
        tiny(tiny_model, logits_processors=PROCESSORS, preferred_sampling_params=wrong)


@pytest.mark.parametrize("event_loop", ["normal", "overlap"])
def test_a_failing_processor_ends_its_requests_and_nobody_elses(
    tiny_model: Path, expected: list[list[int]], event_loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter(range(100))

    def broken(self: Dry, logits: Any, rows: Any, positions: Any) -> None:
        if next(calls) == 3:
            raise ZeroDivisionError("in the plugin")

    def poisoned(self: NoRepeatNgram, logits: Any, rows: Any, positions: Any) -> None:
        logits[:, 3] = float("nan")

    monkeypatch.setattr(Dry, "apply", broken)
    monkeypatch.setattr(NoRepeatNgram, "apply", poisoned)
    asks: list[dict[str, Any]] = [
        {**GREEDY, "logits_processors": {"dry": {"multiplier": 1}}},
        {**GREEDY, "logits_processors": {"no-repeat-ngram": {"ngram_size": 2}}},
    ]
    with tiny(tiny_model, event_loop=event_loop, logits_processors=PROCESSORS) as engine:
        healthy = engine.generate(input_ids=REQUESTS[1][0], sampling_params={**GREEDY, **REQUESTS[1][1]}, stream=True)
        for params in asks:
            next(healthy)
            with pytest.raises(RequestError) as ended:
                engine.generate(input_ids=[7, 8], sampling_params=params)
            assert ended.value.status_code == 500
        assert list(healthy)[-1]["output_ids"] == expected[1]
        faults = engine.get_server_info()["faults"]
        for name in PROCESSORS:
            booked = faults[f"logits_processor.{name}"]
            assert booked["by_scope"] == {"request": 1}
        assert_alive(engine)


def test_a_worker_that_runs_no_processors_is_not_started_with_any() -> None:
    with pytest.raises(ConfigurationError, match="worker 'simulated' runs no logits processors"):
        simulated(skip_tokenizer_init=True, logits_processors=["dry"])
    with pytest.raises(ConfigurationError, match=r"frequency_penalty .* 'simulated' does not declare 'penalties'"):
        simulated(skip_tokenizer_init=True, preferred_sampling_params={"frequency_penalty": 1})
    with simulated(skip_tokenizer_init=True) as engine, pytest.raises(RequestError) as refused:
        engine.generate(input_ids=[5], sampling_params={"logits_processors": {"dry": {}}})
    assert refused.value.param == "logits_processors"
    assert "--logits-processors" in refused.value.message


def test_a_checkpoints_repetition_penalty_is_a_requests_default(
    tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs: dict[str, Any] = {"json_model_override_args": {"generation_config": {"repetition_penalty": 1.4}}}
    with tiny(tiny_model) as engine:
        plain = engine.generate(input_ids=[5, 5, 6], sampling_params=GREEDY)["output_ids"]
        wanted = engine.generate(input_ids=[5, 5, 6], sampling_params={**GREEDY, "repetition_penalty": 1.4})[
            "output_ids"
        ]
    assert plain != wanted
    with tiny(tiny_model, **theirs) as engine:
        assert engine.generate(input_ids=[5, 5, 6], sampling_params=GREEDY)["output_ids"] == wanted
        off = {**GREEDY, "repetition_penalty": 1}
        assert engine.generate(input_ids=[5, 5, 6], sampling_params=off)["output_ids"] == plain
    with tiny(tiny_model, sampling_defaults="openai", **theirs) as engine:
        assert engine.generate(input_ids=[5, 5, 6], sampling_params=GREEDY)["output_ids"] == plain
    with tiny(tiny_model, worker="simulated", **theirs) as engine:
        assert engine.generate(input_ids=[5], sampling_params={"max_new_tokens": 2})
    assert "repetition_penalty = 1.4 is not applied: worker 'simulated' lacks 'penalties'" in caplog.text
