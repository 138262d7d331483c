"""Curves of what `jackfield bench serve` measured: TTFT, ITL and throughput against the load, as PNG or SVG.

matplotlib is an extra of the distribution (`jackfield[bench]`) and is imported only when something is drawn.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.bench.loads import BURSTS, CLOSED, POISSON, TRACE

ENDINGS = (".png", ".svg")

PANEL_INCHES, DPI = (4.4, 4.2), 120

MOST_TICKS = 12

HEADROOM = 1.3
"""Above the highest point, so that the legend hides none."""

LOAD_AXIS = {
    CLOSED: "requests at a time",
    POISSON: "requests/s that come",
    BURSTS: "requests of a burst",
    TRACE: "speed of the trace",
}

LATENCY_LINES = ((", p50", "_p50", "-", "o"), (", p99", "_p99", "--", "^"))
RATE_LINES = (("", "", "-", "o"),)
"""Each: what its label says, the end of the figure's name, line, mark."""

PANELS = (
    ("Time to first token", "ms", "ttft_ms", LATENCY_LINES),
    ("Time between tokens", "ms", "itl_ms", LATENCY_LINES),
    ("Throughput", "output tokens/s", "output_tokens_per_s", RATE_LINES),
    ("Goodput", "requests/s within the limits", "goodput_per_s", RATE_LINES),
)
"""Title, unit, figure and its lines. A panel of which nobody has anything is left out."""


def check_plot(file: str) -> None:
    """Before the measurement, which may take minutes. Raises ConfigurationError."""
    if Path(file).suffix.lower() not in ENDINGS:
        raise ConfigurationError(f"bench: --plot {file} ends with neither {' nor '.join(ENDINGS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigurationError(
            "bench: --plot needs matplotlib, which is not installed: pip install 'jackfield[bench]', or leave --plot out and "
            "draw later, from what --json wrote: jackfield bench compare A.json B.json --plot FILE"
        )


def plot(told: Sequence[Mapping[str, Any]], file: str) -> None:
    """A line for each document of kind "serve", in a panel for each figure. Raises ConfigurationError where they have no axis in
    common."""
    check_plot(file)
    points = [point for one in told for point in one.get("loads", [])]
    modes = {point["load"]["mode"] for point in points}
    if any(one["kind"] != "serve" for one in told) or len(modes) != 1:
        raise ConfigurationError(
            "bench: a plot shows figures against a load, so it takes what `bench serve` measured, under loads of one kind; these "
            f"have {', '.join(sorted(modes)) or 'none'}"
        )
    (mode,) = modes
    figures = {name for point in points for name in point["results"]}
    shown = [panel for panel in PANELS if any(panel[2] + end in figures for _, end, _, _ in panel[3])]
    if not shown:
        raise ConfigurationError("bench: there is nothing to plot: no request was answered")
    from matplotlib.figure import Figure

    picture: Any = Figure(figsize=(PANEL_INCHES[0] * len(shown), PANEL_INCHES[1]), layout="constrained")
    names = _names(told)
    for panel, (title, unit, figure, lines) in zip(
        picture.subplots(1, len(shown), squeeze=False)[0], shown, strict=True
    ):
        for number, (name, one) in enumerate(zip(names, told, strict=True)):
            for label, end, line, mark in lines:
                style = {"color": f"C{number}", "linestyle": line, "marker": mark, "label": name + label}
                _curve(panel, one, figure + end, style)
        panel.set(title=title, xlabel=LOAD_AXIS[mode], ylabel=unit, ylim=(0, HEADROOM * panel.get_ylim()[1]))
        loads = sorted({point["load"]["value"] for point in points})
        if len(loads) <= MOST_TICKS:
            panel.set_xticks(loads, [f"{load:g}" for load in loads])
        panel.grid(alpha=0.3)
        panel.legend(fontsize="small", ncols=2, loc="upper left")
    try:
        picture.savefig(file, dpi=DPI)
    except OSError as error:
        raise ConfigurationError(f"bench: {file} cannot be written: {error.strerror}") from error


def _curve(panel: Any, one: Mapping[str, Any], figure: str, style: Mapping[str, Any]) -> None:
    """Medians over the rounds; the bars are from the smallest to the largest round."""
    points = [
        (point["load"]["value"], point["results"][figure]) for point in one["loads"] if figure in point["results"]
    ]
    points.sort(key=lambda point: point[0])
    values = [found["value"] for _, found in points]
    bars = [
        [found["value"] - found["min"] for _, found in points],
        [found["max"] - found["value"] for _, found in points],
    ]
    if points:
        panel.errorbar([load for load, _ in points], values, yerr=bars, capsize=3, **style)


def _names(told: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each document's label; where there is none, its server and model; with a number where two would be the same."""
    names: list[str] = []
    for one in told:
        name = one["label"] or " ".join(part for part in (one["server"], one["model"]) if part)
        names.append(name if name not in names else f"{name} ({len(names) + 1})")
    return names
