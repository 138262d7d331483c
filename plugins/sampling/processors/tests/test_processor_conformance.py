"""The conformance suite on both processors."""

from __future__ import annotations

import pytest

from jackfield.testing.conformance import LogitsProcessorConformance

pytestmark = pytest.mark.goal_row(35)


class TestDry(LogitsProcessorConformance):
    plugin = "dry"
    parameters = ({"multiplier": 0.8}, {"multiplier": 2, "range": 4, "allowed_length": 1})


class TestNoRepeatNgram(LogitsProcessorConformance):
    plugin = "no-repeat-ngram"
    parameters = ({"ngram_size": 2}, {"ngram_size": 1})
