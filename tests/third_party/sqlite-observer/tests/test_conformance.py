"""What the contract asks of every plugin of this kind."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from jackfield.testing.conformance import ObserverConformance

FOLDER = TemporaryDirectory()


class TestConformance(ObserverConformance):
    plugin = "sqlite"
    options = {"path": f"{FOLDER.name}/run.db"}  # noqa: RUF012 - read, never written
