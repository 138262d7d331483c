"""FlashInfer itself, imported when the backend is made and not before. It has no types here."""

from __future__ import annotations

import importlib
from typing import Any


def flashinfer() -> Any:
    """The package. ImportError if it is not there, which the plugin's probe has said before."""
    return importlib.import_module("flashinfer")
