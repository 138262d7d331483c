"""What the contract asks of every plugin of kind routes."""

from __future__ import annotations

from typing import Any, ClassVar

from jackfield.testing.conformance import RoutesConformance


class TestOllama(RoutesConformance):
    plugin = "ollama"
    options: ClassVar[dict[str, Any]] = {"root": True}
