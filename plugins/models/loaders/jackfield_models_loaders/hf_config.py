"""The configuration of a directory in Hugging Face's layout. Knows no weights and no tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jackfield.hookspecs import ModelSourceError
from jackfield_models_loaders.json_file import read_object


def read_config(directory: Path) -> dict[str, Any]:
    """config.json, with generation_config.json under its own key. Raises ModelSourceError."""
    path = directory / "config.json"
    if not path.exists():
        raise ModelSourceError(
            f"{path}: is missing; a checkpoint needs its config.json beside the weights (for a GGUF file, name the file)"
        )
    config = read_object(path)
    generation = directory / "generation_config.json"
    if generation.exists():
        config["generation_config"] = read_object(generation)
    return config
