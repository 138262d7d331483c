"""A checkpoint's rotary entries, old layout or new, as one checked record. No torch: `describe` functions use it too.

Layouts: new `rope_parameters = {rope_type, rope_theta, ...}`; old `rope_theta` beside `rope_scaling = {type | rope_type,
...}`. The precedence is transformers': a non-empty `rope_scaling` stands for the whole dict, and a `rope_theta` outside
the dict counts only where the dict has none. With no theta at all, the family's default holds (10000 for Llama).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jackfield.hookspecs import UnsupportedModel

DEFAULT_THETA = 10_000.0
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")
_OLD_NAMES = {"su": "longrope"}
_NEEDS_FACTOR = ("linear", "dynamic", "llama3")
_NEEDS_ORIGINAL = ("yarn", "llama3", "longrope")


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """How positions turn into angles.

    rope_type          one of `ROPE_TYPES`
    theta              base wavelength
    rotary_size        leading dimensions of a head that turn; even
    max_position       the config's `max_position_embeddings`
    factor             how far the context is stretched; 1 for default
    original_max       context of the pre-training, tokens
    attention_factor   factor on cos and sin where the config gives one; None: the type's own formula
    """

    rope_type: str
    theta: float
    rotary_size: int
    max_position: int
    factor: float = 1.0
    original_max: int = 0
    attention_factor: float | None = None
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    mscale: float | None = None
    mscale_all_dim: float | None = None
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()


def _number(entries: Mapping[str, Any], key: str, where: str, default: float | None = None) -> float:
    value = entries.get(key)
    if value is None:
        if default is None:
            raise UnsupportedModel(f"{where}.{key} is missing, and rope type {entries['rope_type']!r} needs it")
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise UnsupportedModel(f"{where}.{key} must be a number above 0, not {value!r}")
    return float(value)


def _optional(entries: Mapping[str, Any], key: str, where: str) -> float | None:
    return None if entries.get(key) is None else _number(entries, key, where)


def _factors(entries: Mapping[str, Any], key: str, where: str, length: int) -> tuple[float, ...]:
    value = entries.get(key)
    if not isinstance(value, list | tuple) or len(value) != length:
        found = len(value) if isinstance(value, list | tuple) else value
        raise UnsupportedModel(f"{where}.{key} must be a list of {length} numbers, one for each pair; found {found!r}")
    return tuple(_number({"rope_type": "longrope", key: number}, key, where) for number in value)


def rope_entries(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """(the entry's name in the config, its content with `rope_type` and `rope_theta` filled in)."""
    where = "rope_scaling" if config.get("rope_scaling") else "rope_parameters"
    raw = config.get(where) or {}
    if not isinstance(raw, Mapping):
        raise UnsupportedModel(f"{where} must be a table, not {raw!r}")
    if any(isinstance(value, Mapping) for value in raw.values()):
        raise UnsupportedModel(f"{where} differs from layer to layer, which this architecture does not have")
    entries = dict(raw)
    entries["rope_type"] = entries.get("rope_type") or entries.get("type") or "default"
    entries["rope_type"] = _OLD_NAMES.get(entries["rope_type"], entries["rope_type"])
    for outside in ("rope_theta", "partial_rotary_factor"):
        if entries.get(outside) is None and config.get(outside) is not None:
            entries[outside] = config[outside]
    return where, entries


def parse_rope(config: Mapping[str, Any], *, head_size: int, default_theta: float = DEFAULT_THETA) -> RopeConfig:
    """Read a model config's rotary entries. Raises UnsupportedModel that names the entry at fault."""
    where, entries = rope_entries(config)
    rope_type = entries["rope_type"]
    if rope_type not in ROPE_TYPES:
        raise UnsupportedModel(f"{where}.rope_type {rope_type!r} is unknown; known: {', '.join(ROPE_TYPES)}")

    max_position = int(_number({**config, "rope_type": rope_type}, "max_position_embeddings", "config", 2048))
    rotary_size = int(head_size * _number(entries, "partial_rotary_factor", where, 1.0))
    if rotary_size % 2 or not 0 < rotary_size <= head_size:
        raise UnsupportedModel(
            f"a head of size {head_size} would turn in {rotary_size} dimensions; head_dim times "
            "partial_rotary_factor must be even and at most head_dim"
        )
    if rope_type == "dynamic" and rotary_size <= 2:
        raise UnsupportedModel(f"{where}.rope_type 'dynamic' needs heads of more than two dimensions")

    original_max = max_position
    if rope_type in _NEEDS_ORIGINAL:
        outside = config.get("original_max_position_embeddings")
        source = {**entries, "original_max_position_embeddings": outside} if outside is not None else entries
        original_max = int(_number(source, "original_max_position_embeddings", where, max_position))

    factor = 1.0
    if rope_type in _NEEDS_FACTOR:
        factor = _number(entries, "factor", where)
    elif rope_type in ("yarn", "longrope"):
        factor = _number(entries, "factor", where, max_position / original_max)

    low, high = 1.0, 4.0
    if rope_type == "llama3":
        low = _number(entries, "low_freq_factor", where)
        high = _number(entries, "high_freq_factor", where)
        if high <= low:
            raise UnsupportedModel(f"{where}.high_freq_factor ({high}) must be above low_freq_factor ({low})")

    longrope = rope_type == "longrope"
    return RopeConfig(
        rope_type=rope_type,
        theta=_number(entries, "rope_theta", where, default_theta),
        rotary_size=rotary_size,
        max_position=max_position,
        factor=factor,
        original_max=original_max,
        attention_factor=_optional(entries, "attention_factor", where),
        low_freq_factor=low,
        high_freq_factor=high,
        # transformers takes 0 for "not given" here, so None and 0 both mean the paper's values
        beta_fast=float(entries.get("beta_fast") or 32.0),
        beta_slow=float(entries.get("beta_slow") or 1.0),
        truncate=bool(entries.get("truncate", True)),
        mscale=_optional(entries, "mscale", where),
        mscale_all_dim=_optional(entries, "mscale_all_dim", where),
        short_factor=_factors(entries, "short_factor", where, rotary_size // 2) if longrope else (),
        long_factor=_factors(entries, "long_factor", where, rotary_size // 2) if longrope else (),
    )


def stretched_context(config: Mapping[str, Any], *, default_max_position: int) -> int:
    """Longest sequence that the positions allow, tokens.

    `max_position_embeddings`, times the factor for types that stretch it (linear, yarn) unless the config says by
    `original_max_position_embeddings` that it counts the stretched length already. Types whose rotation depends on the
    length (dynamic, longrope) keep `max_position_embeddings`.
    """
    _, entries = rope_entries(config)
    max_position = int(config.get("max_position_embeddings") or default_max_position)
    told = entries.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
    if entries["rope_type"] in ("linear", "yarn") and not told:
        return int(max_position * float(entries.get("factor") or 1.0))
    return max_position
