"""The conformance suite on both caches; radix once more with another eviction."""

from __future__ import annotations

import pytest

from jackfield.testing.conformance import CacheConformance

pytestmark = pytest.mark.goal_row(35)


class TestRadix(CacheConformance):
    plugin = "radix"


class TestRadixBySegments(CacheConformance):
    plugin = "radix"
    options = {"eviction": "slru"}  # noqa: RUF012


class TestChunk(CacheConformance):
    plugin = "chunk"
