"""What a new package of each kind is called and what it depends on, beyond what the table of kinds says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class KindWords:
    """word      ends the names of the distribution and of the class: `least-work-policy`, `LeastWorkPolicy`
    module    the module of the package that holds the implementation
    torch     whether the implementation computes with torch
    """

    word: str
    module: str
    torch: bool = False


WORDS: Mapping[str, KindWords] = MappingProxyType(
    {
        "attention": KindWords("attention", "backend", torch=True),
        "cache": KindWords("cache", "cache"),
        "kv_tier": KindWords("tier", "tier"),
        "schedule_policy": KindWords("policy", "policy"),
        "event_loop": KindWords("loop", "loop"),
        "gate": KindWords("gate", "gate"),
        "grammar": KindWords("grammar", "backend"),
        "model": KindWords("model", "model", torch=True),
        "loader": KindWords("loader", "source"),
        "worker": KindWords("worker", "worker"),
        "ops": KindWords("ops", "operators", torch=True),
        "logits_processor": KindWords("processor", "processor", torch=True),
        "routes": KindWords("routes", "protocol"),
        "parser": KindWords("parser", "format"),
        "metrics": KindWords("sink", "sink"),
        "observer": KindWords("observer", "observer"),
    }
)
