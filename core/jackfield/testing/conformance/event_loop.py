"""The conformance suite of kind `event_loop`: the order of the phases on made-up ones, and whole runs on a scheduler whose
worker proves every slot, answers late, gives several tokens or fails. Needs no torch.
"""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.hookspecs import EventLoop, StepOutcome, Want, WorkerLimits
from jackfield.ipc.messages import FlushCacheRequest
from jackfield.testing.conformance.loop_phases import StrictPhases, Whims
from jackfield.testing.conformance.suite import Conformance
from jackfield.testing.conformance.walks import abort_walk, finish
from jackfield.testing.scheduler_fakes import FakeWorker
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield.testing.scheduler_wide import WideWorker

MOST_TURNS = 60
"""Turns in which a loop must have brought a handful of made-up steps to their end."""


class EventLoopConformance(Conformance):
    kind = "event_loop"

    def loop(self, phases: Any) -> EventLoop:
        made: EventLoop = self.make(phases=phases)
        return made

    def turn(self, loop: EventLoop) -> None:
        """As often as a handful of made-up steps can need."""
        for _ in range(MOST_TURNS):
            loop.step()

    @pytest.mark.parametrize("work", [(True,), (True,) * 5, (True, False, True, False, False, True)])
    def test_every_step_is_sampled_and_committed_once_in_order(self, work: tuple[bool, ...]) -> None:
        """Whatever is launched is sampled once and committed once, in launch order, and a turn without a batch loses none."""
        phases = StrictPhases(*work)
        loop = self.loop(phases)
        self.turn(loop)
        assert phases.launched == sum(work), f"{sum(work)} batches were there, {phases.launched} launched"
        assert not phases.flying, "a step was never committed"
        assert phases.counts["sample"] == phases.counts["commit"] == phases.launched

    @pytest.mark.parametrize("deferred", [{1}, {3}, {1, 2, 3, 4}])
    def test_deferred_steps_wait_for_the_earlier_commits(self, deferred: set[int]) -> None:
        """A step whose sampling needs the tokens before it is sampled after those commits and before the next launch."""
        phases = StrictPhases(True, True, True, True, deferred=frozenset(deferred))
        loop = self.loop(phases)
        self.turn(loop)
        assert phases.counts["commit"] == 4, phases.calls

    def test_depth_is_what_the_manifest_says(self) -> None:
        """More than one step is in flight exactly if the manifest has the feature `overlap`."""
        phases = StrictPhases(*[True] * 6)
        loop = self.loop(phases)
        self.turn(loop)
        self.measured("most steps in flight", phases.most)
        if "overlap" in self.manifest().features:
            assert phases.most > 1, (
                "the manifest claims overlap, but each step is committed before the next is launched"
            )
        else:
            assert phases.most == 1, f"{phases.most} steps in flight without the feature overlap"

    def test_messages_and_gates_are_looked_at_every_turn(self) -> None:
        """Each turn takes in messages and polls before it decides, also while steps run one after the other."""
        phases = StrictPhases(*[True] * 5)
        loop = self.loop(phases)
        for _ in range(8):
            phases.calls.clear()
            loop.step()
            assert {"ingest", "poll"} <= set(phases.calls), f"a turn without ingest or poll: {phases.calls}"
            first = phases.calls.index("next_batch")
            assert {"ingest", "poll"} <= set(phases.calls[:first]), f"it decides before it looks: {phases.calls}"

    def test_a_turn_says_whether_it_did_something(self) -> None:
        """RAN exactly for a turn that launched or committed; an idle one does the housekeeping, so that the core may wait."""
        phases = StrictPhases(True, True, False, False, True)
        loop = self.loop(phases)
        for _ in range(12):
            phases.calls.clear()
            outcome = loop.step()
            did = any(call.startswith(("launch", "commit")) for call in phases.calls)
            assert outcome is (StepOutcome.RAN if did else StepOutcome.IDLE), f"{outcome} for {phases.calls}"
            assert ("idle" in phases.calls) == (not did), f"idle is for turns that do nothing: {phases.calls}"

    def test_an_idle_turn_is_one_look(self) -> None:
        """With nothing to do a turn looks once and returns: it neither waits nor spins, which is the core's to do."""
        phases = StrictPhases()
        loop = self.loop(phases)
        for _ in range(50):
            loop.step()
        for phase, count in phases.counts.items():
            looks = len(Want) if phase == "next_batch" else 1  # a loop may ask for each kind of work apart
            assert count <= 50 * looks, f"{dict(phases.counts)} calls in 50 idle turns"

    def test_settle_leaves_nothing_in_flight(self) -> None:
        """`settle` commits whatever is in flight, decides nothing new, and does nothing the second time."""
        phases = StrictPhases(*[True] * 4)
        loop = self.loop(phases)
        for _ in range(3):
            loop.step()
        launched = phases.launched
        loop.settle()
        assert not phases.flying, "a step is in flight after settle"
        assert phases.launched == launched, "settle launched a step"
        phases.calls.clear()
        loop.settle()
        assert phases.calls == []
        self.turn(loop)
        assert phases.counts["commit"] == 4, "it does not go on after settle"

    @pytest.mark.parametrize("fail", ["ingest", "poll", "next_batch", "launch 2", "sample 2", "commit 1"])
    def test_what_a_phase_raises_comes_out(self, fail: str) -> None:
        """An exception of a phase ends the turn and reaches the core, which knows whose fault it is."""
        phases = StrictPhases(*[True] * 3)
        phases.fail = fail
        loop = self.loop(phases)
        with pytest.raises(RuntimeError, match=fail):
            self.turn(loop)
        assert phases.calls[-1] == fail, f"it goes on after {fail} failed: {phases.calls[-4:]}"

    @pytest.mark.parametrize(("page_size", "deferred", "nothing"), [(1, 0.0, 0.0), (4, 0.4, 0.0), (1, 0.3, 0.3)])
    def test_the_tokens_are_those_of_every_loop(self, page_size: int, deferred: float, nothing: float) -> None:
        """Random requests with aborts and end tokens: each answer is what a loop of one step in flight gives."""
        run = SchedulerHarness(page_size=page_size, max_running_requests=4, max_prefill_tokens=16, total_slots=128)
        loop = self.loop(Whims(run.scheduler, 7, deferred=deferred, nothing=nothing))
        abort_walk(run, loop.step, seed=page_size, requests=40, stop_ids=tuple(range(0, 1000, 6)))

    @pytest.mark.parametrize(("width", "deferred", "late"), [(3, False, 0), (3, True, 0), (1, False, 3), (3, True, 2)])
    def test_wide_and_late_workers(self, width: int, deferred: bool, late: int) -> None:
        """A worker that gives several tokens a step, whose sampling must wait, or whose results come late."""
        limits = WorkerLimits(
            max_rows=5, max_context=128, total_slots=256, page_size=1, vocab_size=1000, max_tokens=4096
        )
        worker = WideWorker(limits, width=width, deferred=deferred, late=late)
        run = SchedulerHarness(worker=worker, max_running_requests=4, max_prefill_tokens=16)
        abort_walk(run, self.loop(run.scheduler).step, seed=width + late, requests=30)

    def test_an_abort_while_its_step_is_in_flight(self) -> None:
        """Nobody gets a token after the end, and the row goes to the next request at once."""
        run = SchedulerHarness(max_running_requests=1, total_slots=8, context_length=8)
        loop = self.loop(run.scheduler)
        first = run.submit([1, 2, 3], max_new_tokens=6)
        second = run.submit([4, 5, 6, 7], max_new_tokens=3)
        for _ in range(3):
            loop.step()
        run.collect()
        shown = list(run.answers[first].ids)
        run.abort(first)
        finish(run, loop.step)
        assert run.answers[first].ids[: len(shown)] == shown
        assert len(run.answers[first].ids) <= len(shown) + 1
        assert run.answers[second].ids == run.expected(second, 3)
        run.assert_at_rest()

    def test_faults_of_requests_and_of_steps(self) -> None:
        """Requests that the worker fails, and steps that it refuses, end alone; the others get their tokens."""
        limits = WorkerLimits(
            max_rows=9, max_context=128, total_slots=256, page_size=1, vocab_size=1000, max_tokens=4096
        )
        worker = FakeWorker(limits)
        run = SchedulerHarness(worker=worker)
        loop = self.loop(run.scheduler)
        bad = run.submit([1, 2, 3], max_new_tokens=4)
        loop.step()
        worker.failing.add(worker.batches[0].opened[0].uid)
        good = [run.submit([n, n + 1], max_new_tokens=5) for n in range(4)]
        finish(run, loop.step)
        ending = run.answers[bad].finish
        assert ending is not None
        assert ending.type not in ("stop", "length"), f"a failed row ended as {ending}"
        assert ending.message, "a failed row ended without a word"
        assert all(run.answers[rid].ids == run.expected(rid, 5) for rid in good)
        run.assert_at_rest()

    def test_settle_and_flush_in_a_scheduler(self) -> None:
        """`settle` leaves nothing in flight; the run goes on after it, and a flush right behind an answer is granted."""
        run = SchedulerHarness()
        loop = self.loop(run.scheduler)
        rid = run.submit([1, 2], max_new_tokens=9)
        for _ in range(3):
            loop.step()
        loop.settle()
        assert run.scheduler.state().in_flight == 0
        run.scheduler.check_invariants()
        while rid not in run.answers or run.answers[rid].finish is None:
            loop.step()
            run.collect()
        run.inbox.send(FlushCacheRequest(control_id=7))
        for _ in range(5):
            loop.step()
            run.collect()
        assert [(reply.control_id, reply.ok) for reply in run.replies] == [(7, True)]
        assert run.answers[rid].ids == run.expected(rid, 9)
        state = run.scheduler.state()
        assert state.free == state.total
        run.assert_at_rest()
