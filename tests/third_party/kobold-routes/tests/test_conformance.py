"""What the contract asks of every plugin of this kind."""

from __future__ import annotations

from jackfield.testing.conformance import RoutesConformance


class TestConformance(RoutesConformance):
    plugin = "kobold"
