"""`jackfield conformance`: what it refuses, what it shows and what it writes. Three child processes for all of it."""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from jackfield import __version__
from jackfield.entrypoints.cli import main
from tests.unit.stack.distributions import POLICY, Site, plugin_row

TWICE = POLICY.replace("return None", "return [0] * len(waiting)\n\n    def observ(self, record):\n        pass")

OPTIONS = """
import pydantic


class Options(pydantic.BaseModel):
    key: str
"""


@pytest.mark.goal_row(35, 36)
def test_a_policy_conforms_without_torch(tmp_path: Path, live_site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    (live_site.folder / "torch.py").write_text("raise ImportError('somebody imported torch')\n")
    file = tmp_path / "report.json"
    assert (
        main(["conformance", "schedule-policy.token_budget", "--option", "step_tokens=100", "--json", str(file)]) == 0
    )
    shown = capsys.readouterr().out
    report = json.loads(file.read_text())
    assert report["schema_version"] == 1
    (plugin,) = report["plugins"]
    assert (plugin["plugin"], plugin["outcome"]) == ("schedule_policy.token-budget", "passed")
    assert (plugin["distribution"], plugin["version"]) == ("jackfield-scheduler-policies", "0.1.0")
    assert len(plugin["digest"]) == 64
    assert plugin["core"] == __version__
    assert plugin["contract"]["schedule_policy"] == plugin["core_contract"]
    assert plugin["options"] == {"step_tokens": 100}
    checks = {check["check"]: check for check in plugin["checks"]}
    assert checks["imports_no_torch"]["outcome"] == "passed"
    assert checks["take_stays_within_what_it_may"]["outcome"] == "not claimed"
    assert checks["work_grows_no_faster_than_sorting"]["measured"]
    assert all(check["proves"] and check["seconds"] >= 0 for check in checks.values())
    assert "everybody is answered in a scheduler" in shown
    assert "schedule_policy.token-budget conforms: " in shown


def test_what_does_not_conform_says_where(live_site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    live_site.add("acme-twice", plugin_row("schedule_policy", "twice"), sources={"twice": TWICE})
    assert main(["conformance", "schedule_policy.twice", "--check", "order_gives or forgets"]) == 1
    shown = capsys.readouterr().out
    assert "[2] BadPolicyAnswer: order returned a row twice" in shown
    assert "schedule_policy.twice does not conform: 3 failed, 2 passed, 1 not claimed" in shown
    assert "observe is not overridden; 'observ' is never called by a run" in shown


def test_plugins_that_cannot_be_tested_or_loaded(
    live_site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needy = plugin_row("schedule_policy", "needy", options="acme_needy.options:Options")
    live_site.add("acme-needy", needy, package="acme_needy", sources={"needy": POLICY, "options": OPTIONS})
    live_site.add("acme-broken", plugin_row("schedule_policy", "wrong"), sources={"wrong": "import not_there"})
    assert main(["conformance", "schedule_policy.needy", "schedule_policy.wrong", "--check", "loads or budget"]) == 1
    shown = capsys.readouterr().out
    assert 'options."schedule_policy.needy".key: must be given' in shown
    assert "schedule_policy.needy could not be tested" in shown
    assert "ModuleNotFoundError: No module named 'not_there'" in shown
    assert "schedule_policy.wrong does not conform" in shown


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ((), "name a plugin as KIND.NAME, or say --all or --plugin FILE"),
        (("schedule_policy.fcfs", "--all"), "or say --all, not both"),
        (("--plugin", "not_there.py"), "not_there.py"),
        (("fcfs",), "'fcfs' is not of the form KIND.NAME"),
        (("schedule_polizy.fcfs",), "there is no kind 'schedule_polizy'; did you mean 'schedule_policy'"),
        (("schedule_policy.fcsf",), "no schedule_policy plugin 'fcsf' is installed; did you mean 'fcfs'"),
        (("schedule_policy.fcfs", "--options", "[1]"), "--options must be a JSON object, not [1]"),
        (("schedule_policy.fcfs", "--options", "{"), "--options is no JSON"),
        (("schedule_policy.fcfs", "--option", "step_tokens"), "--option step_tokens"),
        (("schedule_policy.fcfs", "schedule_policy.lpm", "--option", "cache.radix.x=1"), "is not among the plugins"),
    ],
)
def test_refusals(argv: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", *argv]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err


def test_without_pytest_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> Any:
        return None if name == "pytest" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    assert main(["conformance", "schedule_policy.fcfs"]) == 2
    assert "pytest cannot be imported here: pip install 'jackfield[testing]'" in capsys.readouterr().err


@pytest.mark.parametrize(("end", "told"), [("os._exit(0)", "code 0"), ("os.kill(os.getpid(), 9)", "signal Killed")])
def test_a_plugin_that_ends_the_process_does_not_pass(
    end: str, told: str, live_site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    row = plugin_row("schedule_policy", "crash")
    live_site.add("acme-crash", row, sources={"crash": f"import os\n{end}\n"})
    assert main(["conformance", "schedule_policy.crash", "--check", "loads"]) == 2
    assert (
        f"the tests of schedule_policy.crash in test_loads came to no end: pytest ended with {told}"
        in capsys.readouterr().err
    )
