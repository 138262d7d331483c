"""Two measurements side by side: how many times better the second is, and whether that is more than their rounds differ.

Refuses to compare what did not do the same work; tells what else differs, which may be what one wants to know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jackfield.config.errors import ConfigurationError, did_you_mean
from jackfield.entrypoints.bench.loads import Load

SAME = "within the spread"


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """ratio: above 1, B is better; least, most: from the rounds that speak most against it and most for it. load: "" offline."""

    load: str
    figure: str
    unit: str
    a: float
    b: float
    ratio: float
    least: float
    most: float

    @property
    def verdict(self) -> str:
        if self.least > 1:
            return "better"
        return "worse" if self.most < 1 else SAME

    def facts(self) -> dict[str, Any]:
        """For JSON, which has no infinity: a ratio over nothing is None there."""
        told = {name: None if value == math.inf else value for name, value in asdict(self).items()}
        return told | {"verdict": self.verdict}


def check_comparable(a: Mapping[str, Any], b: Mapping[str, Any]) -> None:
    """Raises ConfigurationError with what differs."""
    if a["kind"] != b["kind"]:
        raise ConfigurationError(
            f"bench compare: A was measured by `bench {a['kind']}` and B by `bench {b['kind']}`: one has the times of an engine, "
            "the other what clients see of a server"
        )
    differing = _differing(a["workload"], b["workload"])
    if a["kind"] == "serve":
        differing += _differing({"api": a["api"]}, {"api": b["api"]})
    if differing:
        raise ConfigurationError(
            "bench compare: A and B did different work, so their ratio says nothing: " + "; ".join(differing)
        )


def ratios(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Ratio]:
    """Of every figure that both have, load by load. Raises ConfigurationError if there is none."""
    check_comparable(a, b)
    theirs = dict(_parts(b))
    found = [
        _ratio(load, name, one, theirs[load][name])
        for load, figures in _parts(a)
        if load in theirs
        for name, one in figures.items()
        if name in theirs[load]
    ]
    if not found:
        loads = " and ".join(", ".join(load for load, _ in _parts(one)) or "nothing" for one in (a, b))
        raise ConfigurationError(f"bench compare: A and B have no figure of the same load in common: {loads}")
    return found


def own_figure(told: Mapping[str, Any]) -> str:
    """The figure that a measurement is about."""
    figure: str = told["workload"]["figure"] if told["kind"] == "offline" else "output_tokens_per_s"
    return figure


def below(found: Sequence[Ratio], figures: Sequence[str], least: float) -> list[Ratio]:
    """Those of the figures whose ratio is less. Raises ConfigurationError for a figure that was not compared."""
    names = list(dict.fromkeys(one.figure for one in found))
    for figure in figures:
        if figure not in names:
            raise ConfigurationError(f"bench compare: there is no figure {figure!r}{did_you_mean(figure, names)}")
    return [one for one in found if one.figure in figures and one.ratio < least]


def notes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What a reader of the ratios should know."""
    found = [
        f"{side} was not measured on a quiet machine"
        for side, one in (("A", a), ("B", b))
        if not one["machine"]["quiet"]
    ]
    machine = _differing(*({name: one["machine"].get(name) for name in ("cpu", "cores", "settings")} for one in (a, b)))
    found += [f"the machines differ: {text}" for text in machine]
    found += _differing({"model": a["model"]}, {"model": b["model"]})
    found += [f"versions differ: {text}" for text in _differing(a["versions"], b["versions"])]
    hashes = [one["stack"]["hash"] if one["stack"] else None for one in (a, b)]
    if None not in hashes:
        found.append("both ran the same stack" if hashes[0] == hashes[1] else "the stacks differ")
        found += [f"stacks: {text}" for text in _differing(a["stack"]["plugins"], b["stack"]["plugins"])]
    if a.get("args") and b.get("args"):
        found += [f"settings: {text}" for text in _differing(a["args"], b["args"])]
    if a["kind"] == "serve":
        loads = [{load for load, _ in _parts(one)} for one in (a, b)]
        found += [f"only A has the load {load}" for load in sorted(loads[0] - loads[1])]
        found += [f"only B has the load {load}" for load in sorted(loads[1] - loads[0])]
        found += [f"{side} had requests that failed" for side, one in (("A", a), ("B", b)) if _failed(one)]
        found += _differing(*({"limits": one["limits"]} for one in (a, b)))
    return found


def _parts(told: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(load, its figures): one part, without a load, of an offline measurement."""
    if told["kind"] == "offline":
        yield "", told["results"]
        return
    for point in told["loads"]:
        yield str(Load(**point["load"])), point["results"]


def _ratio(load: str, name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Ratio:
    higher = a["better"] == "higher"

    def times_better(of_a: str, of_b: str) -> float:
        return _over(b[of_b], a[of_a]) if higher else _over(a[of_a], b[of_b])

    worst, best = (("max", "min"), ("min", "max")) if higher else (("min", "max"), ("max", "min"))
    return Ratio(
        load=load,
        figure=name,
        unit=a["unit"],
        a=a["value"],
        b=b["value"],
        ratio=times_better("value", "value"),
        least=times_better(*worst),
        most=times_better(*best),
    )


def _over(above: float, under: float) -> float:
    if under == 0:
        return 1.0 if above == 0 else math.inf
    return above / under


def _failed(told: Mapping[str, Any]) -> bool:
    return any(number["failures"] for point in told["loads"] for number in point["rounds"])


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} is {_shown(a.get(name))} in A and {_shown(b.get(name))} in B"
        for name in dict.fromkeys([*a, *b])
        if a.get(name) != b.get(name)
    ]


def _shown(value: Any) -> str:
    return "not there" if value is None else json.dumps(value, ensure_ascii=False, default=str)
