"""Faults that engines of this kind had in scheduling, caching, sampling and metrics, each tried here: what their users saw
must not be seen. Small pools, so that requests are retracted; every run ends with every slot accounted for."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jackfield import Engine
from jackfield.managers.errors import RequestError
from tests.e2e.engines import assert_alive, simulated, tiny, without_tokenizer

SMALL: dict[str, Any] = {"schedule_conservativeness": 0.01}
"""With few slots: whoever's prompt fits gets in, and decode runs short."""
loops = pytest.mark.parametrize("event_loop", ["normal", "overlap"])
topologies = pytest.mark.parametrize("topology", ["inline", "processes"])


def retractions(answers: list[Any]) -> int:
    return sum(answer["meta_info"]["num_retractions"] for answer in answers)


@loops
def test_seeded_answers_to_one_prompt_survive_retraction(event_loop: str) -> None:
    """Elsewhere the draws began anew, or all answers got one generator."""
    sampling = {"max_new_tokens": 60, "n": 4, "ignore_eos": True, "temperature": 1.0, "seed": 3}
    with without_tokenizer() as engine:
        alone = [answer["output_ids"] for answer in engine.generate(input_ids=[5] * 10, sampling_params=sampling)]
    assert len(set(map(tuple, alone))) == 4
    with without_tokenizer(max_total_tokens=140, event_loop=event_loop, **SMALL) as engine:
        answers = engine.generate(input_ids=[5] * 10, sampling_params=sampling)
        assert retractions(answers) > 0
        assert [answer["output_ids"] for answer in answers] == alone
        assert_alive(engine)


@loops
def test_the_least_length_holds_through_retractions_and_overlap(tiny_model: Path, event_loop: str) -> None:
    """Elsewhere the count began anew with the second prefill, or was a step late under overlap."""
    eager = {"temperature": 0, "max_new_tokens": 40, "logit_bias": {"1": 100, "50": 99}, "stop_token_ids": [50]}
    least = (20, 0, 25, 39)
    with tiny(tiny_model, event_loop=event_loop, max_total_tokens=96, **SMALL) as engine:
        answers = engine.generate(
            input_ids=[[5], [6, 7, 8], [9] * 20, [10] * 30],
            sampling_params=[{**eager, "min_new_tokens": count} for count in least],
        )
        assert retractions(answers) > 0
        assert [len(answer["output_ids"]) for answer in answers] == [count + 1 for count in least]
        assert all(not {1, 50} & set(answer["output_ids"][:-1]) for answer in answers)
        assert_alive(engine)


@loops
def test_log_probabilities_of_retracted_requests_are_told_once(tiny_model: Path, event_loop: str) -> None:
    """Elsewhere prompt entries came twice or not at all, and those of outputs got out of step with the tokens."""
    prompts = [[(7 * i + j) % 120 + 2 for i in range(30)] for j in range(4)]
    sampling = {"temperature": 0, "max_new_tokens": 40, "ignore_eos": True}
    wants: dict[str, Any] = {"return_logprob": True, "logprob_start_len": [0, -1, 7, 29], "top_logprobs_num": 2}

    def told(answer: Any) -> list[Any]:
        sides = (answer["meta_info"][f"{side}_token_logprobs"] for side in ("input", "output"))
        return [(token, None if value is None else round(value, 2)) for side in sides for value, token, _ in side]

    with tiny(tiny_model) as engine:
        alone = [told(answer) for answer in engine.generate(input_ids=prompts, sampling_params=sampling, **wants)]
    with tiny(tiny_model, event_loop=event_loop, max_total_tokens=150, chunked_prefill_size=8, **SMALL) as engine:
        for _ in range(2):  # the second time with what the cache still has
            answers = engine.generate(input_ids=prompts, sampling_params=sampling, **wants)
            assert retractions(answers) > 0
            for answer, expected in zip(answers, alone, strict=True):
                assert [token for token, _ in told(answer)] == [token for token, _ in expected]
                for (_, mine), (_, other) in zip(told(answer), expected, strict=True):
                    assert mine == other or mine == pytest.approx(other, abs=0.011)
                assert len(answer["meta_info"]["output_top_logprobs"]) == 40
        assert_alive(engine)


@loops
@topologies
def test_what_was_computed_behind_a_stop_string_is_nobody_s(topology: str, event_loop: str) -> None:
    """Elsewhere the tokens of steps in flight were counted, or their log-probabilities left behind."""
    text = "one two three four five six seven eight nine ten eleven twelve"
    sampling: dict[str, Any] = {"stop": ["ve six"], "max_new_tokens": 50, "temperature": 0}
    with simulated([text] * 9, topology=topology, event_loop=event_loop) as engine:
        answers = []
        asked: list[dict[str, Any]] = [{}, {"return_logprob": True, "top_logprobs_num": 2}]
        for wants in asked:
            answers.append(engine.generate("hi", sampling, **wants))
            answers.append(list(engine.generate("hi", sampling, stream=True, **wants))[-1])
        (one,) = {(answer["text"], *answer["output_ids"]) for answer in answers}
        assert one[0] == "one two three four fi"
        count = len(one) - 1
        for answer in answers:
            assert answer["meta_info"]["completion_tokens"] == count
            assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": "ve six"}
        for answer in answers[2:]:
            assert len(answer["meta_info"]["output_token_logprobs"]) == count
        # Where the last token that it may have completes the stop, it ends by the stop, and not by its length.
        answer = engine.generate("hi", {**sampling, "max_new_tokens": count})
        assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": "ve six"}
        assert_alive(engine)


@pytest.mark.parametrize("page_size", [1, 16, 64])
@pytest.mark.parametrize("chunk", [64, -1])
def test_prompts_that_equal_the_pool_run_one_after_the_other(page_size: int, chunk: int) -> None:
    """Elsewhere they waited for ever: for a page more than there is, or for the prefix that they held themselves."""
    with without_tokenizer(max_total_tokens=512, page_size=page_size, chunked_prefill_size=chunk, **SMALL) as engine:
        prompts = [[number] * 512 for number in range(5, 9)] * 2 + [[number] * 3 for number in range(20, 24)]
        answers = engine.generate(input_ids=prompts, sampling_params={"max_new_tokens": 50, "ignore_eos": True})
        assert [len(answer["output_ids"]) for answer in answers] == [1] * 8 + [50] * 4
        with pytest.raises(RequestError, match=r"513 tokens.* holds 512"):
            engine.generate(input_ids=[7] * 513, sampling_params={"max_new_tokens": 1})
        assert_alive(engine)


def test_the_ends_of_the_range_of_priorities_are_ordered() -> None:
    """Elsewhere the difference of two of them overflowed, and the least urgent interrupted the most urgent."""
    options = {"schedule_policy.priority": {"ageing": 5.0}}
    with without_tokenizer(schedule_policy="priority", max_running_requests=2, options=options) as engine:
        sampling = {"max_new_tokens": 30, "ignore_eos": True}
        low = engine.generate(input_ids=[5], sampling_params=sampling, priority=-(2**31), stream=True)
        high = engine.generate(input_ids=[6], sampling_params=sampling, priority=2**31 - 1, stream=True)
        next(low)
        next(high)
        batch = engine.generate(input_ids=[[7], [8], [9]], sampling_params=sampling, priority=[2**31 - 1, 0, -(2**31)])
        last = [list(stream)[-1] for stream in (low, high)]
        assert [len(answer["output_ids"]) for answer in (*last, *batch)] == [30] * 5
        assert last[0]["meta_info"]["num_retractions"] >= 1
        assert last[1]["meta_info"]["num_retractions"] == batch[0]["meta_info"]["num_retractions"] == 0
        assert_alive(engine)


@loops
def test_a_deadline_or_a_tenant_outlives_a_retraction(event_loop: str) -> None:
    """Elsewhere a request that came back had lost what it is ordered by."""
    for policy, fields in (("edf", {"deadline_s": [9, 8, 7, 6]}), ("fair-share", {"tenant": ["a", "b", "a", "b"]})):
        with without_tokenizer(schedule_policy=policy, max_total_tokens=200, event_loop=event_loop, **SMALL) as engine:
            answers = engine.generate(
                input_ids=[[number] * 30 for number in range(5, 9)],
                sampling_params={"max_new_tokens": 80, "ignore_eos": True},
                **fields,
            )
            assert retractions(answers) > 0
            assert [len(answer["output_ids"]) for answer in answers] == [80] * 4
            assert_alive(engine)


def mixed(count: int) -> list[tuple[list[int], dict[str, Any], dict[str, Any]]]:
    """Requests of all kinds over prompts that share their beginnings: prompt, sampling, what else is asked."""
    choose = random.Random(5)
    shared = [(7 * i) % 120 + 2 for i in range(24)]
    requests = []
    for seed in range(count):
        prompt = shared[: choose.randint(0, 24)] + [choose.randint(2, 120) for _ in range(choose.randint(1, 10))]
        new = choose.randint(0, 40)
        sampling: dict[str, Any] = {"temperature": choose.choice([0, 0, 0.9]), "seed": seed, "max_new_tokens": new}
        sampling["ignore_eos"] = choose.random() < 0.5
        if choose.random() < 0.4:
            sampling |= {"frequency_penalty": 1.1, "repetition_penalty": 1.3}
        if choose.random() < 0.3:
            sampling |= {"min_new_tokens": min(5, new), "stop_token_ids": list(range(2, 60))}
        if choose.random() < 0.3:
            sampling |= {"logit_bias": {"9": 5.0}}
        if choose.random() < 0.3:
            sampling |= {"top_k": 5}
        more: dict[str, Any] = {"priority": choose.randint(-3, 30)}
        if choose.random() < 0.4:
            more |= {"return_logprob": True, "logprob_start_len": choose.randrange(len(prompt))}
        requests.append((prompt, sampling, more))
    return requests


@pytest.mark.parametrize(("event_loop", "cache"), [("normal", "chunk"), ("overlap", "radix")])
def test_all_features_at_once_in_a_small_pool_are_as_each_alone(tiny_model: Path, event_loop: str, cache: str) -> None:
    """Elsewhere each feature was right by itself, and wrong beside another one's rows: after a retraction or preemption, in a
    chunk, beside neighbours that are aborted."""
    requests = mixed(20)
    with tiny(tiny_model) as engine:
        alone = [engine.generate(input_ids=ids, sampling_params=how, **more) for ids, how, more in requests]
    told: list[Any] = [None] * len(requests)
    with tiny(
        tiny_model,
        event_loop=event_loop,
        cache_policy=cache,
        schedule_policy="priority",
        options={"schedule_policy.priority": {"preempt_difference": 3}},
        max_total_tokens=112,
        max_running_requests=6,
        chunked_prefill_size=8,
        max_prefill_tokens=16,
        **SMALL,
    ) as engine:

        def ask(number: int) -> None:
            ids, how, more = requests[number]
            told[number] = engine.generate(input_ids=ids, sampling_params=how, **more)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(requests))]
        for thread in threads:
            thread.start()
        for priority in (0, 40, 10):
            doomed = {"max_new_tokens": 80, "ignore_eos": True}
            with engine.generate(
                input_ids=requests[0][0], sampling_params=doomed, stream=True, priority=priority
            ) as stream:
                next(stream)
        for thread in threads:
            thread.join()
        assert engine.get_server_info()["scheduler"]["retractions"] > 0
        assert_alive(engine)
    for mine, other in zip(told, alone, strict=True):
        assert mine["output_ids"] == other["output_ids"]
        assert mine["meta_info"]["finish_reason"] == other["meta_info"]["finish_reason"]
        for side in ("input_token_logprobs", "output_token_logprobs"):
            entries = [answer["meta_info"].get(side, []) for answer in (mine, other)]
            assert len(entries[0]) == len(entries[1])
            for (value, token, _), (expected, same, _) in zip(*entries, strict=True):
                assert token == same
                assert value == (None if expected is None else pytest.approx(expected, abs=1e-3))


def values(engine: Engine) -> dict[tuple[str, str], tuple[float, str]]:
    """(name, labels) -> value and type."""
    answer = engine.expose_metrics()
    assert answer is not None
    found = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                found[sample.name.removeprefix("jackfield_"), str(sorted(sample.labels.items()))] = (
                    sample.value,
                    family.type,
                )
    return found


@topologies
def test_b80_no_number_falls_or_is_negative_under_retractions_refusals_and_aborts(topology: str) -> None:
    """Elsewhere the cached tokens of a second prefill were more than the prompt, and an increment below 0 ended the engine."""
    problems: list[Any] = []
    over = threading.Event()
    with without_tokenizer(
        topology=topology,
        event_loop="overlap",
        metrics=["prometheus"],
        metrics_interval=0,
        max_running_requests=4,
        max_queued_requests=6,
        max_total_tokens=256,
        options={"worker.simulated": {"realtime": True, "base_us": 300}},
        **SMALL,
    ) as engine:

        def watch() -> None:
            before: dict[tuple[str, str], tuple[float, str]] = {}
            while not over.is_set():
                now = values(engine)
                for name, (value, kind) in now.items():
                    if not value >= 0 or (kind != "gauge" and value < before.get(name, (0.0, ""))[0]):
                        problems.append((name, value, before.get(name)))
                    if name[0] in ("token_usage", "cache_hit_rate") and value > 1:
                        problems.append((name, value))
                before = now

        def client(number: int) -> None:
            choose = random.Random(number)
            for _ in range(8):
                ids = [choose.randint(5, 9)] * choose.randint(1, 90)
                try:
                    what = choose.random()
                    if what < 0.3:
                        with engine.generate(
                            input_ids=ids, sampling_params={"max_new_tokens": 100, "ignore_eos": True}, stream=True
                        ) as stream:
                            next(stream)
                    else:
                        sampling = {"max_new_tokens": 40, "ignore_eos": True, "n": 3 if what < 0.5 else 1}
                        rid = "same" if what > 0.8 else None
                        engine.generate(input_ids=ids, sampling_params=sampling, rid=rid)
                except RequestError:
                    pass  # the queue is full, or the id is live

        watching = threading.Thread(target=watch)
        clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
        for thread in (watching, *clients):
            thread.start()
        for thread in clients:
            thread.join()
        assert_alive(engine)
        over.set()
        watching.join()
        assert not problems
        assert engine.get_server_info()["scheduler"]["retractions"] > 0
        told = values(engine)

        def total(name: str) -> float:
            return sum(value for (other, _), (value, _) in told.items() if other == name)

        assert total("num_received_requests_total") == total("num_requests_total")
        assert total("num_finished_requests_total") == total("num_requests_total")
        assert total("cached_tokens_total") <= total("prompt_tokens_total")
        spent = total("scheduler_step_cpu_seconds_sum")
        assert 0 < spent <= total("process_cpu_seconds_total")
