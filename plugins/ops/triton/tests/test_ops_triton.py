"""`ops.triton`: what can be told of it in this process; its kernels run in the interpreter of another one."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import jackfield_ops_triton
from jackfield.hookspecs import DeviceDescription, Need, OpsContext
from jackfield_ops_triton import probe
from jackfield_ops_triton.options import TritonOpsOptions
from jackfield_ops_triton.triton import jackfield_ops

HERE = Path(__file__).parent
CONTEXT = {"kind": "ops", "name": "triton", "instance": "triton", "dtype": "float32", "layout": "nhd-paged"}


def test_the_kernels_in_the_interpreter() -> None:
    """The variable is read when the kernels' modules are imported, so this takes a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *map(str, HERE.glob("interpreted*.py"))],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_on_a_cpu_it_says_what_it_is_for() -> None:
    with pytest.raises(RuntimeError, match=r"runs on CUDA, not on 'cpu'.*--device cpu-interpreted"):
        jackfield_ops(OpsContext(device="cpu", **CONTEXT))


def described(capability: tuple[int, int] | None) -> DeviceDescription:
    return DeviceDescription(
        type="cuda", name="a GPU", available_memory=1, total_memory=1, cores=1, capability=capability, reason="test"
    )


@pytest.mark.parametrize(("capability", "told"), [((9, 0), []), ((8, 0), []), (None, []), ((7, 5), ["7.5"])])
def test_the_probe(capability: tuple[int, int] | None, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc")
    problems = [str(problem) for problem in probe.check(Need(device="cuda"), described(capability))]
    assert len(problems) == len(told)
    assert all(text in problem for text, problem in zip(told, problems, strict=True))


def test_the_probe_tells_of_the_absent_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton compiles a launcher in C; without a compiler the first kernel of a run would fail."""
    monkeypatch.setattr(probe, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    (problem,) = probe.check(Need(device="cuda"), described((9, 0)))
    assert "no C compiler" in str(problem)
    monkeypatch.setenv("CC", "some-cc")
    assert probe.check(Need(device="cuda"), described((9, 0))) == []


def test_the_probe_tells_of_the_absent_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setattr(probe, "find_spec", lambda name: None)
    (problem,) = probe.check(Need(device="cuda"), described((9, 0)))
    assert "triton is not installed" in str(problem)
    assert "jackfield-ops-triton[triton]" in str(problem)


def test_nothing_imports_triton_before_it_is_chosen() -> None:
    code = (
        "import sys, jackfield_ops_triton.triton, jackfield_ops_triton.probe; assert 'pydantic' not in sys.modules;"
        "import jackfield_ops_triton.options; assert not {'triton', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_manifest_and_the_entry_point_agree() -> None:
    manifest = tomllib.loads(Path(jackfield_ops_triton.__file__).with_name("plugin.toml").read_text())
    (row,) = manifest["plugin"]
    (point,) = [p for p in entry_points(group="jackfield.ops") if p.value.startswith("jackfield_ops_triton.")]
    assert (point.name, point.value) == (row["name"], "jackfield_ops_triton.triton")


def test_the_options_name_kernels() -> None:
    from jackfield_ops_triton.ops import KERNELS

    assert TritonOpsOptions().fused == KERNELS
    assert TritonOpsOptions(fused=["norm"]).fused == ("norm",)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="norms"):
        TritonOpsOptions(fused=["norms"])  # type: ignore[arg-type]


POINTERS = {
    **dict.fromkeys(("x", "residual", "weight", "normed", "total", "gate_up", "out", "qkv", "q"), "*bf16"),
    **dict.fromkeys(("k", "v"), "*fp8e4nv"),
    **dict.fromkeys(("q_weight", "k_weight", "cos", "sin", "eps", "logits", "temperature", "top_p", "min_p"), "*fp32"),
    **dict.fromkeys(("tops", "listed"), "*fp32"),
    **dict.fromkeys(("slots", "positions", "stream", "tokens", "limits"), "*i64"),
    **dict.fromkeys(("top_k", "lows", "highs", "lengths", "ids"), "*i32"),
    **dict.fromkeys(("eps", "q_eps", "k_eps"), "fp32"),
}
"""Of the kernels' arguments; the others are int32."""
SIZES = {"Q": 32, "K": 8, "HEAD": 80, "V_HEAD": 80, "WIDTH": 128, "V_WIDTH": 128, "HALF": 20, "PAGE": 16, "BLOCK": 4}
DRAW = {"ROOM": 4096, "SCALE": 2.0**45, "TILE": 8192}
KERNELS: dict[str, tuple[str, dict[str, Any], int]] = {
    "norm": ("norm._norm", {"SIZE": 3584, "BLOCK": 4096, "ADDS": True}, 16),
    "activation": ("activation._gated", {"ACTIVATION": 2, "BLOCK": 1024}, 4),
    "heads": ("heads._heads", {**SIZES, "Q_NORMS": True, "K_NORMS": True, "BY_POSITION": True, "MOST": 448.0}, 2),
    "survey": ("survey.survey", {**DRAW, "FLAT": 1024, "GREEDY": False}, 16),
    "race": ("race.race", {**DRAW, "LIST_TILE": 256, "LIST_WAYS": 32}, 16),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_each_kernel_compiles_for_a_gpu(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the first GPUs with a cache of eight bits, in bfloat16: what the interpreter takes, the compiler need not."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from importlib import import_module

    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    where, constants, warps = KERNELS[kernel]
    module, name = where.split(".")
    function = getattr(import_module(f"jackfield_ops_triton.kernels.{module}"), name)
    signature = {
        argument: "constexpr" if argument in constants else POINTERS.get(argument, "i32")
        for argument in function.arg_names
    }
    places = {(function.arg_names.index(argument),): value for argument, value in constants.items()}
    plain = {"eps", "q_eps", "k_eps", "vocab"}  # all others are multiples of 16, which the launcher tells the compiler
    many = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(function.arg_names)
        if name not in constants.keys() | plain
    }
    source = ASTSource(fn=function, signature=signature, constexprs=places, attrs=many)
    made = compile(
        source,
        target=GPUTarget("cuda", 89, 32),
        options={"num_warps": warps, "enable_fp_fusion": module not in ("survey", "race")},
    )
    assert made.asm["cubin"]
    assert made.metadata.shared <= 99 * 1024
