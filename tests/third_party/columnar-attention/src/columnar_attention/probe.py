"""What the manifest's lists cannot say. Imports no torch."""

from __future__ import annotations

from jackfield.hookspecs import DeviceDescription, Need, Problem

SMALLEST_PAGE = 8


def check(need: Need, device: DeviceDescription) -> list[Problem]:
    if need.page_size >= SMALLEST_PAGE:
        return []
    return [
        Problem(
            text=f"columns shorter than {SMALLEST_PAGE} tokens are slower than rows, and the page size is {need.page_size}",
            hint=f"--page-size {2 * SMALLEST_PAGE}",
        )
    ]
