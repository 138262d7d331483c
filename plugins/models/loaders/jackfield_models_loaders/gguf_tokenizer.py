"""Builds the `tokenizer.json` of the model in a GGUF file. Knows the tokenizer models, not the way text is cut."""

from __future__ import annotations

import json
from typing import Any

from jackfield.hookspecs import TokenizerFiles
from jackfield_models_loaders.gguf_metadata import Metadata
from jackfield_models_loaders.gguf_pretokenizers import PRE_TOKENIZERS
from jackfield_models_loaders.gguf_vocabulary import NORMAL, Vocabulary, read_vocabulary, special_tokens

SPACE = "▁"
"""What sentencepiece writes for a space."""


def make_tokenizer(metadata: Metadata, vocab_size: int) -> TokenizerFiles:
    """vocab_size: rows of the embedding table. Raises ModelSourceError for a tokenizer that cannot be built exactly."""
    kind = metadata.text("tokenizer.ggml.model")
    vocabulary = read_vocabulary(metadata)
    if len(vocabulary.tokens) > vocab_size:
        metadata.fail(f"has {len(vocabulary.tokens)} tokens but embeddings for {vocab_size}; convert the model again")
    special = special_tokens(metadata, vocabulary)
    if kind == "gpt2":
        parts, add_bos = _byte_level(metadata, vocabulary)
    elif kind == "llama":
        parts, add_bos = _sentencepiece(metadata, vocabulary, special.get("unk_token"))
    else:
        metadata.fail(
            f"has a tokenizer of the model {kind!r}; supported are 'gpt2' (byte-level BPE) and 'llama' "
            "(sentencepiece BPE). Use the model's safetensors checkpoint, which carries its own tokenizer.json"
        )
    said = metadata.flag("tokenizer.ggml.add_bos_token")
    add_bos = add_bos if said is None else said
    add_eos = metadata.flag("tokenizer.ggml.add_eos_token") or False
    for wanted, role in ((add_bos, "bos_token"), (add_eos, "eos_token")):
        if wanted and role not in special:
            metadata.fail(f"wants its {role} added to every text, but names none; convert the model again")
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": vocabulary.added_tokens_json(),
        "post_processor": None,
        **parts,
    }
    template, named = chat_templates(metadata)
    return TokenizerFiles(
        tokenizer_json=json.dumps(whole, ensure_ascii=False).encode(),
        special_tokens=special,
        chat_template=template,
        chat_templates=named,
        add_bos=add_bos,
        add_eos=add_eos,
    )


def _bpe(vocabulary: Vocabulary, merges: list[list[str]], **settings: Any) -> dict[str, Any]:
    defaults = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    }
    return {**defaults, **settings, "vocab": vocabulary.ids, "merges": merges}


def _byte_level(metadata: Metadata, vocabulary: Vocabulary) -> tuple[dict[str, Any], bool]:
    name = metadata.text("tokenizer.ggml.pre")
    row = PRE_TOKENIZERS.get(name or "")
    if row is None:
        said = "does not say how its tokenizer cuts text" if name is None else f"cuts text by the rules named {name!r}"
        metadata.fail(
            f"{said} (tokenizer.ggml.pre); known are {', '.join(PRE_TOKENIZERS)}. "
            "Use the model's safetensors checkpoint, which carries its own tokenizer.json"
        )
    texts = metadata.texts("tokenizer.ggml.merges")
    if texts is None:
        metadata.fail("lacks tokenizer.ggml.merges; convert the model again")
    ids = vocabulary.ids
    merges = []
    for text in texts:
        left, space, right = text.partition(" ")
        if not space or left not in ids or right not in ids or left + right not in ids:
            metadata.fail(f"has the merge {text!r}, whose parts or result are no tokens; fetch the file again")
        merges.append([left, right])
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    parts = {
        "normalizer": row.normalizer_json(),
        "pre_tokenizer": row.pre_tokenizer_json(),
        "decoder": level,
        "model": _bpe(vocabulary, merges, ignore_merges=row.ignore_merges),
    }
    return parts, row.add_bos


def _sentencepiece(metadata: Metadata, vocabulary: Vocabulary, unknown: str | None) -> tuple[dict[str, Any], bool]:
    """Sentencepiece BPE as llama.cpp runs it: a space before every run of text (also behind a special token), the pair
    whose union scores best is merged first, what is no token becomes bytes."""
    scores = metadata.numbers("tokenizer.ggml.scores")
    if scores is None or len(scores) != len(vocabulary.tokens):
        metadata.fail("does not have one score (tokenizer.ggml.scores) for each token; fetch the file again")
    prefix = metadata.flag("tokenizer.ggml.add_space_prefix")
    prefix = True if prefix is None else prefix
    bytes_known = all(f"<0x{byte:02X}>" in vocabulary.ids for byte in range(256))
    if not bytes_known and unknown is None:
        metadata.fail("has a tokenizer with neither byte tokens nor an unknown token; convert the model again")
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    decode: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decode.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    parts = {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [*([{"type": "Prepend", "prepend": SPACE}] if prefix else []), replace],
        },
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decode},
        "model": _bpe(
            vocabulary,
            _merges_by_score(vocabulary, scores),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=bytes_known,
        ),
    }
    return parts, True


def _merges_by_score(vocabulary: Vocabulary, scores: list[float]) -> list[list[str]]:
    """Every way to put a normal token together from two others, the best-scored result first."""
    normal = {text: token for text, token in vocabulary.ids.items() if vocabulary.types[token] == NORMAL}
    found = [
        (-scores[token], token, text[:cut], text[cut:])
        for text, token in normal.items()
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    ]
    found.sort(key=lambda merge: (merge[0], merge[1], len(merge[2])))
    return [[left, right] for _, _, left, right in found]


def chat_templates(metadata: Metadata) -> tuple[str | None, dict[str, str]]:
    named = {}
    for name in metadata.texts("tokenizer.chat_templates") or ():
        source = metadata.text(f"tokenizer.chat_template.{name}")
        if source is not None:
            named[name] = source
    return metadata.text("tokenizer.chat_template"), named
