"""The benchmark scripts run and tell where their numbers come from. Their numbers are nobody's business here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_serving(tiny_model: Path) -> None:
    command = [sys.executable, ROOT / "benchmarks" / "serving.py", "--quick", "--json", "--topology", "inline"]
    command += ["--model-path", tiny_model, "--rounds", "2", "--wait", "0", "--threads", "1"]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    results = told["results"]["inline"]
    assert set(results) == {"batching", "sharing", "overlapping", "outside_the_worker"}
    for result in results.values():
        assert len(result["ratios"]) == len(result["a"]) == len(result["b"]) == 2
        assert all(side > 0 for side in result["a"] + result["b"])
        assert isinstance(result["met"], bool)
    assert all(0 < share < 1 for share in results["outside_the_worker"]["ratios"])
    assert {len(digest) for digest in told["stacks"]["inline"].values()} == {64}
    assert set(told["machine"]) >= {"quiet", "cores", "threads"}


def test_scheduler() -> None:
    command = [sys.executable, ROOT / "benchmarks" / "scheduler.py", "--quick", "--json"]
    command += ["--rounds", "2", "--wait", "0"]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    results = told["results"]
    decode = {f"decode_step_{running}" for running in (2, 4, 8)}
    cached = {"match_insert_1", "match_insert_100", "intake_long", "admit_cached_long"}
    queue = {"waiting_10_hints", "waiting_10_forest", "waiting_10_lpm_order", "waiting_10_dfs_weight_order"}
    ratios = {"waiting_10_fcfs", "decision_record", "refused_long", "overlap_device", "overlap_thread"}
    ratios |= {"observers_absent", "large_cache", "large_cache_evicting", "linear_in_running", "overlap_slowdown"}
    assert set(results) == decode | cached | queue | ratios
    for name in decode | cached | queue:
        assert results[name]["value"] > 0
        assert all(value > 0 for value in results[name]["values"])
    for name in ratios:
        assert len(results[name]["a"]) == len(results[name]["b"]) == len(results[name]["values"]) == 2
    assert {len(digest) for digest in told["packages"].values()} == {64}
    assert "quiet" in told["machine"]


@pytest.mark.goal_row(32)
def test_hooks() -> None:
    command = [sys.executable, ROOT / "benchmarks" / "hooks.py", "--quick", "--json", "--rounds", "2", "--wait", "0"]
    results = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)["results"]
    assert set(results) == {"observers_five", "observers_five_scheduler", "observers_five_decisions"}
    for figure in results.values():
        assert len(figure["a"]) == len(figure["b"]) == len(figure["values"]) == 2


def test_grammar() -> None:
    command = [sys.executable, ROOT / "benchmarks" / "grammar.py", "--quick", "--json", "--backend", "llguidance"]
    command += ["--rounds", "1", "--wait", "0"]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    figure = told["results"]["llguidance_first_use"]
    assert (figure["unit"], len(figure["values"])) == ("ms", 3)
    assert "jackfield_grammar_llguidance" in told["packages"]


@pytest.mark.slow
def test_streaming() -> None:
    command = [sys.executable, ROOT / "benchmarks" / "streaming.py", "--json", "--wait", "0", "--rounds", "1"]
    command += ["--streams", "4", "--tokens", "40"]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    (ours,), (bare,) = told["ours"], told["bare"]
    assert bare["events"] == 4 * (40 + 1)  # [DONE] is one
    assert 0 < ours["events"] <= 4 * (40 + 3)  # the role, the end, [DONE]
    assert ours["client_cpu_seconds"] > 0
    assert set(told["paced"]["added_ms"]) == {"p50", "p99", "max"}
    assert isinstance(told["met"], bool)


def test_cpu_kernels() -> None:
    command = [sys.executable, ROOT / "benchmarks" / "cpu_kernels.py", "--quick", "--json", "--threads", "2"]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    (figures,) = told["shapes"].values()
    assert set(figures) > {"read", "gigabytes", "rows_2", "rows_32", "torch_32", "gigaflops_32"}
    assert all(value > 0 for value in figures.values())
    assert told["level"]
