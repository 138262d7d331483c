"""Observers in a whole engine: several uses of one, and one that cannot be made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jackfield.config.errors import ConfigurationError
from tests.e2e.engines import without_tokenizer
from tests.unit.stack.distributions import Site, plugin_row

SULKY = """
from jackfield.hookspecs import hookimpl


@hookimpl
def jackfield_observer(context):
    raise OSError(f"no seat in {context.process.role}")
"""


@pytest.mark.goal_row(5)
def test_one_observer_serves_twice_under_two_names_with_options_of_its_own(tmp_path: Path) -> None:
    uses = [
        {"plugin": "jsonl", "as": "audit", "options": {"directory": str(tmp_path / "audit"), "steps": False}},
        {"plugin": "jsonl", "options": {"directory": str(tmp_path / "all")}},
    ]
    with without_tokenizer(observer=uses) as engine:
        engine.generate(input_ids=[3, 4, 5], sampling_params={"max_new_tokens": 2, "ignore_eos": True})
    files = {folder: {file.name for file in (tmp_path / folder).iterdir()} for folder in ("audit", "all")}
    assert files["all"] - files["audit"] == {"steps.jsonl"}
    for folder in files:
        rows = [json.loads(line) for line in (tmp_path / folder / "requests.jsonl").read_text().splitlines()]
        assert [row["event"] for row in rows] == ["started", "received", "finished", "stopped"]


@pytest.mark.goal_row(8)
@pytest.mark.parametrize("topology", ["inline", "processes"])
def test_an_observer_that_cannot_be_made_refuses_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    row = plugin_row("observer", "sulky", processes=["scheduler"])
    Site(tmp_path / "site").add("acme-sulky", row, sources={"sulky": SULKY})
    role = "inline" if topology == "inline" else "scheduler"
    with pytest.raises(
        ConfigurationError, match=rf"observer plugin 'sulky' \(acme-sulky 1\.0\) could not be made: .*no seat in {role}"
    ):
        without_tokenizer(observer=["sulky"], topology=topology)
