"""What is wrong, and what remains unproven, in a document of `run.py`. Runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SHARE = 0.9
"""Of the tokens that a setup must draw as the reference does in 16 bits, where rounding decides a near tie now and then. What is
wrong draws nearly all of them otherwise."""


def rows(document: Mapping[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """All rows that have `key`, in the order of the sections."""
    for section in document["sections"]:
        for row in section["rows"]:
            if key in row:
                yield row


def problems(document: Mapping[str, Any]) -> list[str]:
    found = []
    for section in document["sections"]:
        for row in section["rows"]:
            if "failed" in row:
                what = ", ".join(f"{key} {value}" for key, value in row.items() if key not in ("failed", "seconds"))
                found.append(f"{section['title']}: {what or 'it'} failed: {last_line(row['failed'])}")
        if section["outcome"].startswith("its process"):
            found.append(f"{section['title']}: {section['outcome']}: {last_line(section.get('words', ''))}")
    return found + differences(document)


def differences(document: Mapping[str, Any]) -> list[str]:
    """Setups whose answers are not the reference's: in float32 any other token, in 16 bits too many."""
    found = []
    for row in rows(document, "sameness"):
        reference = reference_of(document, row)
        if reference is None or "tokens" not in row:
            continue
        share = common(row["tokens"], reference)
        if share < (1.0 if row["dtype"] == "float32" else SHARE):
            found.append(
                f"{row['setup']} answers otherwise than {document['reference']} ({row['sameness']}, {row['dtype']}): {share:.1%} "
                "of the tokens behind the same text are the same"
            )
    return found


def reference_of(document: Mapping[str, Any], row: Mapping[str, Any]) -> Sequence[Sequence[int]] | None:
    for other in rows(document, "sameness"):
        same = all(other[key] == row[key] for key in ("sameness", "dtype"))
        if same and other["setup"] == document["reference"] and "tokens" in other:
            tokens: Sequence[Sequence[int]] = other["tokens"]
            return tokens
    return None


def common(found: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]]) -> float:
    """The share of the same tokens among those that were drawn behind the same text: up to an answer's first difference, it
    included. What comes behind it answers another text."""
    same = drawn = 0
    for mine, theirs in zip(found, wanted, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            drawn += 1
            if one != other:
                break
            same += 1
    return same / max(drawn, 1)


def unproven(document: Mapping[str, Any]) -> list[str]:
    """What this run says nothing about."""
    found = [f"{plugin}: {why}" for plugin, why in document["absent"].items()]
    for section in document["sections"]:
        if section["outcome"] not in ("done", "failed") and not section["outcome"].startswith("its process"):
            found.append(f"{section['title']}: {section['outcome']}")
        found += [f"{section['title']}: {row['left_out']}" for row in section["rows"] if "left_out" in row]
        found += [
            f"{section['title']}: torch's own kernel failed: {last_line(row['torch_failed'])}"
            for row in section["rows"]
            if "torch_failed" in row
        ]
        found += [
            f"{section['title']}: {row['not_run']} checks were not run" for row in section["rows"] if row.get("not_run")
        ]
    return found


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else "it said nothing"
