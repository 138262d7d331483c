"""Tokenizers rebuilt from GGUF files, against the models' own definitions and against sentencepiece."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import sentencepiece
import tokenizers
from tokenizers import pre_tokenizers
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX as QWEN2_REGEX

from jackfield.hookspecs import ModelSourceError, TokenizerFiles
from jackfield_models_loaders.gguf_pretokenizers import PRE_TOKENIZERS
from jackfield_models_loaders.gguf_source import GgufSource

Maker = Callable[..., Path]

CORPUS = [
    "",
    " ",
    "   ",
    "hello world",
    "  two  spaces   three ",
    "12345 6 789.10 x2y ½ Ⅷ ٣٤ ²",
    "I'm you're WE'LL they'd it'S don't",
    "def f(x):\n\treturn x ** 2  # ok\n\n\n",
    "a\r\nb\r\n\r\n c\t\td",
    "😀 👨‍👩‍👧 é e\u0301 ﬁ \ufffd",
    "日本語のテキスト 中文，测试。한국어",
    "Straße naïve Ελληνικά русский עברית العربية हिन्दी",
    "https://example.org/a_b?c=d&e=%20#f <|im_start|>!!??",
    "CamelCaseWords and snake_case ALLCAPS MiXeD",
    "$100+<5>=~^|`",
    "\u00a0nbsp\u3000wide\u200bzero",
]


def pieces(pre: pre_tokenizers.PreTokenizer, text: str) -> list[str]:
    return [piece for piece, _ in pre.pre_tokenize_str(text)]


def ours(name: str) -> pre_tokenizers.PreTokenizer:
    whole = {"model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": [], "version": "1.0"}
    whole["pre_tokenizer"] = PRE_TOKENIZERS[name].pre_tokenizer_json()
    found = tokenizers.Tokenizer.from_str(json.dumps(whole)).pre_tokenizer
    assert isinstance(found, pre_tokenizers.PreTokenizer)
    return found


def split_then_bytes(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


LLAMA3_REGEX = (  # as Llama 3's tokenizer.json has it
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)

OWN_DEFINITIONS = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    # as SmolLM's and StarCoder's tokenizer.json have it
    "smollm": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    ),
    "llama-bpe": split_then_bytes(LLAMA3_REGEX),
    "qwen2": split_then_bytes(QWEN2_REGEX),
}


@pytest.mark.parametrize("name", OWN_DEFINITIONS)
@pytest.mark.parametrize("text", CORPUS)
def test_text_is_cut_as_the_models_own_definition_cuts_it(name: str, text: str) -> None:
    assert pieces(ours(name), text) == pieces(OWN_DEFINITIONS[name], text)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("default", "x+1234 a.b", ["x", "+", "123", "4", "Ġa", ".", "b"]),
        ("tekken", "HelloWorld 12 ABCdef", ["Hello", "World", "Ġ", "1", "2", "ĠABCdef"]),
        ("smollm", "a  20", ["a", "ĠĠ", "2", "0"]),
        ("llama-bpe", "a  2000", ["a", "Ġ", "Ġ", "200", "0"]),
    ],
)
def test_text_is_cut_as_written_by_hand(name: str, text: str, expected: list[str]) -> None:
    assert pieces(ours(name), text) == expected


def files(path: Path) -> TokenizerFiles:
    return GgufSource(path).tokenizer()


def load(found: TokenizerFiles) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(found.tokenizer_json.decode())


def test_ids_are_the_file_s(make_gguf: Maker) -> None:
    found = files(make_gguf())
    tokenizer = load(found)
    assert found.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert (found.add_bos, found.add_eos) == (False, False)
    assert found.chat_template == "{{ messages[0]['content'] }}"
    hello, world = tokenizer.token_to_id("hello"), tokenizer.token_to_id("Ġwo")
    assert (hello, world) == (261, 263)
    r, one, two = (tokenizer.token_to_id(text) for text in "r12")
    assert tokenizer.encode("hello wor").ids == [hello, world, r]
    assert tokenizer.encode("12").ids == [one, two]  # the merge "1 2" exists, but digits stand alone
    assert tokenizer.encode("<s>hello</s>").ids == [0, 261, 1]
    assert tokenizer.encode("").ids == []
    assert tokenizer.encode("<tool>").ids == [266]
    assert tokenizer.decode([0, 261, 266, 1]) == "hello<tool>"
    assert tokenizer.token_to_id("[PAD]") is None  # unused: no text becomes it
    assert 267 not in tokenizer.encode("[PAD]").ids
    added = tokenizer.get_added_tokens_decoder()
    assert {number: token.special for number, token in added.items()} == {0: True, 1: True, 266: False}


def test_the_cut_follows_the_name(make_gguf: Maker) -> None:
    tokenizer = load(files(make_gguf(pre="gpt-2")))
    assert tokenizer.encode("12").tokens == ["12"]


@pytest.mark.parametrize("pre", ["llama-bpe", "tekken"])
def test_rules_that_come_with_a_name(make_gguf: Maker, pre: str) -> None:
    found = files(make_gguf("a.gguf", pre=pre))
    assert found.add_bos is True
    assert json.loads(found.tokenizer_json)["model"]["ignore_merges"] is True
    said = files(make_gguf("b.gguf", pre=pre, metadata=lambda writer: writer.add_add_bos_token(False)))
    assert said.add_bos is False


def test_bos_and_eos_as_the_file_says(make_gguf: Maker) -> None:
    def both(writer: gguf.GGUFWriter) -> None:
        writer.add_add_bos_token(True)
        writer.add_add_eos_token(True)

    found = files(make_gguf(metadata=both))
    assert (found.add_bos, found.add_eos) == (True, True)


def test_named_chat_templates(make_gguf: Maker) -> None:
    def named(writer: gguf.GGUFWriter) -> None:
        writer.add_array("tokenizer.chat_templates", ["tool_use"])
        writer.add_string("tokenizer.chat_template.tool_use", "T")

    assert files(make_gguf(metadata=named)).chat_templates == {"tool_use": "T"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"pre": "no-such-rules"}, "no-such-rules"),
        ({"pre": None}, "does not say how its tokenizer cuts text"),
        ({"tokenizer": False}, "holds no tokenizer"),
        ({"tokenizer": False, "model": "bert"}, "'bert'"),
        ({"tokenizer": False, "tokens": ["a", "b", "a"]}, "'a' twice"),
        ({"tokenizer": False, "tokens": ["a"], "types": [1, 1]}, "1 tokens but 2 token types"),
        ({"tokenizer": False, "tokens": ["a", "b"], "merges": ["a b"]}, "merge 'a b'"),
        ({"tokenizer": False, "tokens": ["a", "b"], "merges": ["ab"]}, "merge 'ab'"),
        ({"tokenizer": False, "tokens": ["a", "b"]}, "lacks tokenizer.ggml.merges"),
        ({"tokenizer": False, "tokens": ["a"], "bos": 5}, "names 5 as bos_token"),
        ({"tokenizer": False, "tokens": ["a", "b", "ab"], "merges": ["a b"], "add_bos": True}, "wants its bos_token"),
        ({"tokenizer": False, "tokens": [f"t{i}" for i in range(300)]}, "300 tokens"),
    ],
)
def test_refusals_name_what_is_wrong(make_gguf: Maker, arguments: dict[str, Any], says: str) -> None:
    special = {
        key: arguments.pop(key) for key in ("model", "tokens", "types", "merges", "bos", "add_bos") if key in arguments
    }

    def add(writer: gguf.GGUFWriter) -> None:
        if special:
            writer.add_tokenizer_model(str(special.get("model", "gpt2")))
            writer.add_tokenizer_pre("gpt-2")
            writer.add_token_list(special.get("tokens", ["a"]))
        if "types" in special:
            writer.add_token_types(special["types"])
        if "merges" in special:
            writer.add_token_merges(special["merges"])
        if "bos" in special:
            writer.add_bos_token_id(special["bos"])
        if "add_bos" in special:
            writer.add_add_bos_token(True)

    path = make_gguf(metadata=add, **arguments)
    with pytest.raises(ModelSourceError) as caught:
        files(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)


@pytest.fixture(scope="module")
def sentences() -> sentencepiece.SentencePieceProcessor:
    """A small sentencepiece BPE model with byte tokens, trained here."""
    words = " ".join(CORPUS * 4 + ["the quick brown fox jumps over the lazy dog and runs away again " * 20])
    target = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words.splitlines() * 3),
        model_writer=target,
        model_type="bpe",
        vocab_size=600,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=target.getvalue())


def spm_metadata(model: sentencepiece.SentencePieceProcessor, prefix: bool) -> Callable[[gguf.GGUFWriter], None]:
    count = model.get_piece_size()

    def kind(token: int) -> int:
        if model.is_unknown(token):
            return 2
        if model.is_control(token):
            return 3
        return 6 if model.is_byte(token) else 1

    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list([model.id_to_piece(token) for token in range(count)])
        writer.add_token_scores([model.get_score(token) for token in range(count)])
        writer.add_token_types([kind(token) for token in range(count)])
        writer.add_bos_token_id(model.bos_id())
        writer.add_eos_token_id(model.eos_id())
        writer.add_unk_token_id(model.unk_id())
        if not prefix:
            writer.add_add_space_prefix(False)

    return add


def test_sentencepiece_ids_and_text_are_sentencepiece_s(
    make_gguf: Maker, sentences: sentencepiece.SentencePieceProcessor
) -> None:
    path = make_gguf(tokenizer=False, vocab=sentences.get_piece_size(), metadata=spm_metadata(sentences, prefix=True))
    found = files(path)
    tokenizer = load(found)
    assert (found.add_bos, found.add_eos) == (True, False)
    assert found.special_tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    more = ["the quick brown fox", "runs  away", "ж unknown ☃ snow", "x" * 50, "the the  the   the"]
    for text in (*CORPUS, *more):
        if "<|" in text:
            continue
        assert tokenizer.encode(text).ids == sentences.encode(text), text
        assert tokenizer.decode(sentences.encode(text)) == sentences.decode(sentences.encode(text)), text
    assert tokenizer.encode("<s>").ids == [sentences.bos_id()]


def test_sentencepiece_without_the_space_in_front(
    make_gguf: Maker, sentences: sentencepiece.SentencePieceProcessor
) -> None:
    path = make_gguf(tokenizer=False, vocab=sentences.get_piece_size(), metadata=spm_metadata(sentences, prefix=False))
    tokenizer = load(files(path))
    with_prefix = sentences.encode("the fox")
    assert tokenizer.encode(" the fox").ids == with_prefix
    assert tokenizer.encode("the fox").ids != with_prefix
    assert tokenizer.decode(tokenizer.encode(" the fox").ids) == " the fox"
