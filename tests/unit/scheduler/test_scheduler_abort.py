"""Abort and stop in every state, between any two phases: B43, B61."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.ipc.messages import AbortRequest, FinishReason, StopRequest
from jackfield.testing.scheduler_harness import SchedulerHarness

PHASES = ("before ingest", "before launch", "before sample", "before commit")


def advance(run: SchedulerHarness, phase: str, act: Any) -> bool:
    """One turn, with `act` taking effect before a phase. False if there was nothing to run."""
    scheduler = run.scheduler

    def here(name: str) -> None:
        if name == phase:
            act()
            scheduler.ingest()

    here("before ingest")
    scheduler.ingest()
    batch = scheduler.next_batch()
    if batch is None:
        return False
    here("before launch")
    step = scheduler.launch(batch)
    here("before sample")
    scheduler.sample(step)
    here("before commit")
    scheduler.commit(step)
    run.collect()
    return True


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("turns", range(7))
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("how", ["abort", "stop"])
def test_b43_b61_no_token_after_the_end_and_only_whole_written_pages_stay(
    phase: str, turns: int, page_size: int, how: str
) -> None:
    """Turns 0 .. 2 compute the prompt's three chunks, turns 3 .. 6 decode."""
    run = SchedulerHarness(page_size=page_size, max_prefill_tokens=8)
    prompt = list(range(100, 124))
    rid = run.submit(prompt, max_new_tokens=10)
    neighbour = run.submit([7, 7, 7], max_new_tokens=6)
    for _ in range(turns):
        advance(run, "", None)
    seen: list[int] = []

    def end() -> None:
        run.collect()
        seen.extend(run.answers[rid].ids if rid in run.answers else [])
        run.inbox.send(AbortRequest(rid=rid) if how == "abort" else StopRequest(rid=rid))

    advance(run, phase, end)
    run.collect()
    answer = run.answers[rid]
    assert answer.ids == seen
    assert answer.last.finish == (
        FinishReason(type="abort", message="The request was aborted.") if how == "abort" else FinishReason(type="stop")
    )
    run.run()
    assert run.answers[rid].ids == seen
    assert run.answers[neighbour].ids == run.expected(neighbour, 6)
    run.assert_at_rest()
    # What was kept of it must be what a cold run computes: the fake worker checks every slot that it reads.
    committed = min(turns, 3) * 8 if turns <= 3 else 24 + len(seen) - 1
    again = run.submit(prompt, rid="again", max_new_tokens=10)
    run.run()
    assert run.answers[again].ids == run.expected(again, 10)
    assert run.answers[again].last.cached_tokens <= committed // page_size * page_size
    run.assert_at_rest()


def test_abort_while_waiting() -> None:
    run = SchedulerHarness(max_running_requests=1)
    run.submit([1, 2], rid="a", max_new_tokens=5)
    run.submit([3, 4], rid="b", max_new_tokens=5)
    run.turn()
    run.abort("b")
    run.turn()
    assert run.answers["b"].ids == []
    assert run.answers["b"].last.finish.type == "abort"  # type: ignore[union-attr]
    assert run.answers["b"].last.stage_times == {"queue": 1.0}
    run.run()
    assert run.answers["a"].ids == run.expected("a", 5)
    run.assert_at_rest()


def test_abort_before_the_worker_ever_heard_of_it() -> None:
    run = SchedulerHarness()
    run.submit([1, 2], rid="a", max_new_tokens=5)
    run.scheduler.ingest()
    batch = run.scheduler.next_batch()
    run.abort("a")
    run.scheduler.ingest()
    step = run.scheduler.launch(batch)  # type: ignore[arg-type]
    assert step.ready()
    run.scheduler.sample(step)
    run.scheduler.commit(step)
    assert run.worker.batches == []
    run.submit([3, 4], rid="b", max_new_tokens=2)
    run.run()
    assert run.answers["b"].ids == run.expected("b", 2)
    assert [opened.uid for batch in run.worker.batches for opened in batch.opened] == [2]
    run.assert_at_rest()


def test_abort_all_ends_everybody_once_with_the_reason_given() -> None:
    run = SchedulerHarness(max_running_requests=2)
    rids = [run.submit([i, i], max_new_tokens=9) for i in range(5)]
    run.turn()
    reason = FinishReason(type="abort", message="The server is going down.", status_code=503)
    run.inbox.send(AbortRequest(abort_all=True, reason=reason))
    run.inbox.send(AbortRequest(abort_all=True))
    run.run()
    assert {run.answers[rid].last.finish for rid in rids} == {reason}
    run.assert_at_rest()


@pytest.mark.parametrize(
    "message", [AbortRequest(rid="a1"), AbortRequest(rid=""), AbortRequest(rid="A"), StopRequest(rid="x")]
)
def test_only_the_exact_id_ends_a_request(message: Any) -> None:
    run = SchedulerHarness()
    run.submit([1], rid="a", max_new_tokens=3)
    run.submit([1], rid="a12", max_new_tokens=3)
    run.turn()
    run.inbox.send(message)
    run.run()
    assert run.answers["a"].ids == run.expected("a", 3)
    assert run.answers["a12"].ids == run.expected("a12", 3)


def test_abort_after_the_end_changes_nothing() -> None:
    run = SchedulerHarness()
    rid = run.submit([1], max_new_tokens=1)
    run.run()
    for message in (AbortRequest(rid=rid), StopRequest(rid=rid), AbortRequest(abort_all=True)):
        run.inbox.send(message)
    run.run()
    assert len(run.answers[rid].entries) == 1
    run.assert_at_rest()
