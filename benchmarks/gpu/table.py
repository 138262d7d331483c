"""The tables that `run.py` prints, from its document alone: `python benchmarks/gpu/table.py FILE` prints them again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.gpu.verdict import common, reference_of, rows


def table(document: Mapping[str, Any]) -> str:
    machine = document["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    parts = [f"{machine['device']}, CUDA {machine['cuda']}, Python {machine['python']}, {versions}"]
    for title, heads, cells in (
        ("Limits, measured", ("WHAT", "PER SECOND"), _limits(document)),
        ("Conformance on the device", ("PLUGIN", "PASSED", "FAILED", "NOT CLAIMED", "NOT RUN"), _conformance(document)),
        ("Sameness", ("SETUP", "MODEL", "DTYPE", "TOKENS AS THE REFERENCE'S"), _sameness(document)),
        (
            "Decode",
            ("MODEL", "SETUP", "ROWS", "CONTEXT", "MS/STEP", "TOKENS/S", "OF THE LIMIT"),
            _decode(document),
        ),
        ("Prefill", ("MODEL", "SETUP", "NEW", "CACHED", "MS", "TOKENS/S", "OF THE LIMIT"), _prefill(document)),
        (
            "Kernels",
            ("KERNEL", "WHAT", "US", "US REPLAYED", "OF THE LIMIT", "TORCH US", "TORCH REPLAYED"),
            _kernels(document),
        ),
    ):
        lines = list(cells)
        if lines:
            parts.append(f"{title}\n{_aligned([heads, *lines])}")
    for title, key in (("Problems", "problems"), ("Unproven", "unproven")):
        if document.get(key):
            parts.append("\n".join([title, *(f"- {line}" for line in document[key])]))
    return "\n\n".join(parts)


def bandwidth(document: Mapping[str, Any]) -> float | None:
    """Bytes a second: the better of the two measured ones."""
    return max((row["bytes_per_second"] for row in rows(document, "limit") if "bytes_per_second" in row), default=None)


def arithmetic(document: Mapping[str, Any], dtype: str) -> float | None:
    return next((row["flops_per_second"] for row in rows(document, "limit") if row.get("dtype") == dtype), None)


def fraction(document: Mapping[str, Any], row: Mapping[str, Any], seconds: float) -> float | None:
    """The least time that the limits allow, as a share of what it took; None where no limit was measured."""
    times = []
    if "bytes" in row and (moved := bandwidth(document)):
        times.append(row["bytes"] / moved)
    if "flops" in row and (rate := arithmetic(document, row["dtype"])):
        times.append(row["flops"] / rate)
    return max(times) / seconds if times and seconds else None


def _limits(document: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for row in rows(document, "limit"):
        if "bytes_per_second" in row:
            yield row["limit"], f"{row['bytes_per_second'] / 1e9:.0f} GB"
        elif "flops_per_second" in row:
            yield f"{row['limit']} {row['dtype']}", f"{row['flops_per_second'] / 1e12:.2f} TFLOP"


def _conformance(document: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    checks = list(rows(document, "conformance"))
    for plugin in dict.fromkeys(row["conformance"] for row in checks):
        own = [row for row in checks if row["conformance"] == plugin]
        counts = [sum(row.get("outcome") == outcome for row in own) for outcome in ("passed", "failed", "skipped")]
        yield plugin, *map(str, counts), str(sum(row.get("not_run", 0) for row in own))


def _sameness(document: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for row in rows(document, "sameness"):
        reference = reference_of(document, row)
        if row["setup"] != document["reference"] and reference is not None and "tokens" in row:
            yield row["setup"], row["sameness"], row["dtype"], f"{common(row['tokens'], reference):.1%}"


def _decode(document: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for row in rows(document, "decode"):
        if "seconds" in row:
            yield (
                *(row["model"], row["setup"], str(row["decode"]), str(row["context"]), f"{row['seconds'] * 1e3:.3f}"),
                *(f"{row['tokens_per_second']:.0f}", _share(document, row, row["seconds"])),
            )


def _prefill(document: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for row in rows(document, "prefill"):
        if "seconds" in row:
            yield (
                *(row["model"], row["setup"], str(row["prefill"]), str(row["cached"]), f"{row['seconds'] * 1e3:.2f}"),
                *(f"{row['tokens_per_second']:.0f}", _share(document, row, row["seconds"])),
            )


def _kernels(document: Mapping[str, Any]) -> Iterator[Sequence[str]]:
    for row in rows(document, "kernel"):
        if "seconds" in row:
            sizes = " ".join(str(row[key]) for key in ("rows", "new", "length", "tokens", "size") if key in row)
            best = row.get("replayed_seconds", row["seconds"])
            times = (row.get(key) for key in ("torch_seconds", "torch_replayed_seconds"))
            yield (
                *(row["kernel"], f"{row['what']} {sizes}", _micro(row["seconds"]), _micro(row.get("replayed_seconds"))),
                *(_share(document, row, best), *map(_micro, times)),
            )


def _micro(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:.1f}"


def _share(document: Mapping[str, Any], row: Mapping[str, Any], seconds: float) -> str:
    share = fraction(document, row, seconds)
    return "-" if share is None else f"{share:.1%}"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text())))
