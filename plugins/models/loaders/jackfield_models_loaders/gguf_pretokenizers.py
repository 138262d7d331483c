"""How a byte-level BPE tokenizer cuts text before merging, by the name that GGUF files use (`tokenizer.ggml.pre`).

A GGUF file carries only the name; the rules behind it are llama.cpp's and the models' own. A name that is not here is
refused: a near miss would give wrong ids for some texts only, which nobody would notice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, kw_only=True)
class PreTokenizer:
    """One way of cutting.

    splits          patterns (Oniguruma), each cutting what the one before left: matches and gaps become pieces
    nfc             the text is brought into normal form C first
    ignore_merges   a piece that is a token as it stands is that token, whatever the merges say
    add_bos         what holds when the file does not say
    """

    splits: tuple[str, ...]
    nfc: bool = False
    ignore_merges: bool = False
    add_bos: bool = False
    names: tuple[str, ...] = field(default=())

    def normalizer_json(self) -> dict[str, Any] | None:
        return {"type": "NFC"} if self.nfc else None

    def pre_tokenizer_json(self) -> dict[str, Any]:
        cuts: list[dict[str, Any]] = [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
            for pattern in self.splits
        ]
        to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        return {"type": "Sequence", "pretokenizers": [*cuts, to_bytes]}


_ROWS = (
    PreTokenizer(names=("gpt-2", "phi-2"), splits=(_GPT2,)),
    PreTokenizer(names=("smollm", "starcoder", "refact"), splits=(r"\p{N}", _GPT2)),  # every digit alone
    PreTokenizer(names=("llama-bpe", "llama3", "llama-v3"), splits=(_LLAMA3,), ignore_merges=True, add_bos=True),
    PreTokenizer(names=("smaug-bpe", "dbrx"), splits=(_LLAMA3,)),
    PreTokenizer(names=("qwen2", "deepseek-r1-qwen"), splits=(_QWEN2,), nfc=True),
    PreTokenizer(names=("tekken",), splits=(_TEKKEN,), ignore_merges=True, add_bos=True),
    # what llama.cpp does for files that were converted under the name "default"
    PreTokenizer(
        names=("default",), splits=(r"[\p{P}\$\+<=>\^~\|]+", _GPT2.removesuffix(r"|\s+"), r"\p{N}+", "[0-9][0-9][0-9]")
    ),
)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = MappingProxyType({name: row for row in _ROWS for name in row.names})
"""`tokenizer.ggml.pre` -> how the text is cut."""
