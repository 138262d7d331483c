"""What routes tell of the served model, gathered once at start."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from jackfield.entrypoints.model_texts import Texts
from jackfield.entrypoints.plan import ReplicaPlan
from jackfield.hookspecs import ModelCard, WorkerLimits


def model_card(plan: ReplicaPlan, texts: Texts, limits: WorkerLimits) -> ModelCard:
    config = plan.facts.config
    files = texts.files
    return ModelCard(
        name=plan.model_name,
        path=str(plan.args.model_path or plan.model_name),
        created=int(time.time()),
        context_length=min(config.context_length, limits.max_context),
        vocab_size=limits.vocab_size,
        architecture=config.architecture,
        dtype=plan.args.dtype,
        quantization=_quantization(config.hf.get("quantization_config")),
        nbytes=_nbytes(plan.model_path),
        is_generation=plan.facts.pooling is None,
        has_tokenizer=files is not None,
        chat_template=(files.chat_template or "") if files is not None else "",
        config=config.hf,
    )


def _quantization(said: Any) -> str:
    method = said.get("quant_method") if isinstance(said, dict) else None
    return method if isinstance(method, str) else ""


def _nbytes(path: Path) -> int | None:
    """Of the file, or of all files that lie directly in the folder."""
    try:
        files = [path] if path.is_file() else [file for file in path.iterdir() if file.is_file()]
        return sum(file.stat().st_size for file in files)
    except OSError:
        return None
