"""Ratios of two measurements, what is refused, and what is told beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jackfield.entrypoints.bench.compare import ratios
from jackfield.entrypoints.bench.document import document
from jackfield.entrypoints.bench.summary import summary
from jackfield.entrypoints.bench.workloads import workload
from jackfield.entrypoints.cli import main

MACHINE = {"quiet": True, "cpu": "Fast", "cores": 2, "settings": {}}
STACK = {"hash": "a" * 64, "plugins": {"ops.torch": {"distribution": "x 1", "options": {}}}}


def offline(speeds: Sequence[float], ttft: Sequence[float] = (1.0,), **changes: Any) -> dict[str, Any]:
    parts = {
        "label": "",
        "rounds": [],
        "model": "m",
        "workload": workload("decode").facts(),
        "machine": MACHINE,
        "stack": STACK,
        "args": {"dtype": "auto"},
        "results": {
            "decode_tokens_per_s": summary(speeds, "tokens/s", "higher"),
            "ttft_s": summary(ttft, "s", "lower"),
        },
    }
    return document("offline", **{**parts, **changes})


def serve(points: dict[float, Sequence[float]], **changes: Any) -> dict[str, Any]:
    loads = [
        {
            "load": {"mode": "closed", "value": value},
            "results": {"output_tokens_per_s": summary(speeds, "tokens/s", "higher")},
            "rounds": [{"failures": {}} for _ in speeds],
        }
        for value, speeds in points.items()
    ]
    parts = {
        "label": "",
        "model": "m",
        "server": "s",
        "api": "openai-chat",
        "workload": {"prompt_tokens": "5"},
        "machine": MACHINE,
        "stack": None,
        "args": None,
        "limits": {},
        "loads": loads,
    }
    return document("serve", **{**parts, **changes})


@pytest.fixture
def compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command on two documents: (exit code, what it said)."""

    def run(a: Any, b: Any, *words: str) -> tuple[int, str]:
        for name, told in (("a", a), ("b", b)):
            (tmp_path / f"{name}.json").write_text(told if isinstance(told, str) else json.dumps(told))
        code = main(["bench", "compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), *words])
        shown = capsys.readouterr()
        return code, shown.out + shown.err

    return run


def test_more_is_better_of_speeds_and_less_of_times() -> None:
    speed, ttft = ratios(offline([10, 9, 12], [4.0, 5.0, 4.0]), offline([20, 18, 21], [8.0, 8.0, 10.0]))
    assert (speed.figure, speed.a, speed.b, speed.ratio) == ("decode_tokens_per_s", 10, 20, 2.0)
    assert (speed.least, speed.most, speed.verdict) == (18 / 12, 21 / 9, "better")
    assert (ttft.ratio, ttft.least, ttft.most, ttft.verdict) == (0.5, 4 / 10, 5 / 8, "worse")


def test_less_than_the_rounds_differ_is_no_difference() -> None:
    speed = ratios(offline([10, 8, 12]), offline([11, 9, 13]))[0]
    assert speed.ratio == 1.1
    assert speed.verdict == "within the spread"


def test_the_loads_of_both_are_compared(compared: Any) -> None:
    a, b = serve({1: [10.0], 4: [30.0]}), serve({4: [45.0], 8: [60.0]})
    (one,) = ratios(a, b)
    assert (one.load, one.ratio) == ("4 at a time", 1.5)
    code, text = compared(a, b)
    assert code == 0
    assert "only A has the load 1 at a time" in text
    assert "only B has the load 8 at a time" in text


def test_the_table_and_the_notes(compared: Any) -> None:
    other = {"hash": "b" * 64, "plugins": {"ops.cpu": STACK["plugins"]["ops.torch"]}}  # type: ignore[index]
    b = offline(
        [20.0], machine={**MACHINE, "quiet": False, "cores": 4}, stack=other, args={"dtype": "float32"}, model="n"
    )
    code, text = compared(offline([10.0]), b)
    assert code == 0
    (row,) = [line for line in text.splitlines() if line.startswith("decode_tokens_per_s")]
    assert row.split() == ["decode_tokens_per_s", "tokens/s", "10", "20", "2.000", "2.000", "..", "2.000", "better"]
    for note in (
        "B was not measured on a quiet machine",
        "the machines differ: cores is 2 in A and 4 in B",
        'model is "m" in A and "n" in B',
        "the stacks differ",
        "stacks: ops.torch is",
        'settings: dtype is "auto" in A and "float32" in B',
    ):
        assert note in text
    assert "A was not measured" not in text


def test_the_same_stack_is_told(compared: Any) -> None:
    assert "both ran the same stack" in compared(offline([10.0]), offline([20.0]))[1]


def test_a_bound_for_ci(compared: Any) -> None:
    a, b = offline([10.0], [1.0]), offline([9.6], [2.0])
    assert compared(a, b, "--fail-below", "0.95")[0] == 0
    code, text = compared(a, b, "--fail-below", "0.97")
    assert code == 1
    assert "below 0.97: decode_tokens_per_s 0.960" in text
    assert compared(a, b, "--fail-below", "0.95", "--figure", "ttft_s")[0] == 1
    code, text = compared(a, b, "--fail-below", "0.95", "--figure", "tft_s")
    assert code == 2
    assert "there is no figure 'tft_s'; did you mean 'ttft_s'" in text


def test_any_load_may_fail_the_bound(compared: Any) -> None:
    code, text = compared(serve({1: [10.0], 4: [10.0]}), serve({1: [11.0], 4: [8.0]}), "--fail-below", "0.9")
    assert code == 1
    assert "below 0.9: output_tokens_per_s 4 at a time 0.800" in text


def test_json(compared: Any) -> None:
    code, text = compared(offline([0.0]), offline([5.0]), "--json", "--fail-below", "1")
    told = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert code == 0
    assert told["ratios"][0]["ratio"] is None  # over nothing
    assert told["ratios"][0]["verdict"] == "better"
    assert told["below"] == []
    assert (
        json.loads(compared(offline([5.0]), offline([4.0]), "--json", "--fail-below", "1")[1])["below"][0]["b"] == 4.0
    )


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (offline([1.0]), serve({1: [1.0]}), "A was measured by `bench offline` and B by `bench serve`"),
        (
            offline([1.0]),
            offline([1.0], workload=workload("decode", prompt_tokens=9).facts()),
            "did different work, so their ratio says nothing: prompt_tokens is 128 in A and 9 in B",
        ),
        (serve({1: [1.0]}), serve({1: [1.0]}, api="openai-completions"), "api is"),
        (serve({1: [1.0]}), serve({2: [1.0]}), "no figure of the same load in common: 1 at a time and 2 at a time"),
        (offline([1.0]), "{", "is no JSON document"),
        (offline([1.0]), "[]", "is not what `jackfield bench` writes"),
        (offline([1.0]), {"schema": 1, "kind": ["offline"]}, "is not what `jackfield bench` writes"),
        (offline([1.0]), {"schema": 1, "kind": "serve", "api": ""}, "is not whole: label, model, workload"),
        (offline([1.0]), {"results": 5}, "is not what `jackfield bench` writes"),
        (offline([1.0]), offline([1.0], results=[]), "Expected `object`, got `array` - at `$.results`"),
        (offline([1.0]), offline([1.0], results={"ttft_s": {"value": 1.0}}), "missing required field `min`"),
        (offline([1.0]), offline([1.0], results={"ttft_s": None}), "at `$.results[...]`"),
        (offline([1.0]), offline([1.0], workload={"name": "decode"}), "field `figure` - at `$.workload`"),
        (offline([1.0]), offline([1.0], machine={}), "field `quiet` - at `$.machine`"),
        (offline([1.0]), offline([1.0], stack={"hash": "a"}), "field `plugins` - at `$.stack`"),
        (
            serve({1: [1.0]}),
            serve({}, loads=[{"load": {"mode": "odd", "value": 1}, "results": {}, "rounds": []}]),
            "'odd'",
        ),
        (serve({1: [1.0]}), serve({}, loads={"1": 2}), "at `$.loads`"),
        (offline([1.0]), {**offline([1.0]), "schema": 2}, "has schema 2, and 1 is what this version reads"),
    ],
)
def test_nonsense_is_refused(compared: Any, a: Any, b: Any, text: str) -> None:
    code, said = compared(a, b)
    assert code == 2
    assert text in said


def test_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", "compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "cannot be read" in capsys.readouterr().err
