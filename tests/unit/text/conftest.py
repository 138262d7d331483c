"""Small tokenizers of each family, made here, so that no model is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import hypothesis
import pytest
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Library

from jackfield.hookspecs.loader import TokenizerFiles
from jackfield.managers.text import decoding_scheme
from jackfield.managers.text.tokenizer import Tokenizer

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("no-deadline", deadline=None)
hypothesis.settings.load_profile("no-deadline")

SPECIAL = {"bos_token": "<|start|>", "eos_token": "<|end|>"}


def byte_level_library() -> Library:
    """All 256 bytes, some merges, two special tokens, an added one that is not special, one with a space and an accent."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: i for i, char in enumerate(alphabet)}
    merges = []
    for left, right in [
        ("a", "b"),
        ("Ġ", "a"),
        ("ð", "Ł"),
        ("ðŁ", "ĺ"),
        ("ï", "¿"),
        ("ï¿", "½"),
        ("t", "h"),
        ("th", "e"),
    ]:
        merges.append((left, right))
        vocab[left + right] = len(vocab)
    library = Library(models.BPE(vocab=vocab, merges=merges))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_tokens([AddedToken("<tool>", special=False), AddedToken("é et", special=False)])
    library.add_special_tokens(list(SPECIAL.values()))
    return library


def fallback_library(strip: bool = True) -> Library:
    """Sentencepiece as Llama 2 has it: metaspace pieces and raw bytes."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁▁", "▁the", "▁a", "a", "b", "é", "the", "\ufffd", "▁b▁"]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    library = Library(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    library.pre_tokenizer = None
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    library.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    library.add_special_tokens(["<s>", "</s>"])
    return library


def metaspace_library(prepend_scheme: str = "always") -> Library:
    library = Library(
        models.Unigram([("<unk>", 0.0), *((piece, -1.0) for piece in ["▁", "▁▁x", "▁the", "a", "▁b", "é"])], 0)
    )
    library.decoder = decoders.Metaspace(prepend_scheme=prepend_scheme)
    library.add_special_tokens(["<s>", "</s>"])
    return library


def word_piece_library() -> Library:
    vocab = {word: i for i, word in enumerate(["[UNK]", "the", "##re", "cat", ".", "##s", "a"])}
    library = Library(models.WordPiece(vocab, unk_token="[UNK]"))
    library.decoder = decoders.WordPiece()
    library.add_special_tokens(["[SEP]"])
    return library


def suffix_library() -> Library:
    vocab = {word: i for i, word in enumerate(["a</w>", "b", "the</w>", "re", "s</w>"])}
    library = Library(models.BPE(vocab=vocab, merges=[]))
    library.decoder = decoders.BPEDecoder()
    library.add_special_tokens(["[SEP]"])
    return library


def no_decoder_library() -> Library:
    library = Library(models.WordLevel({"a": 0, "the": 1, "cat": 2}, unk_token="a"))
    library.add_special_tokens(["[SEP]"])
    return library


def make(library: Library, special: Mapping[str, str] | None = None, **files: Any) -> Tokenizer:
    return Tokenizer.from_files(
        TokenizerFiles(tokenizer_json=library.to_str().encode(), special_tokens=special or {}, **files)
    )


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., Tokenizer]:
    """make_tokenizer(library, special_tokens, add_bos=..., ...)"""
    return make


@pytest.fixture(scope="session")
def libraries() -> dict[str, Library]:
    return {
        "byte_level": byte_level_library(),
        "fallback": fallback_library(),
        "fallback_unstripped": fallback_library(strip=False),
        "metaspace": metaspace_library(),
        "metaspace_never": metaspace_library("never"),
        "word_piece": word_piece_library(),
        "suffix": suffix_library(),
        "no_decoder": no_decoder_library(),
    }


@pytest.fixture(scope="session")
def tokenizers(libraries: dict[str, Library]) -> dict[str, Tokenizer]:
    return {name: make(library) for name, library in libraries.items()}


@pytest.fixture(scope="session")
def byte_level(libraries: dict[str, Library]) -> Tokenizer:
    return make(libraries["byte_level"], SPECIAL)


@pytest.fixture(scope="session")
def byte_ids(byte_level: Tokenizer) -> Callable[[bytes], list[int]]:
    """The ids of the single-byte tokens of some bytes: the finest way in which a text can be cut."""
    chars = {byte: char for char, byte in decoding_scheme._BYTE_OF_CHAR.items()}

    def ids(data: bytes) -> list[int]:
        found = [byte_level.token_to_id(chars[byte]) for byte in data]
        return [token for token in found if token is not None]

    return ids
