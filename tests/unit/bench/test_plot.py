"""What is drawn, and what is said where nothing can be."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.bench.plot import check_plot, plot
from jackfield.entrypoints.bench.summary import summary

NEEDS_MATPLOTLIB = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is an extra")


def measured(mode: str = "closed", label: str = "", figures: tuple[str, ...] = ("ttft_ms_p50", "ttft_ms_p99")) -> Any:
    return {
        "kind": "serve",
        "label": label,
        "server": "some server",
        "model": "m",
        "loads": [
            {
                "load": {"mode": mode, "value": value},
                "results": {name: summary([value, value + 2, value + 1], "ms", "lower") for name in figures},
            }
            for value in (4, 1, 16)
        ],
    }


@NEEDS_MATPLOTLIB
def test_a_picture_has_a_panel_for_each_figure_and_a_line_for_each_run(tmp_path: Path) -> None:
    file = tmp_path / "a.svg"
    figures = ("ttft_ms_p50", "ttft_ms_p99", "itl_ms_p50", "output_tokens_per_s")
    plot([measured(label="first", figures=figures), measured(label="second", figures=figures)], str(file))
    # Text is drawn as paths, each beside a comment with the text.
    drawn = file.read_text()
    for text in (
        "Time to first token",
        "Time between tokens",
        "Throughput",
        "requests at a time",
        "first, p50",
        "second, p99",
    ):
        assert f"<!-- {text} -->" in drawn
    assert "Goodput" not in drawn
    assert "<!-- 16 -->" in drawn  # a tick at each load


@NEEDS_MATPLOTLIB
def test_runs_without_labels_are_told_apart(tmp_path: Path) -> None:
    plot([measured("poisson"), measured("poisson")], str(tmp_path / "a.svg"))
    drawn = (tmp_path / "a.svg").read_text()
    assert "<!-- some server m, p50 -->" in drawn
    assert "<!-- some server m (2), p50 -->" in drawn
    assert "requests/s that come" in drawn


@NEEDS_MATPLOTLIB
def test_png(tmp_path: Path) -> None:
    plot([measured()], str(tmp_path / "a.png"))
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@NEEDS_MATPLOTLIB
@pytest.mark.parametrize(
    ("told", "text"),
    [
        ([measured("closed"), measured("poisson")], "these have closed, poisson"),
        ([{"kind": "offline", "label": ""}], "it takes what `bench serve` measured"),
        ([measured(figures=())], "no request was answered"),
    ],
)
def test_what_has_no_axis_in_common_is_refused(tmp_path: Path, told: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        plot(told, str(tmp_path / "a.svg"))


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'jackfield\[bench\]'"):
        check_plot("a.png")
    with pytest.raises(ConfigurationError, match=r"ends with neither .png nor .svg"):
        check_plot("a.jpg")
