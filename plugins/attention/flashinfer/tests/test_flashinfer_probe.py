"""What selection learns before anything is imported, and that the calls are those of the real library."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path

import pytest
from plugins.attention.flashinfer.tests.api import RECORDED, VERSION, functions

from jackfield.hookspecs import DeviceDescription, Need
from jackfield.testing.recorded_signatures import signatures_to_json
from jackfield_attention_flashinfer import compiler, probe
from jackfield_attention_flashinfer.options import FlashInferOptions
from jackfield_attention_flashinfer.settings import Settings

GPU = DeviceDescription(type="cuda", name="A GPU", available_memory=1, total_memory=1, cores=1, capability=(9, 0))
OLD_GPU = DeviceDescription(
    type="cuda", name="An old GPU", available_memory=1, total_memory=1, cores=1, capability=(7, 5)
)
NEED = Need(device="cuda", dtype="bfloat16", head_sizes=(128,), page_size=16, layout="nhd-paged")


def told(monkeypatch: pytest.MonkeyPatch, need: Need, device: DeviceDescription, found: str | None) -> str:
    spec = None if found is None else ModuleSpec("flashinfer", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(probe, "version", lambda name: found)
    return " ".join(str(problem) for problem in probe.check(need, device))


def test_a_run_that_it_can_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, NEED, GPU, "0.7.4") == ""
    assert told(monkeypatch, NEED, GPU, "0.8.0rc1") == ""


def test_an_absent_package_is_named_with_what_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = told(monkeypatch, NEED, GPU, None)
    assert 'flashinfer-python is not installed (pip install "jackfield-attention-flashinfer[flashinfer]")' in text


def test_what_the_kernels_do_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "0.2.5 is older than 0.7.4" in told(monkeypatch, NEED, GPU, "0.2.5")
    assert "An old GPU has compute capability 7.5; FlashInfer's kernels need 8.0" in told(
        monkeypatch, NEED, OLD_GPU, "0.7.4"
    )
    odd = Need(device="cuda", dtype="bfloat16", head_sizes=(80, 128))
    assert "heads of size 80; FlashInfer's kernels have 64, 128, 256" in told(monkeypatch, odd, GPU, "0.7.4")


def test_neither_probe_nor_entry_point_imports_torch_or_flashinfer() -> None:
    code = "import sys, jackfield_attention_flashinfer.flashinfer, jackfield_attention_flashinfer.probe\n"
    code += "sys.exit('torch' in sys.modules or 'flashinfer' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_recorded_signatures_are_the_library_s() -> None:
    if importlib.util.find_spec("flashinfer") is None:
        pytest.skip(f"flashinfer-python is not installed; the signatures of {VERSION} are taken from the file")
    if version("flashinfer-python") != VERSION:
        pytest.skip(f"flashinfer-python {version('flashinfer-python')} is here; the file is of {VERSION}")
    assert signatures_to_json(functions()) == RECORDED.read_text()


def test_the_options_are_the_settings() -> None:
    """Each with the same default."""
    assert FlashInferOptions().model_dump() == vars(Settings())


def test_a_missing_compiler_is_told_before_a_start_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without nvcc or ninja the first plan would fail, behind the loading of the weights."""
    for name in ("CUDA_HOME", "CUDA_PATH", "FLASHINFER_NVCC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(compiler, "LAST_PLACE", tmp_path / "cuda")
    monkeypatch.setattr(probe, "version", lambda name: "0.7.4")
    installed = {"flashinfer"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: ModuleSpec(name, None) if name in installed else None)

    def found() -> list[str]:
        return [str(problem) for problem in probe.check(NEED, GPU)]

    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    nvcc, ninja = found()
    assert "nvcc is not here" in nvcc
    assert "ninja, with which FlashInfer builds its kernels, is not on PATH (pip install ninja)" in ninja
    (scripts := tmp_path / "scripts").mkdir()
    (scripts / "ninja").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(scripts / "python"))
    assert f'is not on PATH (export PATH="{scripts}:$PATH")' in found()[1]
    installed.add("flashinfer_jit_cache")
    assert found() == []
    installed.remove("flashinfer_jit_cache")
    for name in ("nvcc", "ninja"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert found() == []
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "other"))  # FlashInfer then looks nowhere else
    (nvcc,) = found()
    (tmp_path / "other" / "bin").mkdir(parents=True)
    (tmp_path / "other" / "bin" / "nvcc").touch()
    assert found() == []
    assert compiler.compiler_problems() == []
