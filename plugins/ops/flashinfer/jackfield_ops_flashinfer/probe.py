"""Whether FlashInfer can serve a run, by what can be known without importing it or torch."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version

from jackfield.hookspecs import DeviceDescription, Problem
from jackfield_ops_flashinfer.compiler import compiler_problems
from jackfield_ops_flashinfer.parts import LEAST_CAPABILITY, LEAST_VERSION

INSTALL = 'pip install "jackfield-ops-flashinfer[flashinfer]"'


def check(device: DeviceDescription) -> list[Problem]:
    """What keeps the plugin from serving this run; empty: nothing."""
    problems = []
    if importlib.util.find_spec("flashinfer") is None:
        problems.append(Problem(text="the package flashinfer-python is not installed", hint=INSTALL))
    elif (found := _version()) is not None and found < LEAST_VERSION:
        wanted, here = (".".join(map(str, number)) for number in (LEAST_VERSION, found))
        problems.append(
            Problem(text=f"flashinfer-python {here} is older than {wanted}, whose API it speaks", hint=INSTALL)
        )
    if device.type == "cuda":
        problems += compiler_problems()
    if device.capability is not None and device.capability < LEAST_CAPABILITY:
        here, least = ("{}.{}".format(*pair) for pair in (device.capability, LEAST_CAPABILITY))
        problems.append(Problem(text=f"{device.name} has compute capability {here}; FlashInfer's kernels need {least}"))
    return problems


def _version() -> tuple[int, ...] | None:
    """(0, 7, 4); None where no distribution says."""
    try:
        text = version("flashinfer-python")
    except PackageNotFoundError:
        return None
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
