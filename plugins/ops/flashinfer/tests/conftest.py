"""FlashInfer's stand-in in the place of the library."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from plugins.ops.flashinfer.tests.standin import module


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = module()
    monkeypatch.setitem(sys.modules, "flashinfer", made)
    return made
