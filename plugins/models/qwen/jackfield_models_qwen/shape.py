"""`describe`: what the runtime must know of a Qwen model before any weight is read. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.hookspecs import ModelShape, Shard
from jackfield.layers.decoder_shape import decoder_shape
from jackfield_models_qwen.settings import read_settings


def describe(config: Mapping[str, Any], shard: Shard) -> ModelShape:
    """One rank's share of the model. Raises UnsupportedModel that names the config entry at fault."""
    return decoder_shape(read_settings(config), shard)
