"""What `benchmarks/gpu` makes of rows: counts, verdicts and tables. Its sections are run by tests/e2e/test_gpu_benchmark.py."""

from __future__ import annotations

import math
from typing import Any

import pytest
from benchmarks.gpu.conformance import suite
from benchmarks.gpu.plan import REFERENCE, make_plan
from benchmarks.gpu.providers import Provider, providers
from benchmarks.gpu.shapes import MODELS, counts, tensors
from benchmarks.gpu.stack import Setup
from benchmarks.gpu.table import fraction, table
from benchmarks.gpu.verdict import common, differences, problems, unproven

from jackfield.hookspecs import NHD_PAGED
from jackfield.testing.attention_grid import cases

MACHINE = {"device": "a GPU", "cuda": "13.0", "python": "3.12.3", "versions": {"torch": "2.13"}}


def document(*rows: dict[str, Any], outcome: str = "done", **more: Any) -> dict[str, Any]:
    section = {"title": "some section", "outcome": outcome, "rows": list(rows)}
    return {"machine": MACHINE, "reference": "torch+torch", "absent": {}, "sections": [section], **more}


def test_the_large_shapes_are_those_of_the_models() -> None:
    """Parameters as their cards say, in billions."""
    for name, billions in (("llama-8b", 8.03), ("qwen-0.6b", 0.596)):
        elements = sum(math.prod(shape) for _, shape in tensors(MODELS[name]))
        assert elements / 1e9 == pytest.approx(billions, rel=2e-3)


def test_a_step_reads_every_matrix_and_every_key_once() -> None:
    """Of Llama-8B: 7.5 billion elements without the embedding, 128 KiB of keys and values a token in 16 bits."""
    llama = counts(MODELS["llama-8b"])
    assert llama.matrix_elements / 1e9 == pytest.approx(7.504, rel=1e-3)
    assert llama.decode_bytes(2, 10, 2) - llama.decode_bytes(2, 9, 2) == 2 * 128 * 1024
    assert llama.decode_flops(1, 0) == 2 * llama.matrix_elements
    # The same tokens in two chunks cost the same, but for the logits of one more token.
    whole, parts = llama.prefill_flops(100, 0), llama.prefill_flops(60, 0) + llama.prefill_flops(40, 60)
    assert parts - whole == 2 * llama.vocab_elements


def test_a_tied_head_is_read_as_well() -> None:
    qwen = counts(MODELS["qwen-0.6b"])
    assert qwen.matrix_elements == sum(math.prod(shape) for _, shape in tensors(MODELS["qwen-0.6b"]) if len(shape) == 2)


def test_every_provider_of_the_repository_is_found_by_its_files() -> None:
    found = providers()
    assert {"attention.torch", "attention.cpu", "ops.torch", "ops.cpu"} <= set(found)
    assert found["attention.torch"].module == "jackfield_attention_torch.torch"
    assert found["attention.torch"].absent("cpu") == ""


def test_a_plan_for_a_cpu_has_the_reference_and_says_what_is_absent() -> None:
    plan = make_plan("cpu", tiny=True)
    titles = [section.title for section in plan.sections]
    assert len(set(titles)) == len(titles)
    assert {"limits", f"llama-tiny {REFERENCE}", f"qwen-tiny {REFERENCE}", "conformance of ops.torch"} <= set(titles)
    assert all(why for why in plan.absent.values())
    assert not [section for section in plan.sections if section.arguments.get("plugin") in plan.absent]


def test_on_a_gpu_what_matters_most_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Provider, "absent", lambda self, device, dtype="bfloat16": "")
    plan = make_plan("cuda", tiny=False)
    titles = [section.title for section in plan.sections]
    assert len(set(titles)) == len(titles)
    assert not any(section.environment for section in plan.sections), "an interpreter on a GPU"
    beside = [section.together for section in plan.sections]
    assert beside == sorted(beside, reverse=True), "what measures nothing runs first, and by itself"
    assert titles[beside.index(False)] == "limits"
    assert max(i for i, title in enumerate(titles) if title.startswith("kernels")) < titles.index(
        f"llama-8b {REFERENCE}"
    )


def test_a_setup_is_written_as_it_is_read() -> None:
    for setup in (REFERENCE, Setup(attention="a", ops="b", graphs=True)):
        assert Setup.parse(str(setup)) == setup


def test_failures_and_ends_of_processes_are_problems() -> None:
    row = {"model": "m", "decode": 64, "failed": "Traceback ...\nRuntimeError: an illegal memory access\n"}
    assert problems(document(row)) == [
        "some section: model m, decode 64 failed: RuntimeError: an illegal memory access"
    ]
    ended = document(outcome="its process ended with code -11")
    assert problems(ended) == ["some section: its process ended with code -11: it said nothing"]
    assert problems(document({"model": "m", "decode": 64, "seconds": 1.0})) == []


def answers(setup: str, tokens: list[list[int]], dtype: str = "float32") -> dict[str, Any]:
    return {"sameness": "llama", "setup": setup, "dtype": dtype, "tokens": tokens}


def test_in_float32_one_other_token_is_a_difference() -> None:
    same, other = [[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 3, 4], [5, 6, 9, 8]]
    assert differences(document(answers("torch+torch", same), answers("x+y", same))) == []
    (told,) = differences(document(answers("torch+torch", same), answers("x+y", other)))
    assert told.startswith("x+y answers otherwise than torch+torch (llama, float32): 85.7%")
    assert (
        common(other, same) == 6 / 7
    )  # four of four and two of three: what comes behind the first difference does not count


def test_in_16_bits_a_late_difference_is_a_near_tie_and_many_are_not() -> None:
    long = [list(range(100))]
    late, early = [[*range(30), *[0] * 70]], [[1] * 100]
    for tokens, found in ((late, 0), (early, 1)):
        told = differences(document(answers("torch+torch", long, "bfloat16"), answers("x+y", tokens, "bfloat16")))
        assert len(told) == found


def test_what_was_not_run_is_unproven() -> None:
    left = {"model": "m", "decode": 256, "left_out": "it does not fit"}
    found = unproven(document(left, outcome="stopped: its time was over", absent={"ops.x": "x is not installed"}))
    assert found == [
        "ops.x: x is not installed",
        "some section: stopped: its time was over",
        "some section: it does not fit",
    ]
    compared = document(
        {"kernel": "attention.x", "seconds": 1e-5, "torch_failed": "Traceback\nRuntimeError: no kernel\n"}
    )
    assert unproven(compared) == ["some section: torch's own kernel failed: RuntimeError: no kernel"]
    assert problems(compared) == []
    assert unproven(document({"conformance": "ops.x", "checks": 3, "not_run": 2})) == [
        "some section: 2 checks were not run"
    ]


def test_a_fraction_is_of_the_limit_that_takes_longer() -> None:
    limits = (
        {"limit": "read", "bytes_per_second": 100.0},
        {"limit": "copy", "bytes_per_second": 80.0},
        {"limit": "matrix", "dtype": "bfloat16", "flops_per_second": 1000.0},
    )
    found = document(*limits)
    assert fraction(found, {"dtype": "bfloat16", "bytes": 50, "flops": 100}, 1.0) == 0.5
    assert fraction(found, {"dtype": "bfloat16", "bytes": 50, "flops": 800}, 1.0) == 0.8
    assert fraction(document(), {"dtype": "bfloat16", "bytes": 50, "flops": 800}, 1.0) is None


def test_the_table_shows_every_kind_of_row() -> None:
    shown = table(
        document(
            {"limit": "read", "bytes_per_second": 4e12},
            {"conformance": "ops.x", "check": "norm", "outcome": "passed", "seconds": 1.0},
            answers("torch+torch", [[1]]),
            answers("x+y", [[1]]),
            {
                "model": "m",
                "setup": "x+y",
                "dtype": "bfloat16",
                "decode": 1,
                "context": 9,
                "seconds": 0.004,
                "tokens_per_second": 250.0,
                "bytes": 8_000_000_000,
                "flops": 1,
            },
            {
                "model": "m",
                "setup": "x+y",
                "dtype": "bfloat16",
                "prefill": 8,
                "cached": 0,
                "seconds": 0.5,
                "tokens_per_second": 16.0,
                "flops": 1,
            },
            {
                "kernel": "attention.x",
                "what": "decode",
                "rows": 1,
                "dtype": "bfloat16",
                "seconds": 1e-5,
                "bytes": 20_000_000,
            },
            problems=["something failed"],
        )
    )
    assert "m      x+y    1     9        4.000    250       50.0%" in shown
    for text in ("read  4000 GB", "x+y    llama  float32  100.0%", "attention.x  decode 1  10.0", "- something failed"):
        assert text in shown


def test_conformance_tries_each_value_but_not_each_pair_of_them() -> None:
    """A kernel takes seconds to compile, and a check that outlasts its section is lost."""
    every = cases([NHD_PAGED])
    found = suite("attention.torch", "cpu")().possible(every)
    assert 2 * len(found) < len(every)
    assert {case.head_size for case in found} == {case.head_size for case in every}
    assert {tuple(case.lengths) for case in found} == {tuple(case.lengths) for case in every}
