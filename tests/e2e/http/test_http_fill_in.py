"""`suffix` of completions on a model whose tokenizer has fill-in-the-middle tokens."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from tests.e2e.http.servers import SIMULATED, Server, serving

CMP = "/v1/completions"
PREFIX, SUFFIX, MIDDLE = 120, 121, 122


@pytest.fixture(scope="module")
def coder(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model of 128 words, three of which are the markers; as in Qwen's files they are added tokens and not special ones."""
    folder = tmp_path_factory.mktemp("coder") / "model"
    shutil.copytree(tiny_model, folder)
    names = {PREFIX: "<|fim_prefix|>", SUFFIX: "<|fim_suffix|>", MIDDLE: "<|fim_middle|>"}
    words = Tokenizer(models.WordLevel({names.get(i, f"w{i}"): i for i in range(128)}, unk_token="w2"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.add_tokens([AddedToken(name, special=False, normalized=False) for name in names.values()])
    words.save(str(folder / "tokenizer.json"))
    with serving(*SIMULATED, "--model-path", str(folder), "--topology", "inline") as up:
        yield up


def ask(server: Server, prompt: Any, **more: Any) -> list[tuple[str, int]]:
    """Text of each choice, and the prompt tokens of all."""
    answer = server.post(CMP, {"prompt": prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": True, **more})
    assert answer.status_code == 200, answer.text
    told = answer.json()
    return [(choice["text"], told["usage"]["prompt_tokens"]) for choice in told["choices"]]


def test_the_answer_stands_between_two_texts(coder: Server) -> None:
    wanted = [PREFIX, 10, 11, SUFFIX, 30, 31, MIDDLE]
    expected = ask(coder, wanted)
    assert ask(coder, "w10 w11", suffix="w30 w31") == expected
    assert ask(coder, ["w10 w11"], suffix="w30 w31") == expected
    assert ask(coder, [10, 11], suffix="w30 w31") == expected
    assert ask(coder, [[10, 11]], suffix="w30 w31") == expected
    # The simulated model's answer depends on all of its prompt, so another order or a lost end would show.
    assert ask(coder, "w10 w11") != expected
    assert ask(coder, "w10 w11", suffix="") == ask(coder, "w10 w11")
    assert ask(coder, "", suffix="w30 w31") == ask(coder, [PREFIX, SUFFIX, 30, 31, MIDDLE])
    several = ask(coder, ["w10 w11", "w12"], suffix="w30")
    assert [text for text, _ in several] == [
        ask(coder, [PREFIX, *ids, SUFFIX, 30, MIDDLE])[0][0] for ids in ([10, 11], [12])
    ]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "w1", "suffix": "w2", "echo": True}, "echo"),
        ({"prompt": ["w1", 5], "suffix": "w2"}, "prompt"),
        ({"prompt": [], "suffix": "w2"}, "prompt"),
        ({"prompt": [[1], 5], "suffix": "w2"}, "prompt"),
        ({"prompt": "w1", "suffix": "w2 " * 600}, "prompt"),
    ],
)
def test_what_is_wrong_is_told(coder: Server, body: dict[str, Any], param: str) -> None:
    refused = coder.post(CMP, body)
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["param"] == param
