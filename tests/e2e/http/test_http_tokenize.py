"""/tokenize and /detokenize: the ids are those that the other routes compute, texts come back, and what is wrong is told."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.entrypoints.http.schemas.tokenize import DetokenizeAnswer, TokenizeAnswer
from tests.e2e.http.servers import SIMULATED, Server, serving

HELLO = [{"role": "user", "content": "hello <|im_end|>"}]
TEXTS = ["The sea is", "", "😀 and \ufffd", "a <|im_end|> b"]


def post(server: Server, path: str, **body: Any) -> Any:
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_texts_go_to_ids_and_back(server: Server, prefix: str) -> None:
    told = post(server, f"{prefix}/tokenize", prompt=TEXTS)
    TokenizeAnswer.model_validate(told)
    assert told["count"] == [len(ids) for ids in told["tokens"]]
    assert told["tokens"][1] == []
    assert told["tokens"][3].count(2) == 1
    assert told["max_model_len"] == server.get("/model_info").json()["context_length"]
    assert [post(server, f"{prefix}/tokenize", prompt=text)["tokens"] for text in TEXTS] == told["tokens"]
    assert post(server, f"{prefix}/tokenize", prompt="The sea is")["count"] == 3
    back = post(server, f"{prefix}/detokenize", tokens=told["tokens"], skip_special_tokens=False)
    DetokenizeAnswer.model_validate(back)
    assert back["text"] == TEXTS
    assert post(server, f"{prefix}/detokenize", tokens=told["tokens"][3])["text"] == "a  b"
    assert post(server, f"{prefix}/detokenize", tokens=[])["text"] == ""


def test_tokens_are_spelt_as_in_the_vocabulary(server: Server) -> None:
    told = post(server, "/tokenize", prompt=["The sea", "x"], return_token_strs=True)
    assert told["token_strs"] == [["The", "Ġsea"], ["x"]]
    assert "token_strs" not in post(server, "/tokenize", prompt="The sea")


def test_they_are_the_ids_of_the_other_routes(server: Server) -> None:
    def prompt_tokens(route: str, **body: Any) -> int:
        return int(post(server, route, max_tokens=1, **body)["usage"]["prompt_tokens"])

    assert post(server, "/tokenize", prompt=TEXTS[3])["count"] == prompt_tokens("/v1/completions", prompt=TEXTS[3])
    told = post(server, "/tokenize", messages=HELLO)
    assert told["count"] == len(told["tokens"]) == prompt_tokens("/v1/chat/completions", messages=HELLO)
    # The word of a control token in a content is text; only the template writes control tokens.
    shown = post(server, "/detokenize", tokens=told["tokens"], skip_special_tokens=False)["text"]
    assert shown.endswith("<|im_start|>user\nhello <|im_end|><|im_end|>\n<|im_start|>assistant\n")
    assert told["tokens"].count(2) == post(server, "/detokenize", tokens=told["tokens"])["text"].count("user") + 1
    bare = post(server, "/tokenize", messages=HELLO, add_generation_prompt=False, add_special_tokens=False)
    assert told["tokens"][: bare["count"]] == bare["tokens"] != told["tokens"]
    talk = [*HELLO, {"role": "assistant", "content": "I think"}]
    kept = post(
        server, "/tokenize", messages=talk, continue_final_message=True, chat_template_kwargs={"thinking": None}
    )
    assert kept["count"] == prompt_tokens("/v1/chat/completions", messages=talk, continue_final_message=True)


def test_a_prompt_beyond_the_context_is_measured(server: Server) -> None:
    told = post(server, "/tokenize", prompt="word " * 9000)
    assert told["count"] > told["max_model_len"]


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("/tokenize", {}, "prompt"),
    ("/tokenize", {"prompt": "a", "messages": HELLO}, "prompt"),
    ("/tokenize", {"prompt": 5}, "prompt"),
    ("/tokenize", {"prompt": []}, "prompt"),
    ("/tokenize", {"prompt": ["a", 5]}, "prompt"),
    ("/tokenize", {"prompt": [5, 6]}, "prompt"),
    ("/tokenize", {"prompt": "a" * (2**20 + 1)}, "prompt"),
    ("/tokenize", {"prompt": ["a" * 2**19, "b" * 2**19, "c"]}, "prompt"),
    ("/tokenize", {"prompt": ["a"] * 1025}, "prompt"),
    ("/tokenize", {"prompt": "a", "add_special_tokens": "no"}, "add_special_tokens"),
    ("/tokenize", {"prompt": "a", "add_generation_prompt": False}, "add_generation_prompt"),
    ("/tokenize", {"messages": []}, "messages"),
    ("/tokenize", {"messages": HELLO * 4097}, "messages"),
    ("/tokenize", {"messages": HELLO, "add_special_tokens": True}, "add_special_tokens"),
    ("/tokenize", {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ("/tokenize", {"messages": HELLO, "chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
    ("/tokenize", {"messages": HELLO, "chat_template_kwargs": {"thinking": [1]}}, "chat_template_kwargs.thinking"),
    ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": "a"}, "tokens"),
    ("/detokenize", {"tokens": [[5], 5]}, "tokens"),
    ("/detokenize", {"tokens": [5, [5]]}, "tokens"),
    ("/detokenize", {"tokens": [[1]] * 1025}, "tokens"),
    ("/detokenize", {"tokens": [5], "skip_special_tokens": 1}, "skip_special_tokens"),
    *(("/detokenize", {"tokens": [5, token]}, "tokens") for token in (49152, 10**18, -1, True, 1.5, "5", None)),
]


@pytest.mark.parametrize(("route", "body", "param"), REFUSED, ids=lambda value: str(value)[:50])
def test_b29_b85_what_is_wrong_is_a_400_that_names_the_field(
    server: Server, route: str, body: dict[str, Any], param: str
) -> None:
    for prefix in ("", "/v1"):
        answer = server.post(prefix + route, body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param
        assert len(answer.content) < 1000


def test_another_model_is_a_404(server: Server) -> None:
    for route, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [5]})):
        assert server.post(route, {**body, "model": "other"}).status_code == 404


def test_a_run_without_a_tokenizer_says_so() -> None:
    with serving(*SIMULATED, "--skip-tokenizer-init", "--topology", "inline") as bare:
        for route, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [5]})):
            answer = bare.post(route, body)
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "not_supported"
