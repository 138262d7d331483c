"""The cache benchmark runs and measures what it says. Its numbers are nobody's business here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "cache.py"


def test_every_figure_is_there_for_each_number_of_nodes() -> None:
    command = [sys.executable, str(SCRIPT), "--json", "--tokens", "2000", "--nodes", "1", "9", "--rounds", "3"]
    command += ["--page-size", "4", "--eviction", "slru"]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    assert (told["page_size"], told["eviction"], told["rounds"]) == (4, "slru", 3)
    assert set(told["figures"]) == {"radix_2000_tokens_1_nodes", "radix_2000_tokens_9_nodes"}
    for figure in told["figures"].values():
        assert figure["cached"] == 1996
        assert figure["met"] is None  # the targets are for 100,000 tokens
        assert all(value > 0 for name, value in figure.items() if name.endswith("_ms") and value is not None)


def test_it_prints_lines_for_people() -> None:
    command = [sys.executable, str(SCRIPT), "--tokens", "500", "--rounds", "2"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "100"]
