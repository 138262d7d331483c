"""Devices and their memory, with a made-up driver and made-up control groups."""

from __future__ import annotations

import ctypes
import os
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from jackfield.config import device, torch_build
from jackfield.config.cgroup import CgroupLimits, cgroup_limits
from jackfield.config.cuda_driver import CudaDevice, first_cuda_device
from jackfield.config.device import describe_device, usable_cores
from jackfield.config.errors import ConfigurationError

GIB = 2**30


class FakeCuda:
    """The calls of libcuda that are used, writing through the pointers as the driver does."""

    def __init__(self, *, count: int = 1, init: int = 0) -> None:
        self.count, self.init = count, init

    def cuInit(self, flags: int) -> int:
        return self.init

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.count
        return 0

    def cuDeviceGet(self, handle: Any, ordinal: int) -> int:
        handle._obj.value = 7
        return 0

    def cuDeviceTotalMem_v2(self, total: Any, handle: Any) -> int:
        assert handle.value == 7
        total._obj.value = 80 * GIB
        return 0

    def cuDeviceGetName(self, buffer: Any, length: int, handle: Any) -> int:
        buffer.value = b"Some GPU"
        return 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, handle: Any) -> int:
        value._obj.value = {75: 9, 76: 0}[attribute]
        return 0

    def cuDeviceGetUuid(self, raw: Any, handle: Any) -> int:
        raw._obj[:] = list(range(16))
        return 0

    def cuGetErrorString(self, status: int, text: Any) -> int:
        text._obj.value = b"no CUDA-capable device is detected"
        return 0


class FakeNvml:
    def __init__(self) -> None:
        self.closed = False

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, name: bytes, handle: Any) -> int:
        return 0 if name == b"GPU-00010203-0405-0607-0809-0a0b0c0d0e0f" else 6

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        memory._obj.free = 70 * GIB
        return 0

    def nvmlShutdown(self) -> int:
        self.closed = True
        return 0


def libraries(**known: Any) -> Any:
    def load(name: str) -> Any:
        stem = name.split(".")[0].removeprefix("lib").replace("-", "_")
        if stem not in known:
            raise OSError(name)
        return known[stem]

    return load


def test_a_cuda_device_is_described_without_torch() -> None:
    nvml = FakeNvml()
    found, _ = first_cuda_device(libraries(cuda=FakeCuda(count=2), nvidia_ml=nvml))
    assert found == CudaDevice(name="Some GPU", capability=(9, 0), free_memory=70 * GIB, total_memory=80 * GIB, count=2)
    assert nvml.closed


def test_without_the_management_library_all_memory_counts_as_free() -> None:
    found, _ = first_cuda_device(libraries(cuda=FakeCuda()))
    assert found is not None
    assert found.free_memory == 80 * GIB


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (libraries(), "not installed"),
        (libraries(cuda=FakeCuda(init=100)), "error 100, no CUDA-capable device is detected"),
        (libraries(cuda=FakeCuda(count=0)), "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_the_reason_why_there_is_no_cuda_device(load: Any, said: str) -> None:
    found, why_not = first_cuda_device(load)
    assert found is None
    assert said in why_not


def test_the_fields_of_the_memory_record_are_the_drivers() -> None:
    from jackfield.config.cuda_driver import _NvmlMemory

    assert ctypes.sizeof(_NvmlMemory) == 24
    assert _NvmlMemory.free.offset == 8


def with_cuda(monkeypatch: pytest.MonkeyPatch, load: Any, cpu_build: str = "") -> None:
    """cpu_build: version of the torch that is installed, if it is one without CUDA."""
    monkeypatch.setattr(device, "first_cuda_device", lambda: first_cuda_device(load))
    monkeypatch.setattr(device, "without_cuda", lambda: cpu_build)


def test_cuda_asked_for_and_absent_is_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cuda(monkeypatch, libraries())
    with pytest.raises(ConfigurationError, match=r"--device cuda: .*not installed; use --device cpu"):
        describe_device("cuda")


def test_auto_takes_cuda_if_it_is_there_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with_cuda(monkeypatch, libraries(cuda=FakeCuda(), nvidia_ml=FakeNvml()))
    found = describe_device("auto")
    assert (found.type, found.capability, found.available_memory) == ("cuda", (9, 0), 70 * GIB)
    assert found.reason == "a CUDA device is there"
    with_cuda(monkeypatch, libraries())
    found = describe_device("auto")
    assert (found.type, found.capability) == ("cpu", None)
    assert "no CUDA device" in found.reason


def test_a_gpu_is_of_no_use_to_a_torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be taken, and the start end when the model is loaded: "Torch not compiled with CUDA enabled"."""
    with_cuda(monkeypatch, libraries(cuda=FakeCuda(), nvidia_ml=FakeNvml()), cpu_build="2.13.0+cpu")
    found = describe_device("auto")
    assert (found.type, found.capability) == ("cpu", None)
    assert "Some GPU is here, but torch 2.13.0+cpu is built without CUDA" in found.reason
    with pytest.raises(
        ConfigurationError, match=r"--device cuda: Some GPU is here, but torch 2\.13\.0\+cpu is built without"
    ):
        describe_device("cuda")


VERSION_FILE = """from typing import Optional

__all__ = ['__version__', 'debug', 'cuda']
__version__ = '2.13.0+some'
debug = False
cuda: Optional[str] = {cuda}
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (VERSION_FILE.format(cuda=None), "2.13.0+some"),
        (VERSION_FILE.format(cuda="'13.0'"), ""),
        ("cuda = None\n", "of an unknown version"),
        ("", ""),
        (None, ""),
    ],
)
def test_how_torch_is_built_stands_in_its_files(
    text: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "__init__.py").write_text("raise AssertionError('torch was imported')")
    if text is not None:
        (tmp_path / "version.py").write_text(text)
    spec = ModuleSpec("torch", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(torch_build, "find_spec", lambda name: spec)
    assert torch_build.without_cuda() == told


def test_how_the_installed_torch_is_built() -> None:
    import torch

    assert torch_build.without_cuda() == ("" if torch.version.cuda else torch.__version__)


def test_no_torch_is_no_torch_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_build, "find_spec", lambda name: None)
    assert torch_build.without_cuda() == ""


def test_an_unknown_device_offers_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="'gpu' is no device"):
        describe_device("gpu")


def test_this_machine() -> None:
    found = describe_device("cpu")
    assert found.type == "cpu"
    assert 0 < found.available_memory <= found.total_memory
    assert 1 <= found.cores <= (os.cpu_count() or 1)


def test_a_container_bounds_memory_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = CgroupLimits(memory=GIB, memory_left=GIB // 2, cores=1.5)
    monkeypatch.setattr(device, "cgroup_limits", lambda: limits)
    found = describe_device("cpu")
    assert (found.available_memory, found.total_memory) == (GIB // 2, GIB)
    assert usable_cores() == 1
    monkeypatch.setattr(device, "cgroup_limits", lambda: CgroupLimits(cores=0.2))
    assert usable_cores() == 1


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_version_2_takes_the_tightest_limit_on_the_way_up(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "self": "0::/a/b\n",
            "a/memory.max": "1000\n",
            "a/memory.current": "900\n",
            "a/memory.stat": "anon 500\ninactive_file 300\n",
            "a/b/memory.max": "2000\n",
            "a/b/memory.current": "100\n",
            "a/b/cpu.max": "150000 100000\n",
            "a/cpu.max": "max 100000\n",
        },
    )
    assert cgroup_limits(root, root / "self") == CgroupLimits(memory=1000, memory_left=400, cores=1.5)


def test_inside_a_container_the_root_is_the_group(tmp_path: Path) -> None:
    root = tree(
        tmp_path, {"self": "0::/not/visible/here\n", "memory.max": "500", "memory.current": "600", "cpu.max": "1 1"}
    )
    assert cgroup_limits(root, root / "self") == CgroupLimits(memory=500, memory_left=0, cores=1.0)


def test_version_1(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "self": "5:memory:/x\n3:cpu,cpuacct:/x\n1:name=systemd:/\n",
            "memory/x/memory.limit_in_bytes": "4000",
            "memory/x/memory.usage_in_bytes": "1000",
            "memory/x/memory.stat": "total_inactive_file 500\n",
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "memory/memory.usage_in_bytes": "1000",
            "cpu,cpuacct/x/cpu.cfs_quota_us": "200000",
            "cpu,cpuacct/x/cpu.cfs_period_us": "100000",
            "cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
    )
    assert cgroup_limits(root, root / "self") == CgroupLimits(memory=4000, memory_left=3500, cores=2.0)


@pytest.mark.parametrize("limit", ["max\n", "", "what\n"])
def test_no_limit(limit: str, tmp_path: Path) -> None:
    root = tree(tmp_path, {"self": "0::/\n", "memory.max": limit, "memory.current": "1"})
    assert cgroup_limits(root, root / "self") == CgroupLimits()
    assert cgroup_limits(root / "absent", root / "absent") == CgroupLimits()
