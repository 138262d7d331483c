"""The offline API at its edges, on the simulated worker: what is refused, what is answered, what is left behind."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time
from typing import Any

import numpy as np
import pytest

from jackfield.managers.errors import RequestError
from tests.e2e.engines import assert_alive, simulated, without_tokenizer

GREEDY = {"temperature": 0}


@pytest.fixture(scope="module", params=["inline", "processes"])
def engine(request: pytest.FixtureRequest) -> Any:
    with without_tokenizer(context_length=64, max_total_tokens=256, topology=request.param) as engine:
        yield engine
        assert_alive(engine)


def test_one_answer_has_the_shape_of_the_interface_sheet(engine: Any) -> None:
    answer = engine.generate(input_ids=[3, 4, 5], sampling_params={"max_new_tokens": 4, "ignore_eos": True})
    assert set(answer) == {"text", "output_ids", "meta_info"}
    meta = answer["meta_info"]
    assert set(meta) == {
        "id",
        "finish_reason",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
        "cached_tokens_details",
        "num_retractions",
        "weight_version",
        "e2e_latency",
        "queue_time",
        "stage_times",
        "stack_hash",
        "stack_epoch",
    }
    assert set(meta["stage_times"]) == {"tokenize", "queue", "prefill", "decode", "detokenize"}
    assert all(seconds >= 0 for seconds in meta["stage_times"].values())
    assert meta["prompt_tokens"] == 3
    assert meta["completion_tokens"] == len(answer["output_ids"]) == 4
    assert meta["finish_reason"] == {"type": "length", "length": 4}


def test_a_batch_comes_back_in_its_order(engine: Any) -> None:
    prompts = [[i, i + 1, i + 2] for i in range(3, 13)]
    sampling = [{**GREEDY, "max_new_tokens": 1 + i % 4, "ignore_eos": True} for i in range(10)]
    together = engine.generate(input_ids=prompts, sampling_params=sampling)
    alone = [
        engine.generate(input_ids=prompt, sampling_params=params)
        for prompt, params in zip(prompts, sampling, strict=True)
    ]
    assert [a["output_ids"] for a in together] == [a["output_ids"] for a in alone]


def test_a_stream_grows_into_the_whole_answer(engine: Any) -> None:
    params = {**GREEDY, "max_new_tokens": 9, "ignore_eos": True}
    whole = engine.generate(input_ids=[9, 8, 7], sampling_params=params)
    parts = list(engine.generate(input_ids=[9, 8, 7], sampling_params=params, stream=True))
    assert [len(part["output_ids"]) for part in parts] == sorted({len(part["output_ids"]) for part in parts})
    assert all(part["meta_info"]["finish_reason"] is None for part in parts[:-1])
    assert parts[-1]["output_ids"] == whole["output_ids"]
    assert parts[-1]["meta_info"]["finish_reason"] == whole["meta_info"]["finish_reason"]


@pytest.mark.parametrize("read", [0, 1])
@pytest.mark.parametrize("how", ["close", "collect"])
def test_a_stream_that_nobody_reads_on_ends_its_request(engine: Any, read: int, how: str) -> None:
    stream = engine.generate(
        input_ids=[9, 8, 7], sampling_params={"max_new_tokens": 50, "ignore_eos": True}, stream=True
    )
    for _ in range(read):
        next(stream)
    if how == "close":
        stream.close()
    del stream
    gc.collect()
    deadline = time.monotonic() + 60
    while engine._runtime.tokenizer_manager.rid_to_state and time.monotonic() < deadline:
        engine.get_server_info()
    engine.generate(input_ids=[3], sampling_params={"max_new_tokens": 3, "ignore_eos": True})
    assert_alive(engine)


@pytest.mark.parametrize("empty", [{"input_ids": []}, {"input_ids": [[]]}, {"input_ids": [[3], []]}, {"prompt": []}])
def test_b22_an_empty_prompt_is_refused_by_name(engine: Any, empty: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as refused:
        engine.generate(**empty)
    assert refused.value.status_code == 400
    assert refused.value.param in ("input_ids", "prompt")
    assert_alive(engine)


@pytest.mark.model
@pytest.mark.parametrize("prompt", ["", [""], ["hello", ""]])
def test_b22_an_empty_text_is_refused_where_the_tokenizer_adds_no_bos(text_engine: Any, prompt: Any) -> None:
    with pytest.raises(RequestError) as refused:
        text_engine.generate(prompt)
    assert refused.value.param == "prompt"
    assert_alive(text_engine)


@pytest.fixture(scope="module")
def text_engine() -> Any:
    with simulated() as engine:
        yield engine


@pytest.mark.parametrize(
    ("field", "value"),
    [("stream", None), ("stream", "no"), ("stream", 1), ("input_ids", np.array([3, 4])), ("input_ids", b"ab")]
    + [("prompt", wrong) for wrong in (5, b"ab", {"a": 1}, {"a"}, iter("a"))],
)
def test_a_value_of_the_wrong_type_is_refused_by_name_and_leaves_nothing_open(
    engine: Any, field: str, value: Any
) -> None:
    given: dict[str, Any] = {} if field == "prompt" else {"input_ids": [3]}
    with pytest.raises(RequestError) as refused:
        engine.generate(**{**given, field: value})
    assert (refused.value.status_code, refused.value.param) == (400, field)
    assert not engine._runtime.tokenizer_manager.rid_to_state
    assert_alive(engine)


@pytest.mark.parametrize("bad", [-1, 49152, 10**18, True, 1.5, "7", None])
def test_ids_outside_the_vocabulary_are_refused(engine: Any, bad: Any) -> None:
    for field in ({"input_ids": [3, bad]}, {"input_ids": [3], "sampling_params": {"stop_token_ids": [bad]}}):
        with pytest.raises(RequestError) as refused:
            engine.generate(**field)
        assert refused.value.status_code == 400
        assert refused.value.param in ("input_ids", "stop_token_ids")


@pytest.mark.parametrize(
    ("length", "new_tokens", "answered"), [(62, 10, 3), (63, 10, 2), (64, 10, 1), (64, 1, 1), (64, 0, 0)]
)
def test_b30_prompts_up_to_the_context_are_answered(engine: Any, length: int, new_tokens: int, answered: int) -> None:
    """Policy: max_new_tokens is cut to what the context holds; the last token needs no place in it."""
    answer = engine.generate(input_ids=[3] * length, sampling_params={"max_new_tokens": new_tokens, "ignore_eos": True})
    assert answer["meta_info"]["completion_tokens"] == answered
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": answered}


@pytest.mark.parametrize("stream", [False, True])
def test_b30_a_longer_prompt_is_refused_with_the_numbers(engine: Any, stream: bool) -> None:
    with pytest.raises(RequestError, match=r"65.*64") as refused:
        engine.generate(input_ids=[3] * 65, stream=stream)
    assert (refused.value.status_code, refused.value.code) == (400, "context_length_exceeded")
    assert_alive(engine)


def test_b36_a_prompt_that_the_pool_cannot_hold_is_refused_and_blocks_nobody() -> None:
    with without_tokenizer(context_length=4096, max_total_tokens=512, max_running_requests=4) as engine:
        with pytest.raises(RequestError, match=r"600.*512"):
            engine.generate(input_ids=[3] * 600)
        assert engine.generate(input_ids=[3] * 20)["meta_info"]["prompt_tokens"] == 20
        assert_alive(engine)


@pytest.mark.parametrize("prompt", [10, 400])
@pytest.mark.parametrize("stream", [False, True])
def test_b51_zero_and_one_new_tokens(prompt: int, stream: bool) -> None:
    with without_tokenizer(context_length=512, max_total_tokens=2048, max_prefill_tokens=64) as engine:
        for new_tokens in [0, 1] * 50:
            params = {"max_new_tokens": new_tokens, "ignore_eos": True}
            answer = engine.generate(input_ids=[3] * prompt, sampling_params=params, stream=stream)
            last = list(answer)[-1] if stream else answer
            assert len(last["output_ids"]) == new_tokens
            assert last["meta_info"]["finish_reason"] == {"type": "length", "length": new_tokens}
        assert_alive(engine)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop", ""),
        ("stop", ["", "X"]),
        ("temperature", -0.1),
        ("temperature", "nan"),
        ("temperature", float("nan")),
        ("top_p", 0),
        ("top_p", 1.1),
        ("min_p", 1.1),
        ("max_new_tokens", -1),
        ("n", 0),
        ("best_of", 2),
        ("frequency_penalty", 0.5),
        ("json_schema", "{}"),
        ("max_new_token", 3),
    ],
)
def test_bad_and_unbuilt_sampling_fields_are_refused_by_name(engine: Any, field: str, value: Any) -> None:
    with pytest.raises(RequestError) as refused:
        engine.generate(input_ids=[3], sampling_params={field: value})
    assert refused.value.param == field
    assert field in str(refused.value)
    assert refused.value.status_code == 400


@pytest.mark.parametrize("nothing", [{"stop": []}, {"stop": None}, {"temperature": None}, {"top_k": -1}, {"n": 1}])
def test_absent_and_neutral_fields_are_taken(engine: Any, nothing: dict[str, Any]) -> None:
    assert engine.generate(input_ids=[3, 4], sampling_params={**nothing, "max_new_tokens": 2})


def test_a_rid_in_use_is_refused_and_may_be_used_again_later(engine: Any) -> None:
    with pytest.raises(RequestError) as refused:
        engine.generate(input_ids=[[3], [4]], rid=["a", "a"])
    assert refused.value.param == "rid"
    for _ in range(2):
        assert engine.generate(input_ids=[3], rid="a")["meta_info"]["id"] == "a"


def test_threads_share_one_batch() -> None:
    with without_tokenizer(context_length=512, max_total_tokens=8192) as engine:
        prompts = [[3 + i, 4, 5] for i in range(12)]
        params = {"max_new_tokens": 20, "ignore_eos": True, "temperature": 0}
        expected = [engine.generate(input_ids=prompt, sampling_params=params)["output_ids"] for prompt in prompts]
        got: dict[int, Any] = {}

        def call(i: int) -> None:
            got[i] = engine.generate(input_ids=prompts[i], sampling_params=params)["output_ids"]

        threads = [threading.Thread(target=call, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [got[i] for i in range(len(prompts))] == expected
        assert_alive(engine)


async def test_coroutines_share_one_batch_and_may_be_cancelled() -> None:
    with without_tokenizer(context_length=512, max_total_tokens=8192) as engine:
        params = {"max_new_tokens": 40, "ignore_eos": True, "temperature": 0}
        expected = engine.generate(input_ids=[3, 4, 5], sampling_params=params)["output_ids"]
        doomed = asyncio.create_task(
            engine.async_generate(input_ids=[7, 7], sampling_params={"max_new_tokens": 400, "ignore_eos": True})
        )
        answers = asyncio.gather(
            *(engine.async_generate(input_ids=[3, 4, 5], sampling_params=params) for _ in range(8))
        )
        stream = await engine.async_generate(input_ids=[3, 4, 5], sampling_params=params, stream=True)
        first = await anext(stream)
        assert len(first["output_ids"]) < 40
        doomed.cancel()
        await stream.aclose()
        assert [answer["output_ids"] for answer in await answers] == [expected] * 8
        with pytest.raises(asyncio.CancelledError):
            await doomed
        assert_alive(engine)


def test_shutdown_with_open_requests_ends_them() -> None:
    engine = without_tokenizer()
    stream = engine.generate(input_ids=[3], sampling_params={"max_new_tokens": 100, "ignore_eos": True}, stream=True)
    next(stream)
    engine.shutdown()
    engine.shutdown()
    list(itertools.islice(stream, 1000))
    with pytest.raises(RuntimeError, match="shut down"):
        engine.generate(input_ids=[3])


def test_flush_forgets_cached_prefixes(engine: Any) -> None:
    prompt = list(range(3, 43))
    params = {"max_new_tokens": 1}
    engine.flush_cache()
    assert engine.generate(input_ids=prompt, sampling_params=params)["meta_info"]["cached_tokens"] == 0
    assert engine.generate(input_ids=prompt, sampling_params=params)["meta_info"]["cached_tokens"] == 39
    engine.flush_cache()
    assert engine.generate(input_ids=prompt, sampling_params=params)["meta_info"]["cached_tokens"] == 0


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 400])
def test_b54_an_exact_repeat_recomputes_its_last_token(page_size: int, length: int) -> None:
    prompt = [3 + i % 97 for i in range(length)]
    with without_tokenizer(context_length=1024, page_size=page_size, max_prefill_tokens=64) as engine:
        cold, *warm = [
            engine.generate(input_ids=prompt, sampling_params={**GREEDY, "max_new_tokens": 5, "ignore_eos": True})
            for _ in range(3)
        ]
        assert cold["meta_info"]["cached_tokens"] == 0
        for answer in warm:
            assert answer["meta_info"]["cached_tokens"] == (length - 1) // page_size * page_size
            assert answer["output_ids"] == cold["output_ids"]
        assert_alive(engine)
