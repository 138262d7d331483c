"""The conformance suite on every parser of this package."""

from __future__ import annotations

import pytest

from jackfield.testing.conformance import ParserConformance

pytestmark = pytest.mark.goal_row(35)


class TestThink(ParserConformance):
    plugin = "think"
    options = {"start": "<seed:think>", "end": "</seed:think>"}  # noqa: RUF012


class TestDeepSeekR1(ParserConformance):
    plugin = "deepseek-r1"


class TestMistralThink(ParserConformance):
    plugin = "mistral-think"
