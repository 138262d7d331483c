"""What the contract asks of every plugin of this kind."""

from __future__ import annotations

from jackfield.testing.conformance import ParserConformance


class TestConformance(ParserConformance):
    plugin = "tag"
    texts = ("<draft>2 < 3</draft>Yes.", "<draft></draft>", "<draft>a</dra</draft></draft>b", "a<draft>b</draft>")
