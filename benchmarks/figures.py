"""Figures of the paired benchmarks: a median over rounds or a ratio of two sides, with a target, as lines or as JSON."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from jackfield.stack.digest import package_digest


@dataclass(kw_only=True)
class Figure:
    """value: the median of `values`, one a round; met: whether the target is, None without one; a, b: a ratio's sides."""

    what: str
    value: float
    unit: str
    values: list[float]
    target: str = ""
    met: bool | None = None
    a: list[float] = field(default_factory=list)
    b: list[float] = field(default_factory=list)


def over(a: float, b: float) -> float:
    return b / a


def figure_of(what: str, unit: str, values: list[float], target: str = "") -> Figure:
    value = statistics.median(values)
    return Figure(what=what, value=value, unit=unit, values=values, target=target, met=_met(value, target))


def ratio(
    what: str, a: list[float], b: list[float], of: Callable[[float, float], float], target: str, unit: str
) -> Figure:
    figure = figure_of(what, f"ratio (sides: {unit})", [of(x, y) for x, y in zip(a, b, strict=True)], target)
    figure.a, figure.b = a, b
    return figure


def _met(value: float, target: str) -> bool | None:
    if not target:
        return None
    sign, bound = target.split()
    return value >= float(bound) if sign == ">=" else value <= float(bound)


def report(machine: Any, figures: Mapping[str, Figure], as_json: bool, packages: Sequence[str]) -> None:
    """packages: whose content the figures are of."""
    if as_json:
        digests = {package: package_digest(package) for package in packages}
        results = {name: asdict(figure) for name, figure in figures.items()}
        json.dump({"machine": machine, "packages": digests, "results": results}, sys.stdout, indent=2)
        print()
        return
    for name, figure in figures.items():
        verdict = "" if figure.met is None else f"  ({figure.target}: {'met' if figure.met else 'MISSED'})"
        spread = ", ".join(f"{value:.3g}" for value in sorted(figure.values)[:: max(1, len(figure.values) // 5)])
        print(f"{name:28} {figure.value:8.3f} {figure.unit.partition(' ')[0]:5}{verdict}  {figure.what}  [{spread}]")
