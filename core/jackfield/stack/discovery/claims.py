"""A manifest's features: the names that the contract knows, and how those are written that say more than a name.

Plugins may agree on features of their own; what is nearly a known name is a misspelling of it. "batch_invariant" says that
a row's result does not depend on its batch: bare, for every device and dtype that the plugin lists; as
"batch_invariant:<device>:<dtype>", for one pair. "quantization:<name>" and "kv:<name>" name what they can do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType

FEATURE = "batch_invariant"
QUANTIZATION = "quantization"
"""Feature of ops, as "quantization:<name>": it quantises plain weights in this way while packing them."""
KV = "kv"
"""Feature of attention, as "kv:<name>": it keeps the KV in this narrower dtype (`AttentionContext.kv_dtype`)."""

KNOWN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "attention": ("window", "soft_cap", "mixed", "non_causal", "tree_mask", "graph", KV, FEATURE),
        "cache": ("cached_tokens", "forest", "evicted", "window"),
        "event_loop": ("overlap",),
        "worker": (
            *("async", "kv_move", "logprobs", "prompt_logprobs", "penalties", "logit_bias", "min_new_tokens"),
            *("logits_processors", "pooling", "graph", "kv_dtype", "mem_fraction", FEATURE),
        ),
        "ops": ("graph", FEATURE, QUANTIZATION),
        "routes": ("open_routes",),
        "parser": ("tool_calls", "reasoning"),
    }
)
"""Kind -> the features of docs/contract.md."""

LIKENESS = 0.8
"""From here on an unknown name is a misspelling and no feature of somebody else's: "windw", but not "window_sinks"."""


def claim_problems(kind: str, features: Sequence[str]) -> list[str]:
    """Features that are written wrongly."""
    known = KNOWN.get(kind, ())
    meant = {
        name: get_close_matches(name, known, n=1, cutoff=LIKENESS)
        for name in (feature.split(":")[0] for feature in features)
        if name not in known
    }
    return (
        [f"the feature {name!r} is unknown; did you mean {near[0]!r}?" for name, near in meant.items() if near]
        + [
            f"the feature {feature!r} has neither the form {FEATURE!r} nor '{FEATURE}:<device>:<dtype>'"
            for feature in features
            if feature.split(":")[0] == FEATURE and feature.count(":") not in (0, 2)
        ]
        + [
            f"the feature {feature!r} has not the form '{named}:<name>'"
            for of, named in (("ops", QUANTIZATION), ("attention", KV))
            for feature in features
            if kind == of and feature.split(":")[0] == named and not _named(named, feature)
        ]
    )


def quantizations(features: Sequence[str]) -> tuple[str, ...]:
    """The names N of all features "quantization:N"."""
    return tuple(name for feature in features if (name := _named(QUANTIZATION, feature)))


def kv_feature(name: str) -> str:
    """What an attention plugin declares that keeps the KV in this dtype."""
    return f"{KV}:{name}"


def kv_dtypes(features: Sequence[str]) -> tuple[str, ...]:
    """The names N of all features "kv:N"."""
    return tuple(name for feature in features if (name := _named(KV, feature)))


def _named(word: str, feature: str) -> str:
    """The N of "<word>:N"; "" for any other feature."""
    head, _, name = feature.partition(":")
    return name if head == word and ":" not in name else ""


def claimed(features: Sequence[str], device: str, dtype: str | None) -> bool:
    """Whether the claim is made for this device and dtype (None: for any one)."""
    for feature in features:
        name, *pair = feature.split(":")
        if name == FEATURE and (not pair or (pair[0] == device and dtype in (None, pair[1]))):
            return True
    return False
