"""What selection learns of a machine on which the library cannot be used."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jackfield_ops_cpu import probe
from jackfield_ops_cpu.library import NativeLibraryMissing


def test_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise NativeLibraryMissing("the native library was not built: no C++ compiler was found")

    assert probe.check() == []
    monkeypatch.setattr(probe, "library", missing)
    (problem,) = probe.check()
    assert "no C++ compiler" in problem.text


def test_neither_probe_nor_entry_point_imports_torch() -> None:
    imports = "import sys, jackfield_ops_cpu.ops_plugin, jackfield_ops_cpu.probe as probe"
    code = f"{imports}\nprobe.check()\nsys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
