"""What is run, in which order and for how long at most; and what cannot be run here, with the reason. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu.providers import providers
from benchmarks.gpu.stack import Setup

REFERENCE = Setup(attention="torch", ops="torch")
SETUPS = (
    REFERENCE,
    Setup(attention="triton", ops="triton", graphs=True),
    Setup(attention="flashinfer", ops="flashinfer", graphs=True),
    Setup(attention="triton", ops="triton"),
    Setup(attention="flashinfer", ops="triton", graphs=True),
    Setup(attention="triton", ops="torch", graphs=True),
    Setup(attention="flashinfer", ops="flashinfer"),
)
"""On a GPU. The first that are there matter most: when time runs out, the last are left out."""

TINY_SETUPS = (REFERENCE, Setup(attention="triton", ops="triton"), Setup(attention="flashinfer", ops="flashinfer"))
BATCHES = (1, 16, 64, 256)
PLUGINS = ("attention.triton", "ops.triton", "attention.flashinfer", "ops.flashinfer", "attention.torch", "ops.torch")


@dataclass(frozen=True, kw_only=True)
class Section:
    """One job. together: it measures nothing, so it may run beside others."""

    title: str
    section: str
    seconds: float
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    together: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """absent: plugin -> why it cannot run here. What needs it is unproven."""

    sections: tuple[Section, ...]
    absent: dict[str, str]


def make_plan(device: str, *, tiny: bool) -> Plan:
    absent = _absent(device)
    setups = [one for one in (TINY_SETUPS if tiny else SETUPS) if not set(one.plugins) & set(absent)]
    sections = [*_conformance(device, absent, tiny), *_sameness(device, setups, tiny)]
    sections.append(Section(title="limits", section="limits", seconds=30))
    models = ("llama-tiny", "qwen-tiny") if tiny else ("llama-8b", "qwen-0.6b")
    for setup in setups:
        for model in models[: 1 if tiny and setup is not REFERENCE else None]:
            # Without its own kernels it is slow, and only there for comparison.
            batches = [1, 2] if tiny else [1, 64] if setup is REFERENCE else list(BATCHES)
            sections.append(
                Section(
                    title=f"{model} {setup}",
                    section="speed",
                    seconds=75 if model == "llama-8b" else 45,
                    arguments={"model": model, "setup": str(setup), "batches": batches},
                    environment=setup.environment(device),
                )
            )
    sections += [
        Section(
            title=f"kernels of {plugin}",
            section="kernels",
            seconds=40,
            arguments={"plugin": plugin},
            environment=_environment(plugin, device),
        )
        for plugin in PLUGINS[:4]
        if plugin not in absent
    ]
    if tiny:
        sections.append(
            Section(
                title="kernels of attention.torch",
                section="kernels",
                seconds=40,
                arguments={"plugin": "attention.torch"},
            )
        )
    return Plan(sections=tuple(sections), absent=absent)


def _conformance(device: str, absent: dict[str, str], tiny: bool) -> list[Section]:
    plugins = [plugin for plugin in PLUGINS if plugin not in absent]
    return [
        Section(
            title=f"conformance of {plugin}",
            section="conformance",
            seconds=150,
            arguments={"plugin": plugin},
            environment=_environment(plugin, device),
            together=True,
        )
        for plugin in plugins
    ]


def _sameness(device: str, setups: list[Setup], tiny: bool) -> list[Section]:
    models = ("qwen-tiny",) if tiny else ("llama-small", "qwen-small")
    dtypes = ("float32",) if tiny else ("float32", "bfloat16")
    return [
        Section(
            title=f"sameness of {setup}, {model} in {dtype}",
            section="sameness",
            seconds=60,
            arguments={"model": model, "setup": str(setup), "dtype": dtype},
            environment=setup.environment(device),
            together=True,
        )
        for setup in setups
        for model in models
        for dtype in dtypes
        if dtype in setup.common_dtypes(device)
    ]


def _absent(device: str) -> dict[str, str]:
    found, absent = providers(), {}
    for plugin in PLUGINS:
        why = found[plugin].absent(device) if plugin in found else "there is no such plugin in this tree"
        if why:
            absent[plugin] = why
    return absent


def _environment(plugin: str, device: str) -> dict[str, str]:
    provider = providers()[plugin]
    return provider.environment if provider.interpreted(device) else {}
