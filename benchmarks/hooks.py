"""What observers cost a decode step: five that do nothing, over none, with 256 running.

    python benchmarks/hooks.py [--json] [--rounds N] [--wait SECONDS]

Both sides have a hub; steps of the two are taken in turn (A B B A ...), so that whatever slows the machine down for a while
slows down both. A round's figure is the median over its steps, the figure the median over the rounds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from types import MappingProxyType, ModuleType

from figures import Figure, over, ratio, report
from machine import machine_facts
from scheduler import PACKAGES, QUICK, Bench, Sizes

from jackfield.hookspecs import BatchScheduled, ProcessInfo, StepDecision, StepRecord, hookimpl
from jackfield.stack.discovery.manifest import ManifestRow
from jackfield.stack.loading.load import LoadedPlugin, LoadedStack
from jackfield.stack.resolved import ResolvedStack, SelectedPlugin
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.observers import ObserverHub

OBSERVERS = 5


class Nothing:
    """Hears all that comes once a step, and does nothing."""

    @hookimpl
    def jackfield_batch_scheduled(self, batch: BatchScheduled) -> None:
        pass

    @hookimpl
    def jackfield_batch_committed(self, record: StepRecord) -> None:
        pass


class Listener(Nothing):
    """And what makes the scheduler tell more than it knows anyway."""

    @hookimpl
    def jackfield_step_decided(self, decision: StepDecision) -> None:
        pass


def loaded(number: int, kind: type) -> LoadedPlugin:
    name = f"nothing-{number}"
    selected = SelectedPlugin(
        kind="observer",
        name=name,
        instance=name,
        distribution="benchmark",
        version="0",
        package="",
        module="",
        manifest=ManifestRow(kind="observer", name=name, summary="does nothing", contract={"observer": "1.0"}),
        reason="",
    )
    hooks = MappingProxyType({"jackfield_observer": lambda context: kind()})
    return LoadedPlugin(selected=selected, module=ModuleType("x"), options=None, hooks=hooks)


def hub(count: int, kind: type = Nothing) -> ObserverHub:
    """As a scheduler process has it."""
    plugins = tuple(loaded(number, kind) for number in range(count))
    stack = ResolvedStack(plugins=tuple(plugin.selected for plugin in plugins))
    process = ProcessInfo(role="scheduler", pid=os.getpid(), stack_hash="")
    return ObserverHub(LoadedStack(stack, "scheduler", plugins), FaultLedger(), process, threads=False)


class HookBench(Bench):
    def figures(self) -> Iterator[tuple[str, Figure]]:
        s = self.sizes
        observers = f"{OBSERVERS} observers that hear of each batch and do nothing"
        who = f"of a decode step with {s.middle} running and {observers}, over none"
        a, b = self._sides(Nothing)
        device = s.device * 1e3
        whole = [[device + cpu for cpu in side] for side in (a, b)]
        what = f"scheduler CPU and the {device:g} ms that the device takes {who}"
        yield "observers_five", ratio(what, *whole, over, "<= 1.02", "ms")
        yield "observers_five_scheduler", ratio(f"scheduler CPU alone {who}", a, b, over, "", "ms")
        a, b = self._sides(Listener)
        what = f"scheduler CPU alone {who}; they hear of each decision too"
        yield "observers_five_decisions", ratio(what, a, b, over, "", "ms")

    def _sides(self, kind: type) -> tuple[list[float], list[float]]:
        running = self.sizes.middle
        without, beside = (self.decoding(running, observers=hub(count, kind)) for count in (0, OBSERVERS))
        return self.step_by_step(without, beside)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    parser.add_argument("--rounds", type=int, default=9, help="how often each figure is measured (default 9)")
    parser.add_argument("--wait", type=float, default=120.0, help="seconds to wait for a quiet machine (default 120)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that it works, measures nothing")
    arguments = parser.parse_args(argv)
    machine = machine_facts(arguments.wait)
    figures = dict(HookBench(QUICK if arguments.quick else Sizes(), arguments.rounds).figures())
    report(machine, figures, arguments.json, PACKAGES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
