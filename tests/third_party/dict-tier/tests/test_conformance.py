"""What the contract asks of every plugin of this kind."""

from __future__ import annotations

from jackfield.testing.conformance import KvTierConformance


class TestConformance(KvTierConformance):
    plugin = "dict"
