"""The conformance suite on both caches; radix's own models test its orders of eviction."""

from __future__ import annotations

import pytest

from jackfield.testing.conformance import CacheConformance

pytestmark = pytest.mark.goal_row(35)


class TestRadix(CacheConformance):
    plugin = "radix"


class TestChunk(CacheConformance):
    plugin = "chunk"
