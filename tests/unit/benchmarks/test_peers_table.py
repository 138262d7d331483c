"""Ratios and tables of a run, of made-up numbers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

GB = 10**9


@pytest.fixture
def plan(scripts: SimpleNamespace) -> Any:
    module = scripts.plan
    entries = [
        module.Entry(name=name, command=("x",), ours=name.startswith("Ours"), environment={}, weights="w")
        for name in ("slow", "fast", "Ours", "Ours served")
    ]
    targets = [
        module.Target(ours="Ours", over="slow", wanted=1.25),
        module.Target(ours="Ours", over="best peer", wanted=1.25, aim=2.0),
        module.Target(ours="Ours", over="read bandwidth", wanted=0.85),
        module.Target(ours="Ours", test="first", wanted=3.0),
        module.Target(ours="Ours", memory=True, less="import torch", wanted=2.0),
        module.Target(ours="Ours served", over="Ours", test="batch", wanted=0.92),
    ]
    rounds = dict.fromkeys(
        scripts.workloads.WORKLOADS, module.Rounds(rounds=3, repetitions=1, quick=1, quick_repetitions=1)
    )
    return module.Plan(tests=rounds, entries=entries, targets=targets)


def record(entry: str, test: str, number: int, value: float, read: float = 40.0, **more: Any) -> dict[str, Any]:
    found = {"entry": entry, "test": test, "round": number, "value": value, "read_gbps": read, "disturbed": False}
    return found | {"adapter": entry, "version": "1", "peak_rss_mib": 500, **more}


@pytest.fixture
def told() -> dict[str, Any]:
    measurements = [
        *(record("slow", "decode", number, value) for number, value in enumerate((80.0, 50.0, 82.0))),
        *(record("fast", "decode", number, value) for number, value in enumerate((100.0, 60.0, 110.0))),
        *(record("Ours", "decode", n, value, read) for n, (value, read) in enumerate([(120, 40), (75, 20), (110, 40)])),
        record("slow", "first", 0, 0.5),
        record("Ours", "first", 0, 3.5),
        {"entry": "Ours served", "test": "batch", "round": 0, "error": "a|long\nno port", "read_gbps": 40.0},
    ]
    return {
        "made_at": "2026-01-02T03:04:05+00:00",
        "machine": {"cpu": "Some CPU", "cores": 2, "threads": 2},
        "import_torch_mib": 200.0,
        "quick": False,
        "seconds": 600,
        "weights_bytes": {"Ours": GB // 4},
        "left_out": {"absent": "$X is not set"},
        "measurements": measurements,
    }


def test_ratios_are_made_round_by_round(scripts: SimpleNamespace, plan: Any, told: dict[str, Any]) -> None:
    results = scripts.ratios.Results(told, plan)
    slow, best, read, first, memory, served = map(results.verdict, plan.targets)
    # The machine was slow in round 1 for both: the ratio is not moved by it.
    assert slow.ratio.values == pytest.approx((1.5, 1.5, 110 / 82))
    assert (slow.ratio.value, slow.met) == (1.5, True)
    assert best.over == "fast"
    assert best.ratio.value == pytest.approx(1.2)
    assert best.met is False
    assert read.ratio.values == pytest.approx((0.75, 0.9375, 0.6875))
    assert (first.ratio.values, first.met) == ((3.5,), False)
    assert memory.ratio.value == pytest.approx(300 * 2**20 / (GB / 4))
    assert memory.met is True
    assert (served.ratio, served.met) == (None, None)


def test_the_best_start_is_the_shortest(scripts: SimpleNamespace, plan: Any, told: dict[str, Any]) -> None:
    told["measurements"].append(record("fast", "first", 0, 9.0))
    assert scripts.ratios.Results(told, plan).best_peer("first") == "slow"
    assert scripts.ratios.Results(told, plan).best_peer("batch") is None


def test_the_table_tells_medians_spread_failures_and_what_is_behind(
    scripts: SimpleNamespace, plan: Any, told: dict[str, Any]
) -> None:
    told["measurements"][0]["disturbed"] = True
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in scripts.table.tables(told, plan).splitlines()]
    by_name = {row[0]: row[1:] for row in rows if row}
    assert by_name["slow"] == ["80.0† (50.0–82.0)", "–", "–", "–", "**0.50**", "500 / –"]
    assert by_name["Ours"] == ["**110.0** (75.0–120.0)", "–", "–", "–", "3.50", "500 / –"]
    assert by_name["Ours served"] == ["–", "–", "failed", "–", "–", "– / –"]
    assert by_name["decode: Ours over slow"] == ["1.50 (1.34–1.50)", "≥ 1.25", "met"]
    assert by_name["decode: Ours over best peer (fast)"] == ["1.20 (1.00–1.25)", "≥ 1.25, aim 2", "**behind**"]
    assert by_name["first: Ours, seconds"] == ["3.50 (3.50–3.50)", "≤ 3", "**behind**"]
    assert by_name["memory at one request: Ours, less what `import torch` takes, over its weights"][1:] == [
        "≤ 2",
        "met",
    ]
    assert by_name["batch: Ours served over Ours"] == ["–", "≥ 0.92", "not measured"]
    text = scripts.table.tables(told, plan)
    assert text.startswith(
        "Measured 2026-01-02, one run of 10 minutes: Some CPU, 2 cores, 2 threads; memory read at 40.0"
    )
    assert "† Others used the machine" in text
    assert "Failed: Ours served (no port)." in text
    assert "Not installed where this was measured: absent." in text


def test_a_page_gets_the_tables_between_its_markers(
    scripts: SimpleNamespace, plan: Any, told: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    table = scripts.table
    monkeypatch.setattr(table, "read_plan", lambda file, environ: plan)
    results, page = tmp_path / "r.json", tmp_path / "page.md"
    results.write_text(json.dumps(told))
    page.write_text(f"before\n\n{table.BEGIN}\nold\n{table.END}\n\nafter\n")
    for _ in range(2):  # again, and nothing is doubled
        assert table.main([str(results), "--write", str(page)]) == 0
        assert page.read_text() == f"before\n\n{table.BEGIN}\n\n{table.tables(told, plan)}\n\n{table.END}\n\nafter\n"
    page.write_text("no markers")
    assert table.main([str(results), "--write", str(page)]) == 2
    assert page.read_text() == "no markers"


def test_accuracy_comes_below(scripts: SimpleNamespace) -> None:
    def figure(value: float, target: str, met: bool | None, b: list[float]) -> dict[str, Any]:
        return {"what": "some", "value": value, "target": target, "met": met, "b": b}

    told = {
        "results": {
            "bf16_kl": figure(0.9, "<= 1.05", True, [1.0]),
            "bf16_perplexity": figure(1.0012, "", None, [1.0034]),
            "q4_1": figure(1.002, "1 ± 0.001", False, [9.0]),
        },
        "refused": {"w8a8_int8": "no ops plugin:\n  - torch: does not | declare it"},
    }
    assert scripts.table.accuracy(told).splitlines()[2:] == [
        "| some | 0.9000 | ≤ 1.05 | met |",
        "| some | 1.0012 (1.0034) |  |  |",
        "| some | 1.0020 | 1 ± 0.001 | **behind** |",
        "| w8a8_int8 | refused |  | torch: does not / declare it |",
    ]
