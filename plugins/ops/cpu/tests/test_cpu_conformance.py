"""The conformance suite of the operators."""

from __future__ import annotations

from jackfield.testing.conformance import OpsConformance


class TestConformance(OpsConformance):
    plugin = "cpu"
