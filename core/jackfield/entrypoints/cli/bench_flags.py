"""Flags that several actions of `jackfield bench` have, and the types of their values."""

from __future__ import annotations

import argparse
import os
from typing import Any


def add_common(parser: argparse.ArgumentParser) -> Any:
    """--json, --label, --threads, --wait. Returns their group, for further ones."""
    group = parser.add_argument_group("measurement")
    group.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write all of it as JSON: to a file beside the table, or, with - or nothing, to stdout in its place",
    )
    group.add_argument("--label", default="", metavar="TEXT", help="a name for this run, in comparisons and plots")
    group.add_argument(
        "--threads", type=whole(1), metavar="N", help="threads of arithmetic: sets OMP_NUM_THREADS for this run"
    )
    group.add_argument(
        "--wait",
        type=number(0),
        default=30.0,
        metavar="SECONDS",
        help="longest wait for a machine that nobody else uses; it is told whether that came true (default 30)",
    )
    return group


def set_threads(namespace: argparse.Namespace) -> None:
    """Before anything that reads it is imported, here and in children."""
    if namespace.threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(namespace.threads)


def whole(least: int) -> Any:
    """argparse's type of a whole number of at least `least`."""

    def read(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"{text} is less than {least}")
        return value

    read.__name__ = "whole number"  # argparse says it where `int` raises
    return read


def number(least: float) -> Any:
    """argparse's type of a finite number of at least `least`."""

    def read(text: str) -> float:
        value = float(text)
        if not least <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not a finite number of {least:g} or more")
        return value

    read.__name__ = "number"
    return read
