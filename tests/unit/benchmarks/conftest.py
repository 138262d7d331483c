"""The scripts of benchmarks/ are no package: they import each other from their folder, under names that are common words."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
PEERS = BENCHMARKS / "peers"
MODULES = ("workloads", "measuring", "plan", "turns", "run", "ratios", "table", "jackfield_offline", "accuracy")


@pytest.fixture(scope="package")
def scripts() -> Iterator[SimpleNamespace]:
    """Modules of benchmarks/ and benchmarks/peers, by name."""
    before, known = sys.path[:], set(sys.modules)
    sys.path[:0] = [str(PEERS), str(BENCHMARKS)]
    try:
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(BENCHMARKS)):
                del sys.modules[name]
