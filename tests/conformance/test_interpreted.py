"""`jackfield conformance --device cpu-interpreted`: kernels of another device, in a process that was made for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from jackfield.config import device as config_device
from jackfield.config.cuda_driver import CudaDevice
from jackfield.entrypoints.cli import main
from jackfield.testing.conformance import AttentionConformance
from tests.unit.stack.distributions import Site, fresh_package, plugin_row

KERNELS = """
import os

from tests.conformance.plain_attention import PlainAttention

if os.environ.get("ACME_INTERPRET") != "1":
    raise RuntimeError("there is no acme device")


class Acme(PlainAttention):
    def __init__(self, context):
        assert context.device == "cpu", context.device
        super().__init__(context)
"""

ENTRY = """
from jackfield.hookspecs import hookimpl
{imports}

@hookimpl
def jackfield_attention_backend(context):
    from {package}.kernels import Acme

    return Acme(context)
"""

INTERPRETER = {"environment": {"ACME_INTERPRET": "1"}, "dtypes": ["float32", "float16"]}


def install(site: Site, *, early: bool = False, interpreter: dict[str, Any] | None = INTERPRETER) -> None:
    """An attention plugin for CUDA. early: its entry module imports the kernels."""
    package = fresh_package("acme_kernels")
    imports = f"from {package} import kernels\n" if early else ""
    row = plugin_row(
        "attention",
        "acme",
        devices=["cuda"],
        dtypes=["bfloat16", "float16", "float32"],
        features=["window", "batch_invariant:cuda:float32"],
        interpreter=interpreter,
    )
    sources = {"kernels": KERNELS, "acme": ENTRY.format(package=package, imports=imports)}
    site.add("acme-kernels", row, package=package, sources=sources)


def test_it_runs_where_its_devices_are_not(
    live_site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_INTERPRET", "0")  # what the manifest says counts
    install(live_site, early=True)
    file = tmp_path / "report.json"
    chosen = ["--check", "loads or every_dtype or window or deterministic"]
    command = ["conformance", "attention.acme", "--device", "cpu-interpreted", *chosen, "--json", str(file)]
    assert main(command) == 1  # a row's bits are not its own, as it claims of its device
    (plugin,) = json.loads(file.read_text())["plugins"]
    assert (plugin["device"], plugin["dtypes_not_here"]) == ("cpu-interpreted", ["bfloat16"])
    found = {check["check"]: check["outcome"] for check in plugin["checks"]}
    assert found == {"loads": "passed", "every_dtype": "passed", "window": "passed", "deterministic": "failed"}
    assert "on cpu-interpreted, where bfloat16 cannot be shown" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (
            ("attention.acme", "attention.torch", "--device", "cpu-interpreted"),
            "attention.torch has no `interpreter` in its manifest, under which its kernels would run on a CPU: test it on a "
            "device that it lists (cpu, cuda)",
        ),
        (("schedule_policy.fcfs", "--device", "cpu-interpreted"), "on a device that it lists (any)"),
    ],
)
def test_what_names_no_interpreter_is_refused(
    argv: tuple[str, ...], text: str, live_site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    install(live_site)
    assert main(["conformance", *argv]) == 2
    assert text in " ".join(capsys.readouterr().err.split())


def test_all_leaves_out_what_the_device_cannot_show(live_site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    install(live_site)
    assert main(["conformance", "--all", "--check", "no_such_check"]) == 2
    told = capsys.readouterr().err
    assert "attention.acme is left out: --device cuda, or cpu-interpreted tests it" in told
    assert "attention.torch is left out" not in told


@pytest.mark.parametrize(
    ("device", "interpreter", "gpu", "outcome"),
    [
        ("cpu", True, False, "devices are cuda; run with --device cpu-interpreted"),
        ("cpu", True, True, "devices are cuda; run with --device cuda or --device cpu-interpreted"),
        ("cpu", False, False, "devices are cuda, and none is here (--device cuda: no driver)"),
        ("cuda", True, False, "--device cuda: no driver; run with --device cpu-interpreted"),
        ("cuda", False, False, "--device cuda: no driver"),
        ("cpu-interpreted", True, False, "set ACME_INTERPRET=1 before Python starts"),
    ],
)
def test_a_suite_says_what_it_lacks_and_where_it_runs(
    device: str, interpreter: bool, gpu: bool, outcome: str, live_site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A way that this machine has: who does as he is told meets no second refusal."""
    found = CudaDevice(name="Some GPU", capability=(9, 0), free_memory=1, total_memory=1, count=1) if gpu else None
    monkeypatch.setattr(config_device, "usable_cuda_device", lambda: (found, "no driver"))
    install(live_site, interpreter=INTERPRETER if interpreter else None)

    class Acme(AttentionConformance):
        plugin = "acme"

    Acme.device = device
    with pytest.raises(pytest.skip.Exception, match=f"^cannot run: {re.escape(outcome)}"):
        Acme().test_window()
