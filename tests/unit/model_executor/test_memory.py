"""What a container's limit leaves of the machine's memory."""

from __future__ import annotations

from pathlib import Path

from jackfield.model_executor.device import CpuDevice
from jackfield.model_executor.memory import cgroup_available, host_available


def test_a_container_limit_counts_file_cache_as_available(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 100\nactive_file 50\n")
    assert cgroup_available(tmp_path) == 450
    (tmp_path / "memory.max").write_text("max\n")
    assert cgroup_available(tmp_path) is None


def test_the_older_control_groups_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text("1000\n")
    (tmp_path / "memory/memory.usage_in_bytes").write_text("1100\n")
    (tmp_path / "memory/memory.stat").write_text("cache 0\n")
    assert cgroup_available(tmp_path) == 0
    (tmp_path / "memory/memory.limit_in_bytes").write_text(str(2**63 - 4096))
    assert cgroup_available(tmp_path) is None
    assert cgroup_available(tmp_path / "nowhere") is None


def test_this_machine_has_memory() -> None:
    assert CpuDevice().memory().total > CpuDevice().memory().free > 2**20
    assert host_available() > 2**20
