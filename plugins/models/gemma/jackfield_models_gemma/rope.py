"""The two rotary tables of a Gemma 3 config, one for full layers and one for window layers. No torch.

Layouts: new `rope_parameters = {full_attention: {rope_type, rope_theta, ...}, sliding_attention: {...}}`; old `rope_theta`,
`rope_scaling` (both for the full layers) and `rope_local_base_freq`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.hookspecs import UnsupportedModel
from jackfield.layers.rope_config import parse_rope
from jackfield_models_gemma.settings import FULL, WINDOW, Settings

THETAS: Mapping[str, tuple[str, float]] = {FULL: ("rope_theta", 1e6), WINDOW: ("rope_local_base_freq", 1e4)}
"""Kind of layer -> (the old entry of its base, the base where the config has none)."""

LENGTH_DEPENDENT = ("dynamic", "longrope")


def read_ropes(config: Mapping[str, Any], settings: Settings) -> Mapping[str, Mapping[str, Any]]:
    """Kind of layer -> entries for `Builder.rotary`. Raises UnsupportedModel."""
    given = config.get("rope_parameters") or {}
    if not isinstance(given, Mapping):
        raise UnsupportedModel(f"rope_parameters must be a table, not {given!r}")
    stray = [key for key in given if key not in THETAS]
    if stray:
        raise UnsupportedModel(
            f"rope_parameters: {', '.join(map(str, stray))} must stand within {FULL} and {WINDOW}, which have each their own"
        )
    return {kind: _entries(config, given.get(kind), kind, settings) for kind in THETAS}


def _entries(config: Mapping[str, Any], given: Any, kind: str, settings: Settings) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise UnsupportedModel(f"rope_parameters.{kind} must be a table, not {given!r}")
    scaling = config.get("rope_scaling") if kind == FULL else None
    if scaling is not None and not isinstance(scaling, Mapping):
        raise UnsupportedModel(f"rope_scaling must be a table, not {scaling!r}")
    entries = {**(given or {}), **(scaling or {})}
    old, default = THETAS[kind]
    if entries.get("rope_theta") is None:
        entries["rope_theta"] = default if config.get(old) is None else config[old]
    rope = {"rope_parameters": entries, "max_position_embeddings": settings.max_position_embeddings}
    parsed = parse_rope(rope, head_size=settings.head_dim)
    if parsed.rotary_size != settings.head_dim:
        raise UnsupportedModel("partial_rotary_factor: Gemma 3 turns whole heads")
    if parsed.rope_type in LENGTH_DEPENDENT:
        raise UnsupportedModel(f"rope_type {parsed.rope_type!r} is not supported for Gemma 3")
    return rope
