"""What the contract asks of every plugin of kind routes."""

from __future__ import annotations

from jackfield.testing.conformance import RoutesConformance


class TestAnthropic(RoutesConformance):
    plugin = "anthropic"
