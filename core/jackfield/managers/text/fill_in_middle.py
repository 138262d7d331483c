"""Text between a beginning and an end: the prompt of a model that was trained to fill it in.

Knows the markers' order and names, not the route. The order is prefix, suffix, middle, which every model whose vocabulary
has these names was trained on (Qwen Coder, StarCoder, Code Gemma, DeepSeek Coder).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_ROLES = {
    "fim_prefix": "prefix",
    "fim_begin": "prefix",
    "fim_suffix": "suffix",
    "fim_hole": "suffix",
    "fim_middle": "middle",
    "fim_end": "middle",
}
_BRACKETS = re.compile(r"<[|｜]?|[|｜]?>")


@dataclass(frozen=True, kw_only=True)
class Markers:
    """The text of three tokens of the vocabulary."""

    prefix: str
    suffix: str
    middle: str

    def prompt(self, before: str, after: str) -> str:
        """What the model goes on from; its answer stands between the two."""
        return f"{self.prefix}{before}{self.suffix}{after}{self.middle}"


def find_markers(added_texts: Iterable[str]) -> Markers | None:
    """The markers among the texts of a tokenizer's added tokens; None if it has not one for each role."""
    found: dict[str, str] = {}
    for text in sorted(added_texts):
        name = _BRACKETS.sub("", text).lower().replace("-", "_").replace("▁", "_")
        role = _ROLES.get(name)
        if role is not None and found.setdefault(role, text) != text:
            return None  # two families of names: neither is known to be the model's
    return Markers(**found) if len(found) == 3 else None
