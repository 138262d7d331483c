"""Penalties, bias and the least length: what a client may send (B66, B67, B29, B85), and what a worker must declare for it."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.ipc.messages import SamplingParams, TokenizedGenerateRequest
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.limits import DEFAULT_LIMITS
from jackfield.managers.fields.sampling_params import check_defaults, make_sampling_params
from jackfield.managers.fields.worker_features import FEATURE_OF, WorkerFeatures
from jackfield.managers.scheduler.request import Request

VOCAB = 1000


def make(defaults: dict[str, Any] | None = None, **given: Any) -> SamplingParams:
    return make_sampling_params(given, defaults=defaults or {}, vocab_size=VOCAB)


def refused(**given: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        make(**given)
    assert caught.value.status_code == 400
    return caught.value


@pytest.mark.parametrize("name", ["frequency_penalty", "presence_penalty"])
def test_additive_penalties_go_from_minus_two_to_two(name: str) -> None:
    good: list[Any] = [-2, -0.5, 0, 2.0, np.float32(0.5)]
    bad: list[Any] = [-2.0001, 2.1, float("nan"), float("inf"), True, False, "1", [1]]
    for value in good:
        assert getattr(make(**{name: value}), name) == value
    for value in bad:
        assert refused(**{name: value}).param == name


def test_the_repetition_penalty_is_above_zero_and_at_most_two() -> None:
    bad: list[Any] = [0, -1, 2.01, float("nan"), True, "1.1", 1e-7, 1e-40, 1e-300]
    for value in (1e-6, 1e-3, 1, 2.0):
        assert make(repetition_penalty=value).repetition_penalty == value
    for value in bad:
        assert refused(repetition_penalty=value).param == "repetition_penalty"


def test_a_bias_names_ids_as_numbers_or_as_json_does() -> None:
    assert make(logit_bias={"5": 1, 999: -100.0, np.int64(0): 100}).logit_bias == {5: 1.0, 999: -100.0, 0: 100.0}
    assert make(logit_bias={"5": 0, "6": 0.0}).logit_bias == {}
    assert make(logit_bias={}) == make(logit_bias=None) == SamplingParams()


@pytest.mark.parametrize(
    "key", [1000, 10**18, -1, True, 1.5, "1000", "-1", "1.5", "true", "05", " 5", "٥", "9" * 5000, ""]
)
def test_b29_a_bias_for_an_id_that_does_not_exist_is_refused(key: Any) -> None:
    error = refused(logit_bias={key: 1})
    assert error.param == "logit_bias"
    assert len(error.message) < 500


@pytest.mark.parametrize("bias", [100.1, -101, float("nan"), None, True, "1"])
def test_a_bias_is_a_number_from_minus_to_plus_a_hundred(bias: Any) -> None:
    assert refused(logit_bias={"5": bias}).param == "logit_bias"


def test_b85_a_bias_holds_a_bounded_number_of_ids() -> None:
    most = DEFAULT_LIMITS.max_logit_bias
    assert len(make(logit_bias=dict.fromkeys(range(most), 1)).logit_bias) == most
    assert str(most) in refused(logit_bias={str(i): 1 for i in range(50_000)}).message
    assert "twice" in refused(logit_bias={"5": 1, 5: 2}).message
    for value in ([1], "5", 5, [[5, 1]]):
        assert refused(logit_bias=value).param == "logit_bias"


def test_the_least_length_may_not_exceed_the_most() -> None:
    assert make(min_new_tokens=5, max_new_tokens=5).min_new_tokens == 5
    assert make(min_tokens=5).min_new_tokens == 5
    error = refused(min_new_tokens=6, max_new_tokens=5)
    assert error.param == "min_new_tokens"
    assert "6" in error.message
    assert "5" in error.message
    assert refused(min_tokens=6, max_new_tokens=5).param == "min_tokens"
    assert refused(min_tokens=1, min_new_tokens=2).param == "min_tokens"
    for value in (-1, 1.0, True, "3"):
        assert refused(min_new_tokens=value).param == "min_new_tokens"


def test_a_default_least_length_gives_way_to_a_short_limit() -> None:
    assert make({"min_new_tokens": 20}, max_new_tokens=5).min_new_tokens == 5
    assert make({"min_new_tokens": 20}, min_tokens=3).min_new_tokens == 3
    assert make({"min_tokens": 20}, min_new_tokens=3).min_new_tokens == 3


def test_all_of_it_crosses_to_the_scheduler() -> None:
    params = make(frequency_penalty=1, logit_bias={"7": -2}, min_tokens=3, repetition_penalty=1.5)
    message = TokenizedGenerateRequest(rid="a", input_ids=[1], sampling=params)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=TokenizedGenerateRequest) == message


def row_open(params: SamplingParams, eos_ids: tuple[int, ...], outputs: int = 0) -> Any:
    request = Request(
        TokenizedGenerateRequest(rid="a", input_ids=[1, 2], sampling=params),
        uid=1,
        prompt=np.array([1, 2], dtype=np.int32),
        max_new_tokens=10,
        seed=0,
        namespace=b"",
        now=0.0,
        eos_ids=eos_ids,
    )
    request.output_ids = [9] * outputs
    if outputs:
        request.wait(0.0)  # retracted
    return request.row_open()


def test_b67_the_worker_is_told_every_id_that_would_end_it_too_early() -> None:
    some = make(min_new_tokens=4, stop_token_ids=[5, 2, 5], max_new_tokens=9)
    assert row_open(some, (2, 3)).end_ids.tolist() == [2, 3, 5]
    assert row_open(some, ()).end_ids.tolist() == [2, 5]  # a model without an end token
    ignoring = msgspec.structs.replace(some, ignore_eos=True)
    assert row_open(ignoring, (3,)).end_ids.tolist() == [2, 5]
    assert row_open(make(stop_token_ids=[5]), (2,)).end_ids.tolist() == []


def test_the_worker_is_told_how_much_of_the_history_is_output() -> None:
    opened = row_open(make(logit_bias={7: 1.5, 3: -1}), (2,), outputs=3)
    assert (opened.history.tolist(), opened.outputs) == ([1, 2, 9, 9, 9], 3)
    assert dict(zip(opened.bias_ids.tolist(), opened.bias_values.tolist(), strict=True)) == {7: 1.5, 3: -1.0}
    assert (opened.bias_ids.dtype, opened.bias_values.dtype) == (np.int32, np.float32)


VALUES: dict[str, Any] = {
    "frequency_penalty": 1.0,
    "presence_penalty": -1.0,
    "repetition_penalty": 1.1,
    "logit_bias": {5: 1.0},
    "min_new_tokens": 1,
    "logits_processors": {"p": {}},
}


@pytest.mark.parametrize("field", FEATURE_OF)
def test_a_field_that_the_worker_does_not_declare_is_refused_by_both_names(field: str) -> None:
    params = SamplingParams(**{field: VALUES[field]})
    others = frozenset(FEATURE_OF.values()) - {FEATURE_OF[field]}
    with pytest.raises(RequestError, match=f"{field} .* 'cheap' does not declare '{FEATURE_OF[field]}'") as caught:
        WorkerFeatures(name="cheap", declared=others).check(params)
    assert (caught.value.param, caught.value.code) == (field, "not_supported")
    with pytest.raises(ConfigurationError, match=field):
        WorkerFeatures(name="cheap", declared=others).check_defaults(params)
    WorkerFeatures(declared=frozenset({FEATURE_OF[field]})).check(params)


def test_what_asks_for_nothing_needs_no_feature() -> None:
    neutral = make(frequency_penalty=0, repetition_penalty=1.0, logit_bias={"5": 0}, min_tokens=0)
    WorkerFeatures().check(neutral)


def test_defaults_are_what_a_request_that_names_nothing_gets() -> None:
    assert check_defaults({"repetition_penalty": 1.05}) == SamplingParams(repetition_penalty=1.05)


def test_b85_stop_ids_have_a_ceiling_and_leave_a_token() -> None:
    assert len(make(stop_token_ids=[5] * 1024).stop_token_ids) == 1
    assert refused(stop_token_ids=[5] * 1025).param == "stop_token_ids"
    every = list(range(20))
    assert make_sampling_params({"stop_token_ids": every}, defaults={}, vocab_size=20).stop_token_ids == tuple(every)
    with pytest.raises(RequestError, match="every id"):
        make_sampling_params({"stop_token_ids": every, "min_new_tokens": 1}, defaults={}, vocab_size=20)
