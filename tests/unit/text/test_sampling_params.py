"""What a client may send for sampling, and what is refused by name (B06, B62, B63)."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jackfield.config.errors import ConfigurationError
from jackfield.ipc.messages import SamplingParams
from jackfield.managers.errors import RequestError
from jackfield.managers.fields.not_yet import NOT_YET
from jackfield.managers.fields.sampling_params import FIELDS, check_defaults, make_sampling_params

VOCAB = 100


def make(given: dict[str, Any] | None = None, **sent: Any) -> SamplingParams:
    return make_sampling_params(given or sent, defaults={}, vocab_size=VOCAB)


def refused(given: dict[str, Any] | None = None, **sent: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        make(given, **sent)
    assert caught.value.status_code == 400
    assert caught.value.param is not None
    assert caught.value.param in caught.value.message
    return caught.value


def test_nothing_sent_is_the_defaults_of_the_message() -> None:
    assert make() == SamplingParams()


def test_null_is_absent_for_every_field() -> None:
    assert make(dict.fromkeys((*FIELDS, *NOT_YET))) == SamplingParams()


def test_defaults_fill_what_was_left_out_and_no_more() -> None:
    defaults = {"temperature": 0.6, "top_p": 0.9, "top_k": None}
    made = make_sampling_params({"top_p": 0.5, "temperature": None}, defaults=defaults, vocab_size=VOCAB)
    assert (made.temperature, made.top_p, made.top_k) == (0.6, 0.5, 0)


@pytest.mark.parametrize("stop", ["", ["", "X"], ["X", ""]])
def test_b06_an_empty_stop_string_is_refused(stop: Any) -> None:
    assert refused(stop=stop).param == "stop"


@pytest.mark.parametrize("stop", [[], None, ()])
def test_b06_no_stop_strings(stop: Any) -> None:
    assert make(stop=stop).stop == ()


def test_stop_strings_keep_their_order_without_repeats() -> None:
    assert make(stop="X").stop == ("X",)
    assert make(stop=["b", "a", "b"]).stop == ("b", "a")


@pytest.mark.parametrize("stop", [7, [7], True, b"x", {"a": 1}, ["x"] * 33, "x" * 1025, "\ud800", ["a", "\udfff"]])
def test_bad_stop_strings(stop: Any) -> None:
    assert refused(stop=stop).param == "stop"


@pytest.mark.parametrize(
    ("sent", "temperature"), [(0, 0.0), (-0.0, 0.0), (1e-6, 0.0), (1e-5, 1e-5), (1e-4, 1e-4), (2, 2.0), (1e308, 1e308)]
)
def test_b62_temperatures(sent: Any, temperature: float) -> None:
    made = make(temperature=sent).temperature
    assert made == temperature
    assert math.copysign(1, made) == 1


@pytest.mark.parametrize("sent", [-0.1, math.nan, math.inf, -math.inf, "NaN", "0.7", True, [1], 10**400])
def test_b62_bad_temperatures(sent: Any) -> None:
    assert refused(temperature=sent).param == "temperature"


def test_b62_tiny_top_p_is_valid() -> None:
    assert make(top_p=1e-4).top_p == 1e-4


@pytest.mark.parametrize(("sent", "top_k"), [(-1, 0), (0, 0), (1, 1), (99, 99), (100, 0), (10**9, 0), (10**30, 0)])
def test_b63_top_k(sent: int, top_k: int) -> None:
    assert make(top_k=sent).top_k == top_k


@pytest.mark.parametrize(
    "sent",
    [
        {"top_k": -2},
        {"top_k": 1.0},
        {"top_k": True},
        {"top_p": 0},
        {"top_p": 1.1},
        {"top_p": -0.1},
        {"top_p": math.nan},
        {"top_p": "1"},
        {"min_p": 1.1},
        {"min_p": -0.1},
        {"min_p": False},
    ],
    ids=str,
)
def test_b63_out_of_range(sent: dict[str, Any]) -> None:
    assert refused(sent).param == next(iter(sent))


def test_b63_edges_stay_what_they_are() -> None:
    """A falsy 0 is a value: it is never replaced by the default."""
    made = make_sampling_params(
        {"min_p": 0, "top_p": 1, "top_k": 0, "temperature": 0, "max_new_tokens": 0, "seed": 0},
        defaults={"min_p": 0.3, "top_p": 0.5, "top_k": 9, "temperature": 0.6, "max_new_tokens": 7, "seed": 3},
        vocab_size=VOCAB,
    )
    assert made == SamplingParams(min_p=0.0, top_p=1.0, top_k=0, temperature=0.0, max_new_tokens=0, seed=0)
    assert make(min_p=1).min_p == 1.0


@pytest.mark.parametrize("value", [-1, 2**31, 1.0, True, "5", math.nan])
def test_bad_counts(value: Any) -> None:
    assert refused(max_new_tokens=value).param == "max_new_tokens"
    assert refused(stream_interval=value).param == "stream_interval"


def test_stream_interval_of_zero_is_refused() -> None:
    assert refused(stream_interval=0).param == "stream_interval"


@pytest.mark.parametrize("value", [[VOCAB], [-1], [1.0], [True], ["1"], 5, "12", [10**30]])
def test_bad_stop_token_ids(value: Any) -> None:
    assert refused(stop_token_ids=value).param == "stop_token_ids"


def test_stop_token_ids() -> None:
    assert make(stop_token_ids=[99, 0, 99]).stop_token_ids == (99, 0)


def test_seed_and_its_other_name() -> None:
    assert make(seed=-(2**63)).seed == -(2**63)
    assert make(sampling_seed=2**63 - 1).seed == 2**63 - 1
    assert make(seed=5, sampling_seed=5).seed == 5
    assert refused(seed=5, sampling_seed=6).param == "sampling_seed"
    assert refused(sampling_seed=2**63).param == "sampling_seed"
    assert refused(seed=1.5).param == "seed"


@pytest.mark.parametrize("name", ["ignore_eos", "skip_special_tokens", "no_stop_trim", "spaces_between_special_tokens"])
def test_flags_are_true_or_false(name: str) -> None:
    assert make({name: True}) is not None
    bad: list[Any] = [1, 0, "true", []]
    for value in bad:
        assert refused({name: value}).param == name


def test_numbers_of_numpy_are_numbers() -> None:
    made = make(top_k=np.int64(5), temperature=np.float32(0.5), max_new_tokens=np.int32(3))
    assert made == SamplingParams(top_k=5, temperature=0.5, max_new_tokens=3)
    assert type(made.top_k) is int
    msgspec.msgpack.encode(made)


ASKING: dict[str, list[Any]] = {
    "beam_width": [2],
    "num_beams": [4],
    "prompt_logprobs": [0],
    "response_format": [{"type": "json_object"}, {"type": "text", "x": 1}, "text"],
    "tools": [[{"type": "function"}]],
    "tool_choice": ["required", {"type": "function"}],
    "functions": [[{}]],
    "function_call": [{"name": "f"}],
    "custom_logit_processor": ["x", ""],
    "custom_params": [{"a": 1}],
    "watermark": [True],
    "return_hidden_states": [True, "last"],
}
NEUTRAL = {
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_new_tokens": 0,
    "logit_bias": {},
    "stop_regex": [],
    "response_format": {"type": "text"},
    "tools": [],
    "tool_choice": "none",
    "beam_width": 1,
}


def test_every_unsupported_field_is_tried() -> None:
    assert set(ASKING) == set(NOT_YET)


@pytest.mark.parametrize("unknown", ["refuse", "ignore"])
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in ASKING.items() for value in values])
def test_what_is_not_implemented_is_refused_by_name(name: str, value: Any, unknown: Any) -> None:
    with pytest.raises(RequestError) as caught:
        make_sampling_params({name: value}, defaults={}, vocab_size=VOCAB, unknown=unknown)
    assert (caught.value.param, caught.value.status_code) == (name, 400)
    assert name in caught.value.message


def test_neutral_values_of_unsupported_fields_pass() -> None:
    assert make(NEUTRAL) == SamplingParams()


@pytest.mark.parametrize(
    ("name", "meant"), [("temprature", "temperature"), ("max_tokens", "max_new_tokens"), ("topk", "top_k")]
)
def test_unknown_names_are_refused_with_the_nearest(name: str, meant: str) -> None:
    assert repr(meant) in refused({name: 1}).message


def test_a_refusal_is_short_however_long_what_was_sent() -> None:
    """Else a client makes the server send its own megabytes back, and search them for names that are near."""
    long = "k" * 1_000_000
    for sent in ({long: 1}, {"temperature": long}, {"stop": [[long]]}, {"n": long}, {"top_k": {long: 1}}):
        error = refused(sent)
        assert len(error.message) < 400
        assert len(error.param or "") <= 80


def test_unknown_names_can_be_left_to_the_caller() -> None:
    made = make_sampling_params({"model": "m", "top_k": 3}, defaults={}, vocab_size=VOCAB, unknown="ignore")
    assert made == SamplingParams(top_k=3)


@given(
    sent=st.dictionaries(
        st.sampled_from([*FIELDS, *NOT_YET, "other"]),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(max_size=3),
            st.lists(st.integers(), max_size=2),
        ),
        max_size=4,
    )
)
def test_any_values_are_settings_that_can_be_sent_or_one_refusal(sent: dict[str, Any]) -> None:
    refusal: RequestError | None = None
    try:
        made = make(sent)
    except RequestError as error:
        refusal = error
    if refusal is not None:
        assert refusal.param in sent
        return
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=SamplingParams) == made
    assert math.isfinite(made.temperature)
    assert 0 < made.top_p <= 1
    assert 0 <= made.top_k < VOCAB


def test_broken_defaults_stop_the_start_and_not_each_request() -> None:
    check_defaults({"temperature": 0.6, "top_p": 0.9, "top_k": 50})
    with pytest.raises(ConfigurationError, match="default sampling parameters: top_p"):
        check_defaults({"top_p": 7})
