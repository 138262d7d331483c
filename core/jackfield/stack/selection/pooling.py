"""What a run gives of each prompt, if it does not generate: from the model's own words, its files and `--is-embedding`.

Knows no tensor and no worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.config.model_config import ModelConfig
from jackfield.hookspecs import EMBEDDING, ModelShape, Pooling

FLAG = "--is-embedding"


def pooling_of(config: ModelConfig, shape: ModelShape | None, *, is_embedding: bool) -> Pooling | None:
    """None: the run generates. A model that does not generate has its own pooling; of one that does, the last token's hidden
    state is an embedding if `--is-embedding` says so, or if its files are those of a sentence-transformers model.

    Raises ConfigurationError for what cannot be had.
    """
    if shape is None:
        if is_embedding:
            raise ConfigurationError(f"{FLAG}: this worker runs no model, so there is nothing to embed with")
        return None
    if shape.pooling is not None and (not shape.generates or is_embedding):
        if is_embedding and shape.pooling.kind != EMBEDDING:
            raise ConfigurationError(
                f"{FLAG}: {shape.architecture} gives labels' scores and no embedding: leave it out"
            )
        return shape.pooling
    if not shape.generates:
        raise ConfigurationError(f"{config.source}: the code of {shape.architecture} neither generates nor pools")
    files = config.hf.get("sentence_transformers_files") or {}
    if not is_embedding and "Pooling" not in files.get("modules", ()):
        return None
    return _last_token(config, shape, files)


def _last_token(config: ModelConfig, shape: ModelShape, files: Mapping[str, Any]) -> Pooling:
    modes = [
        name for name, on in (files.get("pooling") or {}).items() if name.startswith("pooling_mode") and on is True
    ]
    if modes not in ([], ["pooling_mode_lasttoken"]):
        raise ConfigurationError(
            f"{config.source}: its pooling is {' and '.join(modes)}; of a model that generates, the last token's state "
            "(pooling_mode_lasttoken) can be served"
        )
    others = sorted(set(files.get("modules", ())) - {"Transformer", "Pooling", "Normalize"})
    if others:
        raise ConfigurationError(f"{config.source}: the modules {', '.join(others)} (modules.json) are not served")
    dimensions = matryoshka_dimensions(config.hf, shape.hidden_size)
    return Pooling(
        kind=EMBEDDING,
        width=shape.hidden_size,
        whole=False,
        normalize=not files or "Normalize" in files["modules"],
        matryoshka=dimensions is not None,
        dimensions=dimensions or (),
    )


def matryoshka_dimensions(hf: Mapping[str, Any], width: int) -> tuple[int, ...] | None:
    """To which lengths a model's vectors may be cut, as its configuration says (`matryoshka_dimensions`, or `is_matryoshka`:
    any, which is the empty tuple); None: to none."""
    given = hf.get("matryoshka_dimensions")
    if isinstance(given, list) and given and all(type(one) is int and 0 < one <= width for one in given):
        return tuple(sorted(given))
    return () if hf.get("is_matryoshka") is True else None
