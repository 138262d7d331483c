"""What the contract asks of every plugin of this kind. The suite's prompts are not recorded, so all have one answer."""

from __future__ import annotations

from jackfield.testing.conformance import WorkerConformance


class TestConformance(WorkerConformance):
    plugin = "replay"
    options = {"otherwise": [5, 6, 7]}  # noqa: RUF012 - read, never written
