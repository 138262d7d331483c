"""The conformance suite of kind `model`, on all of its architectures."""

from __future__ import annotations

from jackfield.testing.conformance import ModelConformance


class TestBert(ModelConformance):
    plugin = "bert"
