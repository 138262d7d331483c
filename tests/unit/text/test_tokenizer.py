"""Text to ids and back, without torch and without surprises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tokenizers import Tokenizer as Library
from tokenizers import processors

from jackfield.hookspecs.loader import ModelSourceError, TokenizerFiles
from jackfield.managers.errors import RequestError
from jackfield.managers.text.tokenizer import Tokenizer

Make = Callable[..., Tokenizer]
SPECIAL = {"bos_token": "<|start|>", "eos_token": "<|end|>"}


@pytest.fixture
def library(libraries: dict[str, Library]) -> Library:
    return Library.from_str(libraries["byte_level"].to_str())


def test_round_trip_and_facts(byte_level: Tokenizer, libraries: dict[str, Library]) -> None:
    text = "the ab é 😀 <tool> \ufffd\n"
    assert byte_level.decode(byte_level.encode(text)) == text
    assert byte_level.encode("") == []
    assert byte_level.vocab_size == libraries["byte_level"].get_vocab_size()
    assert byte_level.special_ids == {
        "bos_token": byte_level.token_to_id("<|start|>"),
        "eos_token": byte_level.token_to_id("<|end|>"),
    }
    assert byte_level.bos_token_id == byte_level.special_ids["bos_token"]
    assert byte_level.pad_token_id is None
    assert byte_level.is_special(byte_level.special_ids["eos_token"])
    assert not byte_level.is_special(byte_level.token_to_id("<tool>") or 0)
    assert byte_level.id_to_token(byte_level.special_ids["eos_token"]) == "<|end|>"


@pytest.mark.parametrize("token", [-1, 10**6, 2**40])
def test_ids_outside_the_vocabulary_have_no_text(byte_level: Tokenizer, token: int) -> None:
    a = byte_level.encode("a")
    assert byte_level.id_to_token(token) is None
    assert byte_level.decode([*a, token, *a]) == "aa"
    assert byte_level.incremental_decoder().push(token) == ""


def test_batch_is_each_text_alone(byte_level: Tokenizer) -> None:
    texts = ["the", "", "ab<|end|>", "😀" * 50]
    assert byte_level.encode_batch(texts) == [byte_level.encode(text) for text in texts]
    assert byte_level.encode_batch([]) == []


def test_bos_and_eos_where_the_checkpoint_wants_them_and_never_twice(library: Library, make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer(library, SPECIAL, add_bos=True, add_eos=True)
    bos, eos = tokenizer.special_ids["bos_token"], tokenizer.special_ids["eos_token"]
    plain = tokenizer.encode("the", add_special_tokens=False)
    assert tokenizer.encode("the") == [bos, *plain, eos]
    assert tokenizer.encode("") == [bos, eos]
    assert tokenizer.encode("<|start|>the") == [bos, *plain, eos]
    assert tokenizer.encode_batch(["the", "the"]) == [[bos, *plain, eos]] * 2
    # A chat template writes its own.
    assert tokenizer.encode("<|start|>the", add_special_tokens=False) == [bos, *plain]


def test_bos_of_the_post_processor_is_not_doubled(library: Library, make_tokenizer: Make) -> None:
    library.post_processor = processors.TemplateProcessing(
        single="<|start|> $A", special_tokens=[("<|start|>", library.token_to_id("<|start|>"))]
    )
    for add_bos in (None, True):
        tokenizer = make_tokenizer(library, SPECIAL, add_bos=add_bos)
        plain = tokenizer.encode("the", add_special_tokens=False)
        assert tokenizer.encode("the") == [tokenizer.bos_token_id, *plain]


def test_wanted_bos_that_does_not_exist(library: Library, make_tokenizer: Make) -> None:
    with pytest.raises(ModelSourceError, match="bos_token"):
        make_tokenizer(library, {"bos_token": "<absent>"}, add_bos=True)


def test_text_of_special_tokens_can_be_ordinary_text(byte_level: Tokenizer) -> None:
    text = "a<|end|>b"
    assert byte_level.eos_token_id in byte_level.encode(text)
    ids = byte_level.encode(text, allow_special=False)
    assert not any(byte_level.is_special(token) for token in ids)
    assert byte_level.decode(ids, skip_special_tokens=True) == text
    # The switch does not leak into the usual way.
    assert byte_level.eos_token_id in byte_level.encode(text)


def test_a_role_makes_its_token_special(library: Library, make_tokenizer: Make) -> None:
    tokenizer = make_tokenizer(library, {"eos_token": "<tool>"})
    assert tokenizer.eos_token_id is not None
    assert tokenizer.is_special(tokenizer.eos_token_id)
    assert tokenizer.decode(tokenizer.encode("a<tool>")) == "a"


def test_limits_of_the_training_run_do_not_cut_or_pad_prompts(library: Library, make_tokenizer: Make) -> None:
    library.enable_truncation(2)
    library.enable_padding(length=8)
    tokenizer = make_tokenizer(library)
    assert tokenizer.decode(tokenizer.encode("0123456789")) == "0123456789"


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\xfe", b'{"version": "1.0", "model": {"type": "Unheard"}}'])
def test_unreadable_files(content: bytes) -> None:
    with pytest.raises(ModelSourceError, match=r"tokenizer\.json"):
        Tokenizer.from_files(TokenizerFiles(tokenizer_json=content))


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_half_a_surrogate_pair_is_the_clients_error(byte_level: Tokenizer, text: str) -> None:
    with pytest.raises(RequestError, match="surrogate") as caught:
        byte_level.encode(text, param="messages")
    assert caught.value.param == "messages"


def test_huge_text(byte_level: Tokenizer) -> None:
    text = "the ab 0123 " * 50_000
    assert byte_level.decode(byte_level.encode(text)) == text


def test_threads_share_it(byte_level: Tokenizer) -> None:
    texts = [f"the {i} ab<|end|>" for i in range(200)]
    expected = [(byte_level.encode(text), byte_level.encode(text, allow_special=False)) for text in texts]

    def both(text: str) -> tuple[list[int], list[int]]:
        return byte_level.encode(text), byte_level.encode(text, allow_special=False)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(both, texts)) == expected


def test_text_side_imports_neither_torch_nor_transformers() -> None:
    modules = ["detokenizer_manager", "fields.sampling_params", "template_manager", "text.tokenizer"]
    code = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module("jackfield.managers." + name)
heavy = {{"torch", "transformers"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)
