"""The conformance suite on the observer."""

from __future__ import annotations

import pytest

from jackfield.testing.conformance import ObserverConformance

pytestmark = pytest.mark.goal_row(35)


class TestJsonl(ObserverConformance):
    plugin = "jsonl"
    options = {"directory": "{tmp}/log"}  # noqa: RUF012
