"""Log-probabilities over HTTP: the shapes of the three routes, stream and not, and that ids, values and token strings keep
equal length whatever is held back, coalesced or trimmed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.http.servers import SIMULATED, Server, script, serving

# Emoji are several tokens each, none of which is a character; END stops in the middle of a token.
TEXT = "Counting: 1, 2, 3. Then 😀 and 😀😀, all done! ENDLESS"
CHAT, CMP, GEN = "/v1/chat/completions", "/v1/completions", "/generate"
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*SIMULATED, *script(TEXT), "--max-total-tokens", "20000") as up:
        yield up


def post(server: Server, path: str, **body: Any) -> dict[str, Any]:
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def events(server: Server, path: str, **body: Any) -> list[dict[str, Any]]:
    answer = server.post(path, {**body, "stream": True})
    assert answer.status_code == 200, answer.text
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_chat_names_each_token_with_its_likeliest(server: Server) -> None:
    answer = post(server, CHAT, messages=HELLO, logprobs=True, top_logprobs=3, max_tokens=100)
    (choice,) = answer["choices"]
    content = choice["logprobs"]["content"]
    assert len(content) == answer["usage"]["completion_tokens"]
    told = b"".join(bytes(token["bytes"]) for token in content[:-1])  # the last one is the end token
    assert told.decode() == choice["message"]["content"] == TEXT
    assert any(token["token"] == "\ufffd" for token in content)
    for token in content:
        assert len(token["top_logprobs"]) == 3
        first = token["top_logprobs"][0]
        assert (first["token"], first["logprob"], first["bytes"]) == (token["token"], token["logprob"], token["bytes"])
        values = [top["logprob"] for top in token["top_logprobs"]]
        assert values == sorted(values, reverse=True)
        assert -30 < values[-1] < values[0] < 0
    assert len({json.dumps(token["top_logprobs"]) for token in content}) > len(content) // 2


@pytest.fixture(scope="module")
def coalescing() -> Iterator[Server]:
    settings = ("--preferred-sampling-params", '{"stream_interval": 3}')
    with serving(*SIMULATED, *script(TEXT), "--max-total-tokens", "20000", *settings) as up:
        yield up


@pytest.mark.parametrize("which", ["server", "coalescing"])
def test_b24_a_chat_stream_tells_the_same_with_its_texts(which: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(which)
    body = {"messages": HELLO, "logprobs": True, "top_logprobs": 2, "max_tokens": 100}
    whole = post(server, CHAT, **body)["choices"][0]
    parts = [event["choices"][0] for event in events(server, CHAT, **body) if event["choices"]]
    content = [token for part in parts if part["logprobs"] for token in part["logprobs"]["content"]]
    assert content == whole["logprobs"]["content"]
    assert "".join(part["delta"].get("content", "") for part in parts) == TEXT
    for part in parts:
        if part["delta"].get("content"):
            assert part["logprobs"]["content"], "a text without its tokens"
    if which == "coalescing":
        assert sum(part["logprobs"] is not None for part in parts) <= len(content) // 3 + 2


@pytest.mark.parametrize("no_stop_trim", [False, True])
def test_b27_a_stop_inside_a_token_cuts_text_and_keeps_lengths_equal(server: Server, no_stop_trim: bool) -> None:
    ask: dict[str, Any] = {"stop": "Then 😀 a", "max_tokens": 100, "no_stop_trim": no_stop_trim}
    answer = post(server, CHAT, messages=HELLO, logprobs=True, **ask)
    content = answer["choices"][0]["logprobs"]["content"]
    assert answer["choices"][0]["message"]["content"] == TEXT[: TEXT.index("Then") + (8 if no_stop_trim else 0)]
    assert len(content) == answer["usage"]["completion_tokens"]
    streamed = [
        token
        for event in events(server, CHAT, messages=HELLO, logprobs=True, **ask)
        if event["choices"] and event["choices"][0]["logprobs"]
        for token in event["choices"][0]["logprobs"]["content"]
    ]
    assert streamed == content
    sampling = {"stop": ask["stop"], "max_new_tokens": 100, "no_stop_trim": no_stop_trim}
    native = post(server, GEN, text="hello", sampling_params=sampling, return_logprob=True)
    assert [entry[1] for entry in native["meta_info"]["output_token_logprobs"]] == native["output_ids"]
    told = b"".join(bytes(token["bytes"]) for token in content).decode()
    assert told.startswith(TEXT[: TEXT.index("Then") + 8])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("echo", [False, True])
def test_completions_tell_the_legacy_shape(server: Server, echo: bool, stream: bool) -> None:
    body: dict[str, Any] = {"prompt": "Say 😀 it:", "logprobs": 2, "max_tokens": 100, "echo": echo}
    if stream:
        parts = [event["choices"][0] for event in events(server, CMP, **body)]
        text = "".join(part["text"] for part in parts)
        told = {
            name: [value for part in parts for value in part["logprobs"][name]]
            for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        }
    else:
        (choice,) = post(server, CMP, **body)["choices"]
        text, told = choice["text"], choice["logprobs"]
    assert text == ("Say 😀 it:" if echo else "") + TEXT
    assert len({len(column) for column in told.values()}) == 1
    for i, (name, value, top, offset) in enumerate(
        zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], told["text_offset"], strict=True)
    ):
        if echo and i == 0:
            assert value is top is None
            assert offset == 0
            continue
        assert top[name] == value == max(top.values())
        assert len(top) == 2
        if i < len(told["tokens"]) - 1 and not name.startswith("bytes:"):
            assert text[offset:].startswith(name)
    assert any(name.startswith("bytes:\\x") for name in told["tokens"])


def test_several_prompts_echo_their_own(server: Server) -> None:
    answer = post(server, CMP, prompt=["one", "two three"], n=2, echo=True, logprobs=0, max_tokens=2)
    for choice in answer["choices"]:
        prompt = ["one", "two three"][choice["index"] // 2]
        assert choice["text"].startswith(prompt)
        assert "".join(choice["logprobs"]["tokens"]).startswith(prompt)
        assert choice["logprobs"]["top_logprobs"] is None
        assert choice["logprobs"]["token_logprobs"][0] is None
        assert None not in choice["logprobs"]["token_logprobs"][1:]


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_is_scored_without_an_answer(server: Server, stream: bool) -> None:
    body = {"prompt": "score this text", "echo": True, "max_tokens": 0, "logprobs": 1}
    if stream:
        (choice,) = [event["choices"][0] for event in events(server, CMP, **body)]
    else:
        (choice,) = post(server, CMP, **body)["choices"]
    assert choice["text"] == "".join(choice["logprobs"]["tokens"]) == "score this text"
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert all(value < 0 for value in choice["logprobs"]["token_logprobs"][1:])
    assert server.post(CMP, {"prompt": "a", "max_tokens": 0}).status_code == 400


def test_native_texts_and_the_whole_prompt(server: Server) -> None:
    answer = post(
        server,
        GEN,
        text="Say it:",
        sampling_params={"max_new_tokens": 5},
        return_logprob=True,
        logprob_start_len=0,
        top_logprobs_num=1,
        token_ids_logprob=[3, 4],
        return_text_in_logprobs=True,
    )
    meta = answer["meta_info"]
    assert "".join(entry[2] for entry in meta["input_token_logprobs"]) == "Say it:"
    assert meta["input_token_logprobs"][0][0] is None
    assert meta["input_top_logprobs"][0] is None
    assert "".join(entry[2] for entry in meta["output_token_logprobs"]) == answer["text"]
    assert [[row[1] for row in rows] for rows in meta["output_token_ids_logprobs"]] == [[3, 4]] * 5
    assert [rows[0] for rows in meta["output_top_logprobs"]] == meta["output_token_logprobs"]


def test_the_openai_client_reads_them(server: Server) -> None:
    from openai import OpenAI

    client: Any = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    chat = client.chat.completions.create(
        model=client.models.list().data[0].id, messages=HELLO, logprobs=True, top_logprobs=2, max_tokens=4
    )
    content = chat.choices[0].logprobs.content
    assert len(content) == 4
    assert content[0].top_logprobs[0].token == content[0].token
    legacy = client.completions.create(model=chat.model, prompt="a", logprobs=1, max_tokens=3).choices[0].logprobs
    assert len(legacy.tokens) == len(legacy.token_logprobs) == len(legacy.top_logprobs) == 3
