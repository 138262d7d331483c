"""Tiny random encoders on disk: weights by transformers, a tokenizer of letters, and sentence-transformers' files beside them.

Needs the package transformers, which is imported when a model is made.
"""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

SPECIAL = {"bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]"), "roberta": ("<s>", "<pad>", "</s>", "<unk>")}
WORDS = ("the", "sea", "sky", "is", "calm", "blue", "green", "two", "birds", "fly")
LETTERS = string.ascii_lowercase
TINY: Mapping[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
}


def write_encoder(
    folder: Path,
    architecture: str = "BertModel",
    *,
    pooling: Mapping[str, bool] | None = None,
    modules: Sequence[str] = ("Transformer", "Pooling", "Normalize"),
    max_seq_length: int | None = None,
    seed: int = 0,
    scale: float = 0.3,
    **entries: Any,
) -> Any:
    """transformers' model, which is saved into `folder`. pooling: flags of the pooling's config.json; None: none of
    sentence-transformers' files. entries: of config.json, over `TINY`."""
    import transformers

    family = "bert" if architecture.startswith("Bert") else "roberta"
    vocabulary = vocabulary_of(family)
    model_class = getattr(transformers, architecture)
    padding = vocabulary["[PAD]" if family == "bert" else "<pad>"]
    config = model_class.config_class(**{**TINY, "vocab_size": len(vocabulary), "pad_token_id": padding, **entries})
    torch.manual_seed(seed)
    model = model_class._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Larger than the usual start, so that attention is not flat and a wrong position shows.
            parameter.copy_(torch.randn_like(parameter) * scale + (1.0 if name.endswith("LayerNorm.weight") else 0.0))
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_document(family, vocabulary)))
    names = SPECIAL[family]
    roles = (
        ("pad_token", "unk_token", "cls_token", "sep_token")
        if family == "bert"
        else ("cls_token", "pad_token", "sep_token", "unk_token")
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(zip(roles, names, strict=True))))
    if pooling is not None:
        kinds = {"Transformer": "", "Pooling": "1_Pooling"}
        listed = [
            {
                "idx": i,
                "name": str(i),
                "path": kinds.get(kind, f"{i}_{kind}"),
                "type": f"sentence_transformers.models.{kind}",
            }
            for i, kind in enumerate(modules)
        ]
        (folder / "modules.json").write_text(json.dumps(listed))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **pooling}))
        settings = {"max_seq_length": max_seq_length, "do_lower_case": False}
        (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    return model


def vocabulary_of(family: str) -> dict[str, int]:
    tokens = [*SPECIAL[family], *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS), ".", "?"]
    return {token: number for number, token in enumerate(tokens)}


def tokenizer_document(family: str, vocabulary: Mapping[str, int]) -> dict[str, Any]:
    """A tokenizer.json: words, else their letters; as real ones do, it asks to cut at 8 tokens and to pad, which a server
    never does."""
    first, last = ("[CLS]", "[SEP]") if family == "bert" else ("<s>", "</s>")
    unknown = "[UNK]" if family == "bert" else "<unk>"
    begin, end = {"SpecialToken": {"id": first, "type_id": 0}}, {"SpecialToken": {"id": last, "type_id": 0}}
    second = 1 if family == "bert" else 0
    middle = [] if family == "bert" else [end]
    pair = [
        *(begin, {"Sequence": {"id": "A", "type_id": 0}}, end, *middle),
        *({"Sequence": {"id": "B", "type_id": second}}, {"SpecialToken": {"id": last, "type_id": second}}),
    ]
    return {
        "version": "1.0",
        "truncation": {"max_length": 8, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {
            "strategy": {"Fixed": 8},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": SPECIAL[family][0],
        },
        "added_tokens": [
            {
                "id": vocabulary[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in SPECIAL[family]
        ],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, {"Sequence": {"id": "A", "type_id": 0}}, end],
            "pair": pair,
            "special_tokens": {
                token: {"id": token, "ids": [vocabulary[token]], "tokens": [token]} for token in (first, last)
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": dict(vocabulary),
        },
    }


def hidden_states(reference: Any, ids: Sequence[int], types: Sequence[int] | None = None) -> torch.Tensor:
    """transformers' last hidden states of one text, float32 [n, hidden]."""
    base = getattr(reference, reference.base_model_prefix, reference)
    given = {} if types is None else {"token_type_ids": torch.tensor([list(types)])}
    with torch.inference_mode():
        found: torch.Tensor = base(torch.tensor([list(ids)]), **given).last_hidden_state[0].float()
    return found


def label_logits(reference: Any, ids: Sequence[int], types: Sequence[int] | None = None) -> torch.Tensor:
    """transformers' logits of one text or pair, float32 [labels]."""
    given = {} if types is None else {"token_type_ids": torch.tensor([list(types)])}
    with torch.inference_mode():
        found: torch.Tensor = reference(torch.tensor([list(ids)]), **given).logits[0].float()
    return found
