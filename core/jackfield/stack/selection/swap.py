"""Choosing another schedule policy for a stack that runs, by the rules by which one is chosen at the start."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.hookspecs import SchedulePolicy
from jackfield.stack.digest import stack_hash
from jackfield.stack.discovery.catalogue import PluginRow, Status
from jackfield.stack.discovery.scan import discover
from jackfield.stack.epochs import with_plugin
from jackfield.stack.loading.load import INLINE, load_stack
from jackfield.stack.loading.options import validated_options
from jackfield.stack.resolved import ResolvedStack, SelectedPlugin
from jackfield.stack.selection.access import Access
from jackfield.stack.selection.checks import cache_problems, device_problems, dtype_problems
from jackfield.stack.selection.choice import Selector, as_selected
from jackfield.stack.selection.file_checks import refuse_unusable_files

KIND = "schedule_policy"
SOURCE = "a live swap"


def select_policy(args: ServerArgs, stack: ResolvedStack, name: str, options: Mapping[str, Any]) -> SelectedPlugin:
    """The policy of this name as it is installed now, if the running stack can have it. Reads manifests, imports none of
    them. args: as resolved. Raises ConfigurationError.
    """
    if args.locked is not None:
        raise ConfigurationError(
            f"--locked {args.locked}: the stack of this run is the one of the lock; a server that may swap is started without it"
        )
    cache = stack.one("cache")
    dtype = None if args.dtype == "auto" else args.dtype
    assert cache is not None

    def judge(row: PluginRow) -> list[str]:
        hardware = device_problems(row, args.device.partition(":")[0]) + dtype_problems(row, dtype)
        return hardware + cache_problems(row, cache.manifest)

    # The file of a one-file plugin is read again: edited since, it is another policy, with another digest. One that is
    # broken by now keeps nobody from a policy that is not in it.
    catalogue = discover(files=args.plugin)
    if not any(row.status is Status.OK for row in catalogue.find(KIND, name)):
        refuse_unusable_files(catalogue, "--plugin")
    selector = Selector(catalogue, Access(args.plugin_allow, args.plugin_deny), {KIND: SOURCE})
    choice = selector.named(KIND, name, KIND, judge)
    return as_selected(choice.row, choice.reason, options=options, option_sources=dict.fromkeys(options, SOURCE))


@dataclass(frozen=True, kw_only=True)
class NewPolicy:
    """A policy that is made and not in place yet; stack_hash: of the stack with it."""

    policy: SchedulePolicy
    selected: SelectedPlugin
    stack_hash: str


class PolicyStack:
    """The stack of one scheduler, whose policy may be exchanged: the `PolicySource` of its swaps.

    fields   of the policy's context beyond those that every context has
    """

    def __init__(self, args: ServerArgs, stack: ResolvedStack, fields: Mapping[str, Any]) -> None:
        self.stack = stack
        self.stack_hash = stack_hash(stack)
        self._args = args
        self._fields = dict(fields)
        self._modules = {plugin.path: plugin.module for plugin in stack.plugins if plugin.path is not None}

    @property
    def running(self) -> SelectedPlugin:
        running = self.stack.one(KIND)
        assert running is not None
        return running

    def prepare(self, name: str, options: Mapping[str, Any]) -> NewPolicy | None:
        """Find, import and make it; None: it is the one that runs, with the same options.

        Raises ConfigurationError if it is unknown or unfit, refuses its options, or cannot be imported or made.
        """
        selected = select_policy(self._args, self.stack, name, options)
        running = self.running
        same = (selected.name, selected.digest) == (running.name, running.digest)
        if same and validated_options(selected) == validated_options(running):
            return None
        loaded = load_stack(ResolvedStack(plugins=(selected,)), INLINE)
        return NewPolicy(
            policy=loaded.make(KIND, **self._fields),
            selected=selected,
            stack_hash=stack_hash(with_plugin(self.stack, selected)),
        )

    def adopt(self, new: NewPolicy) -> None:
        """It is in place."""
        self.stack = with_plugin(self.stack, new.selected)
        self.stack_hash = new.stack_hash
        if (path := new.selected.path) is not None:
            self._drop(self._modules.get(path))
            self._modules[path] = new.selected.module

    def _drop(self, module: str | None) -> None:
        """The module of bytes that a file had before, if nothing runs of it: who edits and swaps all day keeps one of each
        file."""
        if module is not None and all(plugin.module != module for plugin in self.stack.plugins):
            sys.modules.pop(module, None)
