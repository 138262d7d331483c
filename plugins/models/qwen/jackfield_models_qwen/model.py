"""Qwen2's and Qwen3's model: the decoder of `jackfield.layers`, with what the config says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.hookspecs import Builder
from jackfield.layers.decoder import Decoder
from jackfield_models_qwen.settings import read_settings


class Qwen(Decoder):
    """Qwen2 and Qwen3: one rank's share."""

    def __init__(self, config: Mapping[str, Any], build: Builder) -> None:
        super().__init__(read_settings(config), build)
