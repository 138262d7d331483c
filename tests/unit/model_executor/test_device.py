"""The device layer: it alone names CUDA on the torch side, and the stand-in of the tests tells what a GPU would not bear."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import jackfield
from jackfield.model_executor.device import CpuDevice, open_device
from jackfield.testing.fake_device import FakeDevice

SOURCES = [Path(jackfield.__file__).parent / folder for folder in ("layers", "model_executor")]


def test_one_file_of_the_torch_side_names_cuda() -> None:
    names = ("torch.cuda", "torch.Event", "torch.Stream", "CUDAGraph")
    found = {
        file.name for folder in SOURCES for file in folder.rglob("*.py") if any(n in file.read_text() for n in names)
    }
    assert found == {"cuda.py"}


def test_pinned_memory_is_asked_for_in_two_places() -> None:
    found = {file.name for folder in SOURCES for file in folder.rglob("*.py") if "pin_memory" in file.read_text()}
    assert found == {"cuda.py", "to_device.py"}


def test_the_host_is_a_device() -> None:
    device = open_device(torch.device("cpu"))
    assert isinstance(device, CpuDevice)
    numbers = np.arange(3)
    copied, same = device.upload(numbers, np.int32), device.hand_over(numbers)
    numbers[0] = 9
    assert (copied.tolist(), copied.dtype, same.tolist()) == ([0, 1, 2], torch.int32, [9, 1, 2])
    device.fill(same, np.array([4, 5, 6]))
    arrived = device.download([same])
    arrived.wait(timeout=0.0)
    assert arrived.ready()
    assert arrived.tensors[0].tolist() == numbers.tolist() == [4, 5, 6]
    memory = device.memory()
    assert 2**20 < memory.free <= memory.total
    with pytest.raises(RuntimeError, match="no recorded work"):
        device.capture(lambda: None, device.graph_pool())


def test_a_device_that_nobody_wrote_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'meta'"):
        open_device(torch.device("meta"))


@torch.inference_mode()
def test_a_recording_reads_tensors_and_not_what_python_knew() -> None:
    device = FakeDevice()
    given, table = torch.tensor([1.0, 2.0]), torch.zeros(4)
    factor = 2.0

    def run() -> torch.Tensor:
        table[1:3] = given * factor  # a view, and a write through it
        return table.reshape(2, 2).sum(dim=1)

    graph = device.capture(run, device.graph_pool())
    outputs = graph.outputs
    assert outputs.tolist() == [2.0, 4.0]
    factor = 100.0
    device.fill(given, np.array([5.0, 6.0], dtype=np.float32))
    assert outputs.tolist() == [2.0, 4.0]
    graph.replay()
    assert graph.outputs is outputs
    assert outputs.tolist() == [10.0, 12.0]
    assert device.log == ["capture", "fill", "replay"]


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (lambda _, x: x * int(x.sum()), "synchronise aten._local_scalar_dense"),
        (lambda _, x: x[x > 0], "synchronise aten.index"),
        (lambda _, x: x.nonzero(), "synchronise aten.nonzero"),
        (lambda _, x: x.cpu() + 1, r"synchronise Tensor\.cpu"),
        (lambda _, x: torch.from_numpy(x.numpy() + 1) + x, r"synchronise Tensor\.numpy"),
        (lambda _, x: x.__setitem__(0, 0), "synchronise Tensor.__setitem__ of a number"),
        (lambda _, x: x.__setitem__(torch.tensor([0]), 0.5), "synchronise Tensor.__setitem__ of a number"),
        (lambda _, x: x[None].__setitem__((0, [1]), 0.5), "synchronise Tensor.__setitem__ of a number"),
        (lambda device, x: device.upload(np.ones(2), np.float32) + x, "upload"),
        (lambda device, x: device.download([x]), "download 1"),
        (lambda _, x: x[0:1], "nothing was enqueued"),
    ],
)
def test_what_a_graph_cannot_hold_is_refused_while_it_is_recorded(what: object, told: str) -> None:
    device = FakeDevice()
    x = torch.tensor([1.0, 2.0])
    assert callable(what)
    recorded = [False]

    def run() -> object:
        first, recorded[0] = not recorded[0], True
        return None if first else what(device, x)  # the first call is no recording

    with pytest.raises(RuntimeError, match=told):
        device.capture(run, device.graph_pool())


@torch.inference_mode()
def test_waits_are_seen_in_inference_mode_too() -> None:
    device, x = FakeDevice(), torch.ones(3)
    with device.watch():
        assert int(x.sum()) == 3
        assert bool((x > 0).all())
    assert len([line for line in device.log if line.startswith("synchronise")]) >= 2


def test_waits_are_seen_and_nothing_else_is() -> None:
    device = FakeDevice()
    with device.watch():
        x = device.upload(np.arange(4), np.float32)
        y = (x * 2)[torch.tensor([0, 1])] + x.sum()
        y[torch.tensor([0])] = x[:1] + 6  # a tensor from there, and a number into a slice
        x[:1] = 0
        x[0] = x[1] - 1
        assert device.log == ["upload"]
        assert y.tolist() == [6.0, 8.0]
    assert device.log == ["upload", "synchronise Tensor.tolist"]
    assert int(x.sum()) == 6
    assert len(device.log) == 2


def test_a_download_is_worth_nothing_before_it_is_waited_for() -> None:
    device = FakeDevice()
    source = torch.tensor([1, 2])
    download = device.download([source])
    source.zero_()
    assert download.tensors[0].tolist() == [-77, -77]
    download.wait()
    assert download.tensors[0].tolist() == [1, 2]
