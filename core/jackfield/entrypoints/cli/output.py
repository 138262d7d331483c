"""Tables and JSON on stdout. rich is imported only when a table is drawn on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def print_json(value: Any) -> None:
    """One JSON document; what JSON does not know is written as text."""
    json.dump(value, sys.stdout, indent=2, ensure_ascii=False, default=str)
    sys.stdout.write("\n")


def as_written(value: Any) -> str:
    """An option's value much as a stack file has it, for whoever copies it from a table."""
    return "none" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "") -> None:
    """A table; on a terminal it is fitted to its width, in a pipe each row is one line. No rows: says so."""
    listed = [tuple(row) for row in rows]
    draw = _for_a_terminal if sys.stdout.isatty() else _for_a_pipe
    sys.stdout.write(draw(columns, listed, title))


def _for_a_pipe(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> str:
    """What reads a pipe wants to search lines, not to see them wrapped; nor to wait for a library that draws."""
    lines = [[" ".join(cell.split()) for cell in row] for row in (columns, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    drawn = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*([title] if title else []), *(drawn if rows else ["(none)"]), "", ""])


def _for_a_terminal(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # Cells hold brackets and colons that are no markup.
    console = Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    # Captured, because rich would end the program by itself when the reader goes away.
    with console.capture() as drawn:
        if title:
            console.print(title, style="bold")
        console.print(table if table.row_count else "(none)")
        console.print()
    return drawn.get()
