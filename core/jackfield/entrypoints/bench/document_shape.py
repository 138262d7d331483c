"""What a reader of a measurement's JSON counts on, field by field; what else it has is nobody's business here."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from jackfield.entrypoints.bench.loads import BURSTS, CLOSED, POISSON, TRACE


class Figure(msgspec.Struct):
    """`summary.summary`."""

    value: float
    min: float
    max: float
    unit: str
    better: Literal["higher", "lower"]


class Load(msgspec.Struct, forbid_unknown_fields=True):
    """`loads.Load.facts`."""

    mode: Literal[CLOSED, POISSON, BURSTS, TRACE]  # type: ignore[valid-type]
    value: float
    every_s: float = 0.0


class Round(msgspec.Struct):
    failures: dict[str, Any]


class Point(msgspec.Struct):
    load: Load
    results: dict[str, Figure]
    rounds: list[Round]


class Stack(msgspec.Struct):
    hash: str
    plugins: dict[str, Any]


class Machine(msgspec.Struct):
    quiet: bool


class Workload(msgspec.Struct):
    figure: str


class OfAll(msgspec.Struct):
    label: str
    model: str
    machine: Machine
    versions: dict[str, Any]
    stack: Stack | None
    args: dict[str, Any] | None


class Offline(OfAll):
    workload: Workload
    results: dict[str, Figure]
    rounds: list[dict[str, Any]]


class Serve(OfAll):
    workload: dict[str, Any]
    server: str
    api: str
    limits: dict[str, float]
    loads: list[Point]


SHAPES: dict[str, type[OfAll]] = {"offline": Offline, "serve": Serve}
"""Kind -> its shape."""


def problem(told: dict[str, Any]) -> str | None:
    """What is wrong in a document of a known kind, and where; None: nothing."""
    try:
        msgspec.convert(told, SHAPES[told["kind"]])
    except msgspec.ValidationError as error:
        return str(error)
    return None
