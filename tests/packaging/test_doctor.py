"""Our own plugins are sound by our own doctor: one of each distribution, since the others share its modules."""

from __future__ import annotations

import json

import pytest

from jackfield.entrypoints.cli import main
from jackfield.stack.discovery.scan import discover
from jackfield.stack.selection.own import OWN_DISTRIBUTIONS


@pytest.mark.goal_row(23)
def test_nothing_of_ours_is_found_fault_with(capsys: pytest.CaptureFixture[str]) -> None:
    first = {row.distribution: row for row in discover() if row.distribution in OWN_DISTRIBUTIONS}
    assert set(first) == set(OWN_DISTRIBUTIONS)
    assert main(["plugins", "doctor", "--json", *(f"{row.kind}.{row.name}" for row in first.values())]) == 0
    report = json.loads(capsys.readouterr().out)
    # An import's time, a device that is not here and what an absent extra would bring are this machine's affair.
    local = ("slow", "device", "probe")
    found = [finding for one in report["plugins"] for finding in one["findings"]]
    assert [finding for finding in found if finding["severity"] != "note" or finding["code"] not in local] == []
    assert len(report["plugins"]) == len(OWN_DISTRIBUTIONS)
