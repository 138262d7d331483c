"""What the contract asks of every plugin of this kind. The file is made when the suite wants the gate open."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from file_gate.plugin import FileGate

from jackfield.hookspecs import Gate
from jackfield.testing.conformance import GateConformance

FOLDER = TemporaryDirectory()
FILE = Path(FOLDER.name) / "open"


class TestConformance(GateConformance):
    plugin = "file"
    options = {"path": str(FILE), "interval_s": 1e6}  # noqa: RUF012 - read, never written

    @pytest.fixture(autouse=True)
    def _file_is_away(self) -> None:
        FILE.unlink(missing_ok=True)

    def let_in(self, gate: Gate) -> None:
        assert isinstance(gate, FileGate)
        FILE.write_text("")
        gate.look()
