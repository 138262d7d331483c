"""The conformance suite on the sink."""

from __future__ import annotations

import pytest

from jackfield.testing.conformance import MetricsConformance

pytestmark = pytest.mark.goal_row(35)


class TestPrometheus(MetricsConformance):
    plugin = "prometheus"
