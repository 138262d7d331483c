"""How long a sequence a model allows, from the entries of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.config.errors import ConfigurationError

_ENTRIES = ("max_sequence_length", "seq_length", "max_seq_len", "model_max_length", "max_position_embeddings")
"""The names under which architectures keep it, the more telling one first."""

_STRETCHING = ("linear", "dynamic", "yarn")
"""Rope types whose `factor` makes the range longer than the entry says. "llama3" and "longrope" checkpoints already
write the longer range."""


_FIRST_BEHIND_PADDING = ("roberta", "xlm-roberta", "camembert")
"""Model types that number positions from behind the padding token's id, so that the first ones are never used."""


def derive_context_length(config: Mapping[str, Any], source: str) -> int | None:
    """Tokens, or None if no entry says it. Raises ConfigurationError for an entry that is no positive number."""
    plain = _plain_length(config, source)
    trained = (config.get("sentence_transformers_files") or {}).get("max_seq_length")
    if trained is None:
        return plain
    _check(trained, "max_seq_length (sentence_bert_config.json)", source)
    return int(trained) if plain is None else min(int(trained), plain)


def _plain_length(config: Mapping[str, Any], source: str) -> int | None:
    plain = next((config[name] for name in _ENTRIES if config.get(name) is not None), None)
    if plain is None:
        return None
    _check(plain, "max_position_embeddings", source)
    if config.get("model_type") in _FIRST_BEHIND_PADDING:
        padding = config.get("pad_token_id")
        if isinstance(padding, bool) or not isinstance(padding, int) or not 0 <= padding < plain - 1:
            raise ConfigurationError(f"{source}: pad_token_id is {padding!r}, not an id below the {plain} positions")
        return int(plain) - padding - 1
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise ConfigurationError(f"{source}: the rope scaling is {rope!r}, not an object")
    kind = rope.get("rope_type", rope.get("type", "default"))
    factor, original = rope.get("factor"), rope.get("original_max_position_embeddings")
    if kind not in _STRETCHING or factor is None:
        return int(plain)
    _check(factor, "rope scaling factor", source)
    if original is None:
        return int(plain * factor)
    # With the original range named, the plain entry may be the original or the stretched one: the longer holds.
    _check(original, "original_max_position_embeddings", source)
    return max(int(plain), int(original * factor))


def _check(value: object, name: str, source: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**40:
        raise ConfigurationError(f"{source}: {name} is {value!r}, not a positive number of tokens")
