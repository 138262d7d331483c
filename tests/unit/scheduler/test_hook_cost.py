"""What observers that do nothing add to a step, counted in calls: the same in every run on every machine, so that the limit
can be close and nobody has to run it again. Times are `benchmarks/hooks.py`'s."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from types import FrameType, MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import BatchScheduled, ProcessInfo, StepRecord, WorkerLimits, hookimpl
from jackfield.stack.loading.load import LoadedPlugin, LoadedStack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.stack.runtime.observers import ObserverHub
from jackfield.testing.scheduler_fakes import FakeWorker
from jackfield.testing.scheduler_harness import SchedulerHarness
from tests.unit.stack.test_observers import selected

pytestmark = pytest.mark.goal_row(32)

PROCESS = ProcessInfo(role="scheduler", pid=1, stack_hash="0")


class Nothing:
    @hookimpl
    def jackfield_batch_scheduled(self, batch: BatchScheduled) -> None:
        pass

    @hookimpl
    def jackfield_batch_committed(self, record: StepRecord) -> None:
        pass


class Keeper:
    def __init__(self, kept: list[BatchScheduled | StepRecord]) -> None:
        self.kept = kept

    @hookimpl
    def jackfield_batch_scheduled(self, batch: BatchScheduled) -> None:
        self.kept.append(batch)

    @hookimpl
    def jackfield_batch_committed(self, record: StepRecord) -> None:
        self.kept.append(record)


def hub(observers: int, make: Callable[[], object] = Nothing) -> ObserverHub:
    plugins = tuple(
        LoadedPlugin(
            selected=selected(f"nothing-{number}"),
            module=ModuleType("x"),
            options=None,
            hooks=MappingProxyType({"jackfield_observer": lambda context: make()}),
        )
        for number in range(observers)
    )
    stack = ResolvedStack(plugins=tuple(plugin.selected for plugin in plugins))
    return ObserverHub(LoadedStack(stack, "scheduler", plugins), FaultLedger(), PROCESS, threads=False)


def calls(work: Callable[[], Any]) -> int:
    """Of functions, Python's and C's, but for those that the fakes make. Not those of a collection of garbage, which tells
    whoever asked to be told (hypothesis does) and runs finalizers, at a moment that depends on the tests before."""
    count = 0

    def told(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        if event in ("call", "c_call") and "jackfield/testing" not in frame.f_code.co_filename:
            count += 1

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()
    sys.setprofile(told)
    try:
        work()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return count


def of_a_step(running: int, observers: int) -> int:
    limits = WorkerLimits(
        max_rows=running + 1, max_context=64, total_slots=8192, page_size=1, vocab_size=1000, max_tokens=4096
    )
    run = SchedulerHarness(
        worker=FakeWorker(limits),
        observers=hub(observers),
        context_length=64,
        max_running_requests=running,
        check_invariants="off",
        report_interval=1e9,
    )
    for number in range(running):
        run.submit([number], max_new_tokens=30, ignore_eos=True)
    for _ in range(3):
        run.turn()
    assert run.scheduler.state().running == running
    scheduler = run.scheduler

    def step() -> None:
        batch = scheduler.next_batch()
        assert batch is not None
        launched = scheduler.launch(batch)
        scheduler.sample(launched)
        scheduler.commit(launched)

    return calls(step)


def test_a_further_observer_costs_its_own_call_and_a_look_at_the_clock() -> None:
    one, five = of_a_step(8, 1), of_a_step(8, 5)
    assert five - one == 4 * 2 * 2  # four more, of two hooks each


def test_what_observers_cost_does_not_grow_with_the_requests() -> None:
    assert of_a_step(256, 5) - of_a_step(256, 0) == of_a_step(8, 5) - of_a_step(8, 0)


def test_five_that_do_nothing_are_a_small_part_of_a_step() -> None:
    none, five = of_a_step(256, 0), of_a_step(256, 5)
    assert of_a_step(256, 0) == none  # it is a count: there is no noise in it
    assert five <= 1.1 * none, f"{five} calls with five observers, {none} with none"


def test_what_they_hear_is_whole_though_no_initialiser_filled_it_in() -> None:
    kept: list[BatchScheduled | StepRecord] = []
    run = SchedulerHarness(observers=hub(1, lambda: Keeper(kept)))
    run.submit([3, 4], max_new_tokens=3, ignore_eos=True)
    while run.scheduler.state().running or not kept:
        run.turn()
    assert {type(record) for record in kept} == {BatchScheduled, StepRecord}
    for record in kept:
        assert list(vars(record)) == [field.name for field in fields(record)]
        again = type(record)(**vars(record))
        assert repr(again) == repr(record)
        arrays = [value for value in vars(record).values() if isinstance(value, np.ndarray)]
        assert arrays
        assert not any(array.flags.writeable for array in arrays)
        with pytest.raises(FrozenInstanceError):
            record.step = 0  # type: ignore[misc]
