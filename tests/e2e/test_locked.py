"""`--locked`: a run of processes whose stack is the locked one starts, and one of other code is refused."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.cli import main
from jackfield.stack.digest import package_digest
from tests.e2e.engines import without_tokenizer
from tests.unit.stack.distributions import POLICY, Site, plugin_row


@pytest.mark.goal_row(13)
def test_the_locked_stack_starts_in_every_process_and_an_edited_one_in_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path / "site")
    package = site.add("acme-locked", plugin_row("schedule_policy", "locked"), sources={"locked": POLICY})
    monkeypatch.syspath_prepend(str(site.folder))
    importlib.invalidate_caches()
    lock = tmp_path / "run.lock"
    flags = ["--worker", "simulated", "--schedule-policy", "locked", "--device", "cpu", "--skip-tokenizer-init"]
    assert main(["lock", *flags, "--output", str(lock)]) == 0
    locked = tomllib.loads(lock.read_text())

    arguments = {"schedule_policy": "locked", "device": "cpu", "locked": lock}
    with without_tokenizer(topology="processes", **arguments) as engine:
        assert engine.generate(input_ids=[3, 4], sampling_params={"max_new_tokens": 2})["output_ids"]
        info = engine.get_server_info()
        assert info["stack"]["hash"] == locked["stack_hash"]
        pids = {process["role"]: process["pid"] for process in info["processes"]}
    said = {role: f"process {pid} runs the stack {locked['stack_hash']}" for role, pid in pids.items()}
    assert said.pop("main") in caplog.messages
    words = capfd.readouterr().err
    for role, line in said.items():
        assert f"[{role}]: {line}" in words, "the first line of each process names the stack"

    (site.folder / package / "locked.py").write_text(POLICY + "\n# edited\n")
    package_digest.cache_clear()
    for topology in ("inline", "processes"):
        with pytest.raises(ConfigurationError) as caught:
            without_tokenizer(topology=topology, cache_policy="chunk", **arguments)
        first, *lines, last = str(caught.value).splitlines()
        assert first == f"--locked (from argument locked) {lock}: this run is not the one that was locked:"
        assert lines[0].startswith("  - the content of schedule_policy plugin 'locked' is ")
        assert lines[1:] == ["  - the cache is 'chunk', 'radix' was locked"]
        assert last.startswith(f"If that is meant, renew the lock: jackfield lock --output {lock}")
