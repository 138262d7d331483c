"""The conformance suite on both loops."""

from __future__ import annotations

import pytest

from jackfield.testing.conformance import EventLoopConformance

pytestmark = pytest.mark.goal_row(35)


class TestNormal(EventLoopConformance):
    plugin = "normal"


class TestOverlap(EventLoopConformance):
    plugin = "overlap"
