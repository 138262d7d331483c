"""A source of one policy for a live swap: what a scheduler that was handed its policy lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jackfield.hookspecs import SchedulePolicy
from jackfield.stack.resolved import SelectedPlugin
from jackfield.stack.selection.swap import NewPolicy


class OnePolicy:
    """`swaps.PolicySource`: whatever is asked for, the plugin under test comes, in the place of one that nobody made."""

    def __init__(self, selected: SelectedPlugin, make: Callable[[], SchedulePolicy]) -> None:
        self._selected, self._make = selected, make
        self.running = replace(selected, name="the-one-before", instance="the-one-before")
        self.stack_hash = "0" * 64

    def prepare(self, name: str, options: Mapping[str, Any]) -> NewPolicy:
        return NewPolicy(policy=self._make(), selected=self._selected, stack_hash="1" * 64)

    def adopt(self, new: NewPolicy) -> None:
        self.running, self.stack_hash = new.selected, new.stack_hash
