"""What this plugin calls of FlashInfer, and how its calls are recorded: `python -m plugins.ops.flashinfer.tests.api` writes the
file anew from the FlashInfer that is installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jackfield.testing.recorded_signatures import signatures_to_json

RECORDED = Path(__file__).parent / "flashinfer-0.7.4.json"
VERSION = "0.7.4"
NAMES = (
    "apply_rope_with_cos_sin_cache_inplace",
    "fused_add_rmsnorm",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "rmsnorm",
    "silu_and_mul",
    "top_k",
)


def functions() -> Mapping[str, Callable[..., Any]]:
    """Of the installed FlashInfer. ImportError without one."""
    library = importlib.import_module("flashinfer")
    return {name: getattr(library, name) for name in NAMES}


if __name__ == "__main__":
    RECORDED.write_text(signatures_to_json(functions()))
