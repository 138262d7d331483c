"""Whether FlashInfer can serve a run, by what can be known without importing it or torch."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version

from jackfield.hookspecs import DeviceDescription, Need, Problem
from jackfield_attention_flashinfer.compiler import compiler_problems
from jackfield_attention_flashinfer.limits import HEAD_SIZES, LEAST_CAPABILITY, LEAST_VERSION

INSTALL = 'pip install "jackfield-attention-flashinfer[flashinfer]"'


def check(need: Need, device: DeviceDescription) -> list[Problem]:
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
    odd = sorted(set(need.head_sizes) - set(HEAD_SIZES))
    if odd:
        problems.append(
            Problem(
                text=f"the model has heads of size {', '.join(map(str, odd))}; FlashInfer's kernels have "
                f"{', '.join(map(str, HEAD_SIZES))}"
            )
        )
    return problems


def _version() -> tuple[int, ...] | None:
    """(0, 7, 4); None where no distribution says."""
    try:
        text = version("flashinfer-python")
    except PackageNotFoundError:
        return None
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
