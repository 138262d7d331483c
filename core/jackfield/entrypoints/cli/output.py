"""Tables and JSON on stdout. rich is imported only when a table is drawn."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

_PIPED_WIDTH = 10_000
"""Wide enough for one line a row: what reads a pipe wants to search lines, not to see them wrapped."""


def print_json(value: Any) -> None:
    """One JSON document; what JSON does not know is written as text."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False, default=str)
    sys.stdout.write("\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """A table; on a terminal it is fitted to its width, in a pipe each row is one line. No rows: says so."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    terminal = sys.stdout.isatty()
    # Cells hold brackets and colons that are no markup.
    console = Console(
        file=sys.stdout, width=None if terminal else _PIPED_WIDTH, markup=False, highlight=False, emoji=False
    )
    table = Table(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    # Captured, because rich would end the program by itself when the reader of a pipe goes away.
    with console.capture() as drawn:
        if title:
            console.print(title, style="bold")
        console.print(table if table.row_count else "(none)")
        console.print()
    sys.stdout.write(drawn.get())
