"""The conformance suite on every parser of this package."""

from __future__ import annotations

import pytest

from jackfield.testing.conformance import ParserConformance

pytestmark = pytest.mark.goal_row(35)


class TestHermes(ParserConformance):
    plugin = "hermes"


class TestLlama3Json(ParserConformance):
    plugin = "llama3-json"


class TestMistral(ParserConformance):
    plugin = "mistral"


class TestDeepSeekV3(ParserConformance):
    plugin = "deepseek-v3"


class TestQwen3Coder(ParserConformance):
    plugin = "qwen3-coder"
    texts = ("<tool_call>\n<function=get_weather>\n<parameter=city>\nA\n</parameter>\n</function>\n</tool_call>",)


class TestPythonic(ParserConformance):
    plugin = "pythonic"
    texts = ("[get_weather(city='A', days=[1, {'a': (2,)}]), f()]",)
