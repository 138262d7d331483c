"""The configuration of a directory in Hugging Face's layout. Knows no weights and no tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jackfield.hookspecs import ModelSourceError
from jackfield_models_loaders.json_file import read_object, read_value


def read_config(directory: Path) -> dict[str, Any]:
    """config.json, with generation_config.json and what sentence-transformers' files say under keys of their own. Raises
    ModelSourceError."""
    path = directory / "config.json"
    if not path.exists():
        raise ModelSourceError(
            f"{path}: is missing; a checkpoint needs its config.json beside the weights (for a GGUF file, name the file)"
        )
    config = read_object(path)
    generation = directory / "generation_config.json"
    if generation.exists():
        config["generation_config"] = read_object(generation)
    if (files := _sentence_transformers(directory)) is not None:
        config["sentence_transformers_files"] = files
    return config


def _sentence_transformers(directory: Path) -> dict[str, Any] | None:
    """What the files beside config.json say of a sentence-transformers model; None: there are none.

    modules          the modules' types in their order, such as "Transformer", "Pooling", "Normalize"
    pooling          the pooling module's config.json
    max_seq_length   longest text that it was made for, in tokens
    """
    listed = directory / "modules.json"
    if not listed.exists():
        return None
    modules = read_value(listed)
    if not isinstance(modules, list) or not all(isinstance(one, dict) for one in modules):
        raise ModelSourceError(f"{listed}: is not a list of modules; fetch the file again")
    found: dict[str, Any] = {"modules": []}
    for module in modules:
        kind, place = str(module.get("type", "")).rpartition(".")[2], module.get("path", "")
        found["modules"].append(kind)
        if kind == "Pooling":
            # A plain folder name: the list may not point out of its directory.
            if not isinstance(place, str) or place in ("", ".", "..") or "/" in place or "\\" in place or "\0" in place:
                raise ModelSourceError(f"{listed}: puts the pooling into {place!r}, which is no folder beside it")
            found["pooling"] = read_object(directory / place / "config.json")
    settings = directory / "sentence_bert_config.json"
    if settings.exists() and (longest := read_object(settings).get("max_seq_length")) is not None:
        found["max_seq_length"] = longest
    return found
