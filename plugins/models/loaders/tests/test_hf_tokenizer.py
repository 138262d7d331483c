"""Tokenizer files of a Hugging Face directory, held against what transformers makes of the same directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from jackfield.hookspecs import ModelSourceError, TokenizerFiles
from jackfield_models_loaders.safetensors_source import SafetensorsSource

TEXTS = ["hello", "<s>he</s>", "a <tool>b", "hello<|extra|>he <pad>", ""]


def byte_level(*, bos_in_file: bool = False) -> tokenizers.Tokenizer:
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {text: number for number, text in enumerate(["<s>", "</s>", *symbols, "he", "ll"])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[("h", "e"), ("l", "l")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    if bos_in_file:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return tokenizer


def write(directory: Path, tokenizer: tokenizers.Tokenizer, settings: dict[str, Any] | None = None) -> None:
    fast: Any = PreTrainedTokenizerFast
    fast = fast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    path = directory / "tokenizer_config.json"
    saved = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    path.write_text(json.dumps({**saved, **(settings or {})}))
    (directory / "config.json").write_text('{"model_type": "llama"}')


def read(directory: Path) -> TokenizerFiles:
    return SafetensorsSource(directory).tokenizer()


def encode(files: TokenizerFiles, text: str) -> list[int]:
    assert (files.add_bos, files.add_eos) == (None, None)
    return list(tokenizers.Tokenizer.from_str(files.tokenizer_json.decode()).encode(text).ids)


EXTRA = {"content": "<|extra|>", "special": True, "normalized": False, "lstrip": False, "rstrip": False}


@pytest.mark.parametrize("bos_in_file", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"add_bos_token": True},
        {"add_bos_token": False},
        {"add_bos_token": True, "add_eos_token": True},
        {"add_eos_token": True},
        {"added_tokens_decoder": {"260": EXTRA}},
        {"added_tokens_decoder": {"0": {"content": "<s>", "special": True}, "260": EXTRA}},
        {"added_tokens_decoder": {"260": {**EXTRA, "special": False}, "261": {**EXTRA, "content": "<tool>"}}},
        {"bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False}},
    ],
    ids=str,
)
def test_ids_are_transformers_ids(tmp_path: Path, settings: dict[str, Any], bos_in_file: bool) -> None:
    write(tmp_path, byte_level(bos_in_file=bos_in_file), settings)
    files = read(tmp_path)
    reference = AutoTokenizer.from_pretrained(tmp_path)
    assert files.special_tokens["bos_token"] == "<s>"
    for text in TEXTS:
        assert encode(files, text) == reference(text)["input_ids"], text
    added = tokenizers.Tokenizer.from_str(files.tokenizer_json.decode()).get_added_tokens_decoder()
    theirs = reference.backend_tokenizer.get_added_tokens_decoder()
    assert {number: (t.content, t.special) for number, t in added.items()} == {
        number: (t.content, t.special) for number, t in theirs.items()
    }


def test_an_untouched_tokenizer_is_given_byte_for_byte(tmp_path: Path) -> None:
    write(tmp_path, byte_level(bos_in_file=True))
    files = read(tmp_path)
    assert files.tokenizer_json == (tmp_path / "tokenizer.json").read_bytes()


def test_added_tokens_of_the_old_file(tmp_path: Path) -> None:
    write(tmp_path, byte_level())
    (tmp_path / "added_tokens.json").write_text('{"<|extra|>": 260}')
    assert 260 in encode(read(tmp_path), "a<|extra|>b")


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("tokenizer_config.json", {"added_tokens_decoder": {"300": EXTRA}}, "by tokenizer.json it would get 260"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"5": {"content": "he"}}}, "would get 258"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": EXTRA}}, "malformed entry 'x'"),
        ("tokenizer_config.json", {"added_tokens_decoder": [1]}, "not an object"),
        ("tokenizer_config.json", [1], "not an object"),
        ("tokenizer_config.json", {"chat_template": [{"name": "default"}]}, "chat_template"),
        ("added_tokens.json", {"<|extra|>": "260"}, "not a number"),
        ("tokenizer.json", [1], "not an object"),
        ("tokenizer.json", None, "not valid JSON"),
        ("chat_template.json", None, "not valid JSON"),
    ],
)
def test_malformed_files_are_named(tmp_path: Path, file: str, content: Any, says: str) -> None:
    write(tmp_path, byte_level())
    (tmp_path / file).write_text("{" if content is None else json.dumps(content))
    with pytest.raises(ModelSourceError) as caught:
        read(tmp_path)
    assert says in str(caught.value)
    assert str(tmp_path / file) in str(caught.value)


def test_b76_c_the_template_within_the_settings(tmp_path: Path) -> None:
    write(tmp_path, byte_level(), {"chat_template": "OLD"})
    assert (read(tmp_path).chat_template, read(tmp_path).chat_templates) == ("OLD", {})
    listed = [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]
    write(tmp_path, byte_level(), {"chat_template": listed})
    assert (read(tmp_path).chat_template, read(tmp_path).chat_templates) == ("D", {"tool_use": "T"})


def test_b76_f_no_template_is_no_error(tmp_path: Path) -> None:
    write(tmp_path, byte_level())
    assert read(tmp_path).chat_template is None


def test_the_newer_place_of_a_template_wins(tmp_path: Path) -> None:
    write(tmp_path, byte_level(), {"chat_template": [{"name": "rag", "template": "R"}]})
    (tmp_path / "chat_template.json").write_text('{"chat_template": "JSON"}')
    assert read(tmp_path).chat_template == "JSON"
    (tmp_path / "chat_template.jinja").write_text("JINJA ä", encoding="utf-8")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("T")
    files = read(tmp_path)
    assert files.chat_template == "JINJA ä"
    assert files.chat_templates == {"rag": "R", "tool_use": "T"}


def test_special_tokens_map_fills_gaps(tmp_path: Path) -> None:
    write(tmp_path, byte_level())
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": null, "eos_token": "</s>"}')
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<s>", "pad_token": {"content": "<pad>"}}')
    assert read(tmp_path).special_tokens == {"eos_token": "</s>", "pad_token": "<pad>"}


def test_no_tokenizer_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match="--skip-tokenizer-init") as caught:
        read(tmp_path)
    assert str(tmp_path / "tokenizer.json") in str(caught.value)
    (tmp_path / "tokenizer.model").write_bytes(b"")
    with pytest.raises(ModelSourceError, match=r"tokenizer\.model: convert it"):
        read(tmp_path)
