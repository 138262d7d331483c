"""What the scripts here tell of the machine: the same as `jackfield bench`."""

from __future__ import annotations

from jackfield.entrypoints.bench.machine import machine_facts, wait_until_quiet

__all__ = ["machine_facts", "wait_until_quiet"]
