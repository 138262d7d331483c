"""Which stack runs: that of the start is epoch 0, and every swap of a plugin begins another."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from jackfield.hookspecs import StackChanged
from jackfield.stack.resolved import ResolvedStack, SelectedPlugin

KEPT = 1024
"""Epochs whose stack is known, the newest: results of an older one do not come any more."""


class StackEpochs:
    """Written by one thread; any may read."""

    def __init__(self, stack: ResolvedStack, stack_hash: str) -> None:
        self._now = (0, stack, stack_hash)
        self._known = OrderedDict({0: self._now})

    @property
    def epoch(self) -> int:
        return self._now[0]

    @property
    def stack(self) -> ResolvedStack:
        return self._now[1]

    @property
    def stack_hash(self) -> str:
        """SHA-256, hex."""
        return self._now[2]

    @property
    def now(self) -> tuple[int, ResolvedStack, str]:
        """Epoch, stack and hash that belong together."""
        return self._now

    def at(self, epoch: int) -> tuple[int, ResolvedStack, str]:
        """The same of an epoch that was heard of. KeyError for one that was not, or is long past."""
        return self._known[epoch]

    def hash_of(self, epoch: int) -> str:
        """The hash of an epoch that was heard of."""
        return self.at(epoch)[2]

    def change(self, change: StackChanged, selected: SelectedPlugin) -> bool:
        """A plugin was swapped. False: that is known already."""
        if change.epoch <= self.epoch:
            return False
        self._now = (change.epoch, with_plugin(self.stack, selected), change.stack_hash)
        self._known[change.epoch] = self._now
        if len(self._known) > KEPT:
            self._known.popitem(last=False)
        return True


def with_plugin(stack: ResolvedStack, selected: SelectedPlugin) -> ResolvedStack:
    """The stack with another plugin of an exclusive kind in its place."""
    return replace(
        stack, plugins=tuple(selected if plugin.kind == selected.kind else plugin for plugin in stack.plugins)
    )
