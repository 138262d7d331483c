"""What is run, in which order and for how long at most; and what cannot be run here, with the reason. Runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.gpu.providers import providers
from benchmarks.gpu.stack import Setup

REFERENCE = Setup(attention="torch", ops="torch")
SETUPS = (
    Setup(attention="triton", ops="triton", graphs=True),
    Setup(attention="flashinfer", ops="flashinfer", graphs=True),
    Setup(attention="triton", ops="triton"),
    REFERENCE,
    Setup(attention="flashinfer", ops="triton", graphs=True),
    Setup(attention="triton", ops="torch", graphs=True),
    Setup(attention="flashinfer", ops="flashinfer"),
)
"""On a GPU. The first matter most, and after FIRST of them come the kernels: when time runs out, the last are left out."""

FIRST = 2
TINY_SETUPS = (
    REFERENCE,
    Setup(attention="torch", ops="triton"),
    Setup(attention="triton", ops="torch"),
    Setup(attention="triton", ops="triton"),
)
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
    speed = [_speed(device, setup, model) for setup in setups for model in _models(setup, tiny)]
    early = [str(setup) for setup in setups[:FIRST] if setup != REFERENCE]
    first = [one for one in speed if one.arguments["setup"] in early]
    sections = [
        *_conformance(device, absent),
        *_sameness(device, setups, tiny),
        Section(title="limits", section="limits", seconds=30),
        *first,
        *_kernels(device, absent, tiny),
        *(one for one in speed if one not in first),
    ]
    return Plan(sections=tuple(sections), absent=absent)


def _models(setup: Setup, tiny: bool) -> tuple[str, ...]:
    if not tiny:
        return ("llama-8b", "qwen-0.6b")
    # An interpreter is slow: the answers of every setup are looked at (`_sameness`), and one of them is taken through the timing.
    return {REFERENCE: ("llama-tiny", "qwen-tiny"), TINY_SETUPS[-1]: ("llama-tiny",)}.get(setup, ())


def _speed(device: str, setup: Setup, model: str) -> Section:
    # Without kernels of its own it is slow, and only there for comparison.
    batches = [1, 2] if model.endswith("-tiny") else [1, 64] if setup == REFERENCE else list(BATCHES)
    return Section(
        title=f"{model} {setup}",
        section="speed",
        seconds=75 if model == "llama-8b" else 45,
        arguments={"model": model, "setup": str(setup), "batches": batches},
        environment=setup.environment(device),
    )


def _kernels(device: str, absent: dict[str, str], tiny: bool) -> list[Section]:
    plugins = [*PLUGINS[:4], *(["attention.torch"] if tiny else [])]
    return [
        Section(
            title=f"kernels of {plugin}",
            section="kernels",
            seconds=40,
            arguments={"plugin": plugin},
            environment=_environment(plugin, device),
        )
        for plugin in plugins
        if plugin not in absent
    ]


def _conformance(device: str, absent: dict[str, str]) -> list[Section]:
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
