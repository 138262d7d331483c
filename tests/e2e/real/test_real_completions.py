"""Completions and /generate on the embedded model: shapes of streams (B08 B09), usage (B10), nulls and strangers' fields
(B15 B16), empty prompts (B22), order (B28), ids that do not exist (B29), and what is best of several."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from jackfield.entrypoints.http.schemas.openai import Completion
from tests.e2e.http.servers import Server, events

pytestmark = pytest.mark.model

CMP, GEN, CHAT = "/v1/completions", "/generate", "/v1/chat/completions"
PROMPTS = ["The sea is", "1, 2, 3,", "Once upon a time, in a far"]
GREEDY = {"temperature": 0}


def post(server: Server, route: str, **body: Any) -> Any:
    answer = server.post(route, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def stream(server: Server, route: str, **body: Any) -> list[Any]:
    answer = server.post(route, {**body, "stream": True})
    assert answer.status_code == 200, answer.text
    return events(answer)


def refused(server: Server, route: str, **body: Any) -> Any:
    answer = server.post(route, body)
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()["error"]


def ids_of(server: Server, text: str) -> list[int]:
    found: list[int] = post(server, "/tokenize", prompt=text)["tokens"]
    return found


@pytest.mark.parametrize("usage", [False, True])
def test_b08_one_finish_an_index_then_usage_then_the_end(real: Server, usage: bool) -> None:
    found = stream(real, CMP, prompt="The sea", n=3, max_tokens=5, stream_options={"include_usage": usage})
    for chunk in found:
        Completion.model_validate(chunk)
    choices = [choice for chunk in found for choice in chunk["choices"]]
    ends = Counter(choice["index"] for choice in choices if choice["finish_reason"] is not None)
    assert ends == Counter({0: 1, 1: 1, 2: 1})
    for index in range(3):
        assert [choice for choice in choices if choice["index"] == index][-1]["finish_reason"] in ("length", "stop")
    assert [bool(chunk["choices"]) for chunk in found] == [True] * (len(found) - usage) + [False] * usage
    assert (found[-1]["usage"] is not None) is usage


@pytest.mark.parametrize(
    "options", ["absent", None, {}, {"include_usage": False}, {"include_usage": None}, {"include_usage": True}]
)
def test_b09_usage_only_if_it_is_asked_for(real: Server, options: Any) -> None:
    more = {} if options == "absent" else {"stream_options": options}
    found = stream(real, CMP, prompt=PROMPTS[:2], max_tokens=3, **GREEDY, **more)
    asked = options == {"include_usage": True}
    assert [chunk["usage"] is not None for chunk in found] == [False] * (len(found) - 1) + [asked]
    assert bool(found[-1]["choices"]) is not asked


def test_b10_usage_counts_prompts_once_and_answers_all(real: Server) -> None:
    body = {"prompt": PROMPTS[:2], "n": 2, "max_tokens": 6, "ignore_eos": True, **GREEDY}
    whole = post(real, CMP, **body)["usage"]
    assert whole["prompt_tokens"] == sum(len(ids_of(real, prompt)) for prompt in PROMPTS[:2])
    assert whole["completion_tokens"] == 24
    assert whole["total_tokens"] == whole["prompt_tokens"] + 24
    # Asked for again, all of each prompt but its last token is in the cache.
    cached = whole["prompt_tokens"] - 2
    whole = post(real, CMP, **body)["usage"]
    assert whole["prompt_tokens_details"] == {"cached_tokens": cached}
    assert stream(real, CMP, **body, stream_options={"include_usage": True})[-1]["usage"] == whole


def test_continuous_usage_grows_to_the_choices_own(real: Server) -> None:
    asked = {"include_usage": True, "continuous_usage_stats": True}
    found = stream(real, CMP, prompt=PROMPTS[:2], max_tokens=6, ignore_eos=True, **GREEDY, stream_options=asked)
    for chunk in found:
        Completion.model_validate(chunk)
    sizes = [len(ids_of(real, prompt)) for prompt in PROMPTS[:2]]
    for index, size in enumerate(sizes):
        told = [chunk["usage"] for chunk in found if chunk["choices"] and chunk["choices"][0]["index"] == index]
        counts = [usage["completion_tokens"] for usage in told]
        assert counts == sorted(counts)
        assert counts[-1] == 6
        assert {usage["prompt_tokens"] for usage in told} == {size}
        assert all(usage["total_tokens"] == size + usage["completion_tokens"] for usage in told)
    assert found[-1]["usage"]["completion_tokens"] == 12
    quiet = stream(real, CMP, prompt="a", max_tokens=2, **GREEDY, stream_options={"continuous_usage_stats": True})
    assert all(chunk["usage"] is None for chunk in quiet)


def test_b15_b16_nulls_are_absent_and_unknown_fields_ignored(real: Server) -> None:
    plain = post(real, CMP, prompt="The sea is", max_tokens=6, **GREEDY)
    nulls = dict.fromkeys(("top_p", "stop", "n", "seed", "logprobs", "best_of", "suffix", "echo", "stream", "user"))
    assert post(real, CMP, prompt="The sea is", max_tokens=6, **GREEDY, **nulls)["choices"] == plain["choices"]
    strange = {"user": "eve@example.org", "store": True, "metadata": {"a": "b"}, "invented": [1]}
    answer = real.post(CMP, {"prompt": "The sea is", "max_tokens": 6, **GREEDY, **strange})
    assert answer.status_code == 200
    assert answer.json()["choices"] == plain["choices"]
    for text in (answer.text, real.get("/metrics").text, real.log):
        assert "eve@example.org" not in text


@pytest.mark.parametrize("streaming", [False, True])
def test_b22_an_empty_prompt_is_refused_and_harms_nobody(real: Server, streaming: bool) -> None:
    for prompt in ("", [""], [], [[]], [[1], []], ["a", ""]):
        assert refused(real, CMP, prompt=prompt, stream=streaming)["param"] == "prompt"
    for name, prompts in (("text", ("", [], ["a", ""])), ("input_ids", ([], [[]], [[1], []]))):
        for given in prompts:
            assert refused(real, GEN, **{name: given}, stream=streaming)["param"] == name
    real.assert_alive()


def test_b28_choices_are_in_the_order_of_the_prompts(real: Server) -> None:
    ids = [ids_of(real, prompt) for prompt in PROMPTS]
    alone = [choice["text"] for choice in post(real, CMP, prompt=PROMPTS, max_tokens=1, **GREEDY)["choices"]]
    for prompts, streaming, echo in (
        (PROMPTS, False, True),
        (PROMPTS, True, False),
        (ids, False, False),
        (ids, True, True),
    ):
        body = {"prompt": prompts, "n": 2, "max_tokens": 2, "echo": echo, **GREEDY}
        told = dict.fromkeys(range(6), "")
        for answer in stream(real, CMP, **body) if streaming else [post(real, CMP, **body)]:
            for choice in answer["choices"]:
                told[choice["index"]] += choice["text"]
        assert set(told) == set(range(6))
        for index, text in told.items():
            prompt = PROMPTS[index // 2]
            assert text.startswith(prompt) is echo
            assert text.removeprefix(prompt if echo else "").startswith(alone[index // 2])


WRONG_IDS = [49152, 10**18, -1, True, 1.5]


@pytest.mark.parametrize("token", WRONG_IDS)
def test_b29_an_id_that_does_not_exist_is_refused_wherever_it_stands(real: Server, token: Any) -> None:
    bias = {str(token).lower(): 1}
    for route, param, body in (
        (CMP, "prompt", {"prompt": [5, token]}),
        (CMP, "prompt", {"prompt": [[5], [token]]}),
        (GEN, "input_ids", {"input_ids": [5, token]}),
        (CMP, "logit_bias", {"prompt": "a", "logit_bias": bias}),
        (GEN, "logit_bias", {"text": "a", "sampling_params": {"logit_bias": bias}}),
        (CMP, "stop_token_ids", {"prompt": "a", "stop_token_ids": [token]}),
        (CHAT, "stop_token_ids", {"messages": [{"role": "user", "content": "a"}], "stop_token_ids": [token]}),
        (GEN, "token_ids_logprob", {"text": "a", "return_logprob": True, "token_ids_logprob": [token]}),
        ("/detokenize", "tokens", {"tokens": [token]}),
    ):
        assert refused(real, route, **body)["param"] == param
    real.assert_alive()


@pytest.mark.parametrize("streaming", [False, True])
def test_a_prompt_is_scored_as_the_model_scores_it(real: Server, streaming: bool) -> None:
    """echo and max_tokens 0: the values of the prompt's own tokens, the same as /generate tells."""
    body = {"prompt": PROMPTS[2], "echo": True, "max_tokens": 0, "logprobs": 2}
    (choice,) = stream(real, CMP, **body)[0]["choices"] if streaming else post(real, CMP, **body)["choices"]
    native = post(
        real, GEN, text=PROMPTS[2], sampling_params={"max_new_tokens": 0}, return_logprob=True, logprob_start_len=0
    )
    values = [value for value, _, _ in native["meta_info"]["input_token_logprobs"]]
    assert choice["text"] == "".join(choice["logprobs"]["tokens"]) == PROMPTS[2]
    assert values[0] is choice["logprobs"]["token_logprobs"][0] is None
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(values[1:], abs=1e-4)
    assert all(-30 < value < 0 for value in values[1:])


def test_best_of_returns_the_likeliest_answers(real: Server) -> None:
    # A seed names the draws of every answer, so that all of them can be had and compared.
    body = {"prompt": PROMPTS[:2], "max_tokens": 6, "temperature": 1.5, "seed": 11, "ignore_eos": True}
    every = post(real, CMP, **body, n=4, logprobs=0)["choices"]
    means = [sum(choice["logprobs"]["token_logprobs"]) / 6 for choice in every]
    best = post(real, CMP, **body, n=2, best_of=4)
    assert [choice["index"] for choice in best["choices"]] == [0, 1, 2, 3]
    assert [choice["logprobs"] for choice in best["choices"]] == [None] * 4
    for prompt in range(2):
        own = range(4 * prompt, 4 * prompt + 4)
        ranked = sorted(own, key=lambda i: -means[i])
        told = [choice["text"] for choice in best["choices"][2 * prompt : 2 * prompt + 2]]
        assert told == [every[i]["text"] for i in ranked[:2]]
    assert best["usage"]["completion_tokens"] == 48  # what was made, returned or not
    (first,) = post(real, CMP, **{**body, "prompt": PROMPTS[0]}, best_of=4, logprobs=1, echo=True)["choices"]
    assert first["text"] == PROMPTS[0] + best["choices"][0]["text"]
    likeliest = every[max(range(4), key=lambda i: means[i])]["logprobs"]["token_logprobs"]
    # Four rows a step here and eight there: a product's last bits may differ with the rows beside it.
    assert first["logprobs"]["token_logprobs"][-6:] == pytest.approx(likeliest, abs=1e-4)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"best_of": 129}, "best_of"),
        ({"best_of": 0}, "best_of"),
        ({"best_of": "2"}, "best_of"),
        ({"prompt": ["a"] * 600, "best_of": 2}, "best_of"),
        ({"suffix": "b"}, "suffix"),
        ({"suffix": "b", "echo": True}, "echo"),
        ({"suffix": 5}, "suffix"),
    ],
)
def test_what_completions_cannot_do_is_refused_by_name(real: Server, body: dict[str, Any], param: str) -> None:
    assert refused(real, CMP, **{"prompt": "a", **body})["param"] == param
