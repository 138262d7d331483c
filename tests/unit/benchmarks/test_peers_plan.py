"""The plan of the measurement beside peers, and its turns, without any peer."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.benchmarks.conftest import PEERS

TESTS = "\n".join(
    f"tests.{name} = {{ rounds = 3, repetitions = 2, quick = 1, quick_repetitions = 1 }}"
    for name in ("decode", "prefill", "batch", "prefix", "first")
)


@pytest.fixture
def read(scripts: SimpleNamespace, tmp_path: Path) -> Any:
    def read(text: str, tests: str = TESTS, **environ: str) -> Any:
        file = tmp_path / "plan.toml"
        file.write_text(f"{tests}\n{textwrap.dedent(text)}")
        return scripts.plan.read_plan(file, environ)

    return read


def test_the_plan_that_ships_is_read_and_its_scripts_exist(scripts: SimpleNamespace) -> None:
    plan = scripts.plan.read_plan(PEERS / "plan.toml", {"HERE": "python"})
    assert [entry.name for entry in plan.entries if not entry.missing] == []  # each needs a model's file at least
    for entry in plan.entries:
        assert (PEERS / entry.command[1]).is_file()
        assert entry.ours == entry.command[1].startswith("jackfield_")
    # What is to be ahead of whom is measured beside them in a quick run, too.
    for target in plan.targets:
        if not target.memory and target.over in {entry.name for entry in plan.entries} and "server" not in target.ours:
            assert target.test in plan.entry(target.ours).quick
            assert target.test in plan.entry(target.over).quick


def test_every_variable_that_the_plan_wants_is_written_by_the_setup(scripts: SimpleNamespace) -> None:
    wanted = {name for entry in scripts.plan.read_plan(PEERS / "plan.toml", {}).entries for name in entry.missing}
    setup = (PEERS / "setup.sh").read_text()
    assert {name for name in wanted if f"{name}='" not in setup} == {"HERE"}


def test_variables_are_filled_in_and_missing_ones_are_told(read: Any) -> None:
    plan = read(
        """
        [[entries]]
        name = "some"
        command = ["$PY", "x.py", "--model", "$M/a"]
        environment = { LD_PRELOAD = "$LIB:$LIB" }
        weights = "$M/w"
        """,
        PY="python",
        M="/m",
    )
    (entry,) = plan.entries
    assert entry.command == ("python", "x.py", "--model", "/m/a")
    assert entry.missing == ("LIB",)
    assert entry.weights == "/m/w"
    assert entry.tests == ("decode", "prefill", "batch", "prefix", "first")


SOME = '[[entries]]\nname = "some"\ncommand = ["x"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[entries]]\nname = "some"\n', r"entries 1 \(some\).*command"),
        (SOME + "quik = ['decode']", r"entries 1 \(some\) has quik; known are name, command"),
        (SOME + "missing = ['A']", "has missing; known are"),
        (SOME + "tests = ['decoding']", "names the test 'decoding'; there are decode, prefill"),
        (SOME + "tests = ['decode']\nquick = ['batch']", "quick tests that are not among its tests: batch"),
        (SOME + SOME, "two entries of .* have one name: some"),
        ("[[entry]]\nname = 'some'", "has entry; known are tests, entries, targets"),
        (SOME + "[[targets]]\nours = 'sum'\nwanted = 1.0", "targets 1 names 'sum'; there are some"),
        (SOME + "[[targets]]\nours = 'some'\nover = 'x'\nwanted = 1.0", "names 'x'; there are some, best peer, read"),
        (SOME + "[[targets]]\nours = 'some'\nmemory = true\nwanted = 1.0", "some does not say what its weights are"),
        (SOME + "tests = ['batch']\n[[targets]]\nours = 'some'\nwanted = 1.0", "some does not run the test 'decode'"),
        (SOME + "[[targets]]\nours = 'some'", "targets 1: .*wanted"),
    ],
)
def test_what_cannot_be_right_is_refused_with_its_place(
    read: Any, scripts: SimpleNamespace, text: str, message: str
) -> None:
    with pytest.raises(scripts.plan.PlanError, match=message):
        read(text)


def test_a_plan_of_other_tests_is_refused(read: Any, scripts: SimpleNamespace) -> None:
    with pytest.raises(scripts.plan.PlanError, match="are none; there must be decode, prefill"):
        read(SOME, tests="")


@pytest.fixture
def turns(scripts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The turns' module on a machine that is always quiet, and reads 40 GB/s."""
    monkeypatch.setattr(scripts.turns, "wait_until_quiet", lambda seconds: True)
    monkeypatch.setattr(scripts.turns, "read_bandwidth", lambda threads: 40.0)
    return scripts.turns


def manner(turns: Any, **changes: Any) -> Any:
    return turns.Manner(**{"threads": 2, "quick": False, "noise": 0.1, "tries": 3, "wait": 0, "limit": 9, **changes})


TWO = SOME + 'quick = ["decode"]\n' + SOME.replace("some", "other")


def test_entries_are_measured_in_turn_round_by_round(read: Any, turns: Any) -> None:
    plan, seen = read(TWO), []

    def start(entry: Any, flags: list[str], seconds: float) -> dict[str, Any]:
        seen.append((flags[1], entry.name, flags[3]))
        return {"value": 1.0, "other_cores": 0.0}

    records = list(turns.measurements(plan, plan.entries, ["decode", "batch"], None, manner(turns), start))
    assert seen == [(test, name, "2") for test in ("decode", "batch") for _ in range(3) for name in ("some", "other")]
    assert [record["round"] for record in records] == [0, 0, 1, 1, 2, 2] * 2
    assert {record["read_gbps"] for record in records} == {40.0}
    seen.clear()
    list(turns.measurements(plan, plan.entries, ["decode", "batch"], None, manner(turns, quick=True), start))
    assert seen == [("decode", "some", "1")]


def test_a_disturbed_measurement_is_made_again_and_the_calmest_counts(read: Any, turns: Any) -> None:
    plan = read(SOME)
    noises = iter((0.9, 0.3, 0.5, 0.4, 0.05))

    def start(entry: Any, flags: list[str], seconds: float) -> dict[str, Any]:
        noise = next(noises)
        return {"value": 1 - noise, "other_cores": noise}

    first, second = turns.measurements(plan, plan.entries, ["decode"], 2, manner(turns), start)
    assert (first["value"], first["tries"], first["disturbed"]) == (0.7, 3, True)
    assert (second["value"], second["tries"], second["disturbed"]) == (0.95, 2, False)


def test_who_failed_is_told_and_not_tried_in_later_rounds(read: Any, turns: Any) -> None:
    plan = read(TWO)

    def start(entry: Any, flags: list[str], seconds: float) -> dict[str, Any]:
        return {"error": "no memory"} if entry.name == "some" else {"value": 1.0, "other_cores": 0.0}

    records = list(turns.measurements(plan, plan.entries, ["decode"], 2, manner(turns), start))
    assert [(record["entry"], record.get("error")) for record in records] == [
        ("some", "no memory"),
        ("other", None),
        ("other", None),
    ]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('print("loading"); print(\'{"adapter": "a", "value": 2.5}\'); print("bye")', {"adapter": "a", "value": 2.5}),
        ('print(\'{"adapter": "a"}\'); import sys; sys.exit("out of luck")', "ended with 1: out of luck"),
        ("print('nothing')", "ended with 0: "),
    ],
)
def test_an_adapters_line_is_found_or_what_it_said(scripts: SimpleNamespace, code: str, expected: Any) -> None:
    entry = scripts.plan.Entry(name="some", command=(sys.executable, "-c", code), environment={})
    told = scripts.turns.start_adapter(entry, [], 60)
    assert told == (expected if isinstance(expected, dict) else {"error": expected})


def test_an_adapter_without_an_answer_is_ended(scripts: SimpleNamespace) -> None:
    code = "import subprocess; subprocess.run(['sleep', '1000'])"
    entry = scripts.plan.Entry(name="some", command=(sys.executable, "-c", code), environment={})
    # What it started holds its pipes, too: that this comes back shows that it is gone.
    assert scripts.turns.start_adapter(entry, [], 0.3) == {"error": "no answer in 0.3 s"}


def test_a_run_writes_its_document_and_tells_who_is_left_out(
    scripts: SimpleNamespace, turns: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    plan, weights, out = tmp_path / "plan.toml", tmp_path / "w", tmp_path / "out.json"
    weights.write_bytes(b"12345")
    line = '{"adapter": "a", "version": "1", "value": 5.0, "other_cores": 0.0, "peak_rss_mib": 3}'
    plan.write_text(
        f"{TESTS}\n[[entries]]\nname = 'some'\ncommand = ['$HERE', '-c', '''print('{line}')''']\nweights = '{weights}'\n"
        "[[entries]]\nname = 'absent'\ncommand = ['$SURELY_NOT_SET']\n"
    )
    monkeypatch.setattr(scripts.run, "PEAK", "print(100.0)")
    monkeypatch.setattr(scripts.run, "machine_facts", lambda wait, **more: {"cpu": "some", "cores": 2, **more})
    assert scripts.run.main(["--out", str(out), "--plan", str(plan), "--tests", "decode", "--rounds", "2"]) == 0
    told = json.loads(out.read_text())
    assert [(one["entry"], one["round"], one["value"]) for one in told["measurements"]] == [
        ("some", 0, 5),
        ("some", 1, 5),
    ]
    assert told["weights_bytes"] == {"some": 5}
    assert told["import_torch_mib"] == 100.0
    assert list(told["left_out"]) == ["absent"]
    assert "left out: absent ($SURELY_NOT_SET is not set" in capsys.readouterr().err
    assert scripts.run.main(["--out", str(out), "--plan", str(plan), "--only", "absent"]) == 2
