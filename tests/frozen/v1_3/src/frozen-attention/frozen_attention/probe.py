"""What lists cannot say. Imports no torch."""

from __future__ import annotations

from jackfield.hookspecs import Need, Problem


def check(need: Need) -> list[Problem]:
    odd = [size for size in need.head_sizes if size % 2]
    return [Problem(text=f"head size {size} is odd") for size in odd]
