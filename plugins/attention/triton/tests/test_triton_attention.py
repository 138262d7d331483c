"""`attention.triton`: what can be told of it in this process; its kernels run in the interpreter of another one."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import jackfield_attention_triton
from jackfield.hookspecs import NHD_PAGED, DeviceDescription, Need
from jackfield.testing.attention_batches import AttentionCase, prepare
from jackfield_attention_triton import probe
from jackfield_attention_triton.triton import jackfield_attention_backend

HERE = Path(__file__).parent


def test_the_kernels_in_the_interpreter() -> None:
    """The variable is read when the kernels' modules are imported, so this takes a process of its own."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            *map(str, HERE.glob("interpreted_*.py")),
        ],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_on_a_cpu_it_says_what_it_is_for() -> None:
    prepared = prepare(AttentionCase(lengths=((0, 3),), layout=NHD_PAGED))
    with pytest.raises(RuntimeError, match=r"runs on CUDA, not on 'cpu'.*--device cpu-interpreted"):
        jackfield_attention_backend(prepared.context)


def described(capability: tuple[int, int] | None) -> DeviceDescription:
    return DeviceDescription(
        type="cuda", name="a GPU", available_memory=1, total_memory=1, cores=1, capability=capability, reason="test"
    )


@pytest.mark.parametrize(
    ("capability", "head_size", "text"),
    [((9, 0), 128, None), ((8, 0), 512, None), (None, 64, None), ((7, 5), 128, "7.5"), ((9, 0), 576, "heads of 576")],
)
def test_the_probe(
    capability: tuple[int, int] | None, head_size: int, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "cc")
    problems = probe.check(Need(device="cuda", head_sizes=(head_size,)), described(capability))
    assert [str(problem) for problem in problems if text is None or text not in str(problem)] == []
    assert bool(problems) == (text is not None)


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
    assert "jackfield-attention-triton[triton]" in str(problem)


def test_nothing_imports_triton_before_it_is_chosen() -> None:
    code = (
        "import sys, jackfield_attention_triton.triton, jackfield_attention_triton.probe, jackfield_attention_triton.options;"
        "assert not {'triton', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_manifest_and_the_entry_point_agree() -> None:
    manifest = tomllib.loads(Path(jackfield_attention_triton.__file__).with_name("plugin.toml").read_text())
    (row,) = manifest["plugin"]
    (point,) = [
        p for p in entry_points(group="jackfield.attention") if p.value.startswith("jackfield_attention_triton.")
    ]
    assert (point.name, point.value) == (row["name"], "jackfield_attention_triton.triton")
