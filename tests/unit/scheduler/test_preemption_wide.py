"""Preemption and retraction of rows that give several tokens a step, over shared prefixes, with several steps in flight."""

from __future__ import annotations

import random

import pytest

from jackfield.hookspecs import WorkerLimits
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield.testing.scheduler_wide import WideWorker
from jackfield_cache_prefix.radix_cache import RadixCache
from jackfield_scheduler_loops.overlap import OverlapLoop
from jackfield_scheduler_policies.priority import PriorityFirst, PriorityOptions

FAMILIES = [[first] * 20 + list(range(30, 50)) for first in range(3)]


@pytest.mark.parametrize("seed", range(12))
def test_everybody_gets_the_tokens_that_are_theirs(seed: int) -> None:
    """The launch books the most that may come, so that what a retraction takes back must be what in fact came."""
    choose = random.Random(seed)
    page_size, depth = choose.choice([1, 4, 16]), 1 + seed % 3
    limits = WorkerLimits(
        max_rows=6, max_context=128, total_slots=128, page_size=page_size, vocab_size=1000, max_tokens=64
    )
    run = SchedulerHarness(
        worker=WideWorker(limits, width=choose.choice([2, 4])),
        cache=RadixCache(page_size),
        policy=PriorityFirst(PriorityOptions(preempt_difference=choose.choice([0, 5]), ageing=choose.choice([0, 1.0]))),
        page_size=page_size,
        context_length=128,
        max_running_requests=4,
        max_prefill_tokens=choose.choice([16, 64]),
        schedule_conservativeness=choose.choice([0.01, 1.0]),
        max_skips=choose.choice([3, 1000]),
        hold_back_tokens=choose.choice([0, 8]),
    )
    loop = OverlapLoop(run.scheduler, depth)
    sent: dict[str, int] = {}
    aborted = set()

    def turns(count: int) -> None:
        for _ in range(count):
            loop.step()
            run.collect()
            run.scheduler.check_invariants()

    for _ in range(25):
        prompt = choose.choice(FAMILIES)[: choose.randint(1, 40)] + [choose.randint(100, 110)] * choose.choice([0, 4])
        new = choose.randint(0, 60)
        sent[run.submit(prompt, max_new_tokens=new, priority=choose.randint(0, 20))] = new
        if choose.random() < 0.15:
            rid = choose.choice(list(sent))
            aborted.add(rid)
            run.abort(rid)
        turns(choose.choice([0, 1, 3, 9]))
    turns(1500)
    for rid, new in sent.items():
        answer = run.answers[rid]
        assert answer.finish is not None
        whole = rid not in aborted or answer.finish.type != "abort"
        assert answer.ids == run.expected(rid, new if whole else len(answer.ids))
    assert run.scheduler.state().retractions > 0
    run.assert_at_rest()
