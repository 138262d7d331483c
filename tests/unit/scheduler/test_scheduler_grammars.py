"""Requests that are bound by a grammar: masks, ends, what goes wrong with one, and everything else that may happen to a request
meanwhile."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import InFlight, WorkerLimits
from jackfield.hookspecs.grammar import CompiledGrammar, GrammarMatcher
from jackfield.managers.grammar.words import DEAD_END, LEFT_GRAMMAR
from jackfield.stack.runtime.faults import FaultLedger
from jackfield.testing.grammar_compilers import HandCompiler
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield.testing.scheduler_wide import WideWorker
from tests.unit.scheduler.constrained import EOS, SIZE, check, harness, ids, regex, text, vocabulary

PATTERNS = ["abc", "[a-f]{3,9}", "(xyz|12)+0", "\\{[0-9]{1,4}\\}", "a*b"]


def overlapped(run: SchedulerHarness, depth: int = 2) -> None:
    """As the loop `overlap` drives it: launch, then commit the step before; a deferred step is sampled behind that."""
    phases, flying = run.scheduler, deque[InFlight]()
    for _ in range(5000):
        phases.ingest()
        phases.poll()
        batch = phases.next_batch()
        if batch is not None:
            step = phases.launch(batch)
            flying.append(step)
            while step.deferred and len(flying) > 1:
                phases.commit(flying.popleft())
            phases.sample(step)
        elif not flying:
            phases.idle()
            run.collect()
            state = phases.state()
            if not state.waiting and not state.running:
                return
        while len(flying) > (depth - 1 if batch is not None else 0):
            phases.commit(flying.popleft())
        run.collect()
    raise AssertionError(f"it does not end: {phases.state()}")


@pytest.mark.parametrize("drive", [SchedulerHarness.run, overlapped], ids=["normal", "overlap"])
def test_answers_keep_to_their_grammars_and_neighbours_are_what_they_are_alone(drive: Any) -> None:
    run = harness(page_size=4)
    bound = {run.submit([2 + i, 3, 4], max_new_tokens=40, grammar=regex(p)): p for i, p in enumerate(PATTERNS)}
    free = [run.submit([9, 9, 5 + i], max_new_tokens=6, ignore_eos=True) for i in range(3)]
    drive(run)
    for rid, pattern in bound.items():
        check(run, rid, pattern)
    for rid in free:
        assert run.answers[rid].ids == run.expected(rid, 6)
    run.assert_at_rest()


def test_both_loops_give_the_same_answers() -> None:
    told = []
    for drive in (SchedulerHarness.run, overlapped):
        run = harness()
        rids = [run.submit([2 + i, 3, 4], max_new_tokens=40, grammar=regex(p)) for i, p in enumerate(PATTERNS)]
        drive(run)
        told.append([run.answers[rid].ids for rid in rids])
    assert told[0] == told[1]


def test_steps_without_such_a_row_are_not_deferred_and_masks_are_of_such_rows_alone() -> None:
    run = harness()
    free = run.submit([5, 6, 7], max_new_tokens=12, ignore_eos=True)
    bound = run.submit([2, 3, 4], max_new_tokens=10, grammar=regex("abc"))
    deferred = []
    while run.scheduler.state().running or run.scheduler.state().waiting or not deferred:
        run.scheduler.ingest()
        run.scheduler.poll()
        batch = run.scheduler.next_batch()
        if batch is None:
            continue
        step = run.scheduler.launch(batch)
        deferred.append(step.deferred)
        run.scheduler.sample(step)
        run.scheduler.commit(step)
        run.collect()
    check(run, bound, "abc")
    constrained = deferred.count(True)
    assert constrained == len(run.worker.masks) == len(run.answers[bound].ids)
    assert len(deferred) > constrained + 5  # the free one goes on alone
    assert all(len(masks.rows) == 1 for masks in run.worker.masks)
    assert len(run.answers[free].ids) == 12


def test_a_deferred_step_may_not_be_sampled_early() -> None:
    run = harness()
    run.submit([2, 3, 4], max_new_tokens=10, grammar=regex("[a-z]{9}"))
    scheduler = run.scheduler
    for _ in range(2):
        scheduler.ingest()
        scheduler.poll()
    first = scheduler.launch(scheduler.next_batch())
    scheduler.sample(first)
    second = scheduler.launch(scheduler.next_batch())
    assert second.deferred
    with pytest.raises(RuntimeError, match="before the commits"):
        scheduler.sample(second)


# ---- ends


def test_a_complete_grammar_ends_the_request_without_an_end_token() -> None:
    run = harness()
    rid = run.submit([2, 3, 4], max_new_tokens=10, grammar=regex("a"), ignore_eos=True)
    run.run()
    answer = run.answers[rid]
    assert (text(answer.ids), answer.finish.type, answer.finish.matched) == ("a", "stop", None)
    assert len(run.worker.batches) == 1


def test_b71_a_grammar_that_ends_exactly_at_max_tokens_has_ended_by_itself() -> None:
    run = harness()
    whole = run.submit([2, 3, 4], max_new_tokens=3, grammar=regex("a[0-9]c"))
    cut = run.submit([2, 3, 5], max_new_tokens=3, grammar=regex("[a-f]{4,6}"))
    run.run()
    check(run, whole, "a[0-9]c")
    assert run.answers[cut].finish.type == "length"
    assert len(run.answers[cut].ids) == 3


def test_an_end_token_comes_only_where_the_grammar_is_complete_and_then_ends_it() -> None:
    """Also for a request that would ignore it: nothing else may ever follow."""
    run = harness()
    rids = [
        run.submit([2, 3, 4 + i], max_new_tokens=60, grammar=regex("(ab)+"), ignore_eos=bool(i % 2)) for i in range(8)
    ]
    run.run()
    for rid in rids:
        answer = run.answers[rid]
        if answer.finish.type == "length":
            assert re.fullmatch("(ab)*a?", text(answer.ids))
        else:
            assert answer.finish.matched == EOS
            assert answer.ids[-1] == EOS
            assert re.fullmatch("(ab)+", text(answer.ids))
    assert any(run.answers[rid].finish.matched == EOS for rid in rids[1::2])


def test_min_new_tokens_holds_back_the_end_while_the_grammar_allows_something_else() -> None:
    run = harness()
    longer = run.submit([2, 3, 4], max_new_tokens=30, min_new_tokens=9, grammar=regex("a+"))
    full = run.submit([2, 3, 5], max_new_tokens=30, min_new_tokens=9, grammar=regex("a{2}|a{3}"))
    run.run()
    assert len(run.answers[longer].ids) >= 9
    check(run, full, "a{2,3}")  # the grammar has the last word


def test_a_stop_id_of_the_client_ends_it_before_the_grammar_does() -> None:
    run = harness()
    rid = run.submit([2, 3, 4], max_new_tokens=30, grammar=regex("abc"), stop_token_ids=tuple(ids("b")))
    run.run()
    answer = run.answers[rid]
    assert answer.finish.type == "stop"
    assert answer.finish.matched in (ids("b")[0], None)
    assert text(answer.ids) in ("ab", "abc")  # b by itself, or in a token of several letters


def test_max_tokens_0_needs_no_mask() -> None:
    run = harness()
    rid = run.submit([2, 3, 4], max_new_tokens=0, grammar=regex("abc"))
    run.run()
    assert (run.answers[rid].ids, run.worker.masks) == ([], [])


# ---- what goes wrong with one ends one


class _Faulty(CompiledGrammar):
    def __init__(self, inner: CompiledGrammar, matcher: type[FaultyMatcher]) -> None:
        self.nbytes = inner.nbytes
        self._inner, self._matcher = inner, matcher

    def matcher(self) -> GrammarMatcher:
        return self._matcher(self._inner.matcher())


class FaultyMatcher(GrammarMatcher):
    """Right, and it notes what it is asked."""

    def __init__(self, inner: GrammarMatcher) -> None:
        self.inner = inner
        self.accepted = 0
        self.ended = False

    def fill(self, mask: Any) -> None:
        self.inner.fill(mask)

    def accept(self, token: int) -> bool:
        assert token != EOS, "an end token is not for the matcher"
        assert not self.ended, "accept after the end"
        self.accepted += 1
        taken = self.inner.accept(token)
        self.ended = taken and self.inner.terminated
        return taken

    @property
    def terminated(self) -> bool:
        return self.inner.terminated

    def rollback(self, count: int) -> None:
        self.inner.rollback(count)


class RefusesTheThird(FaultyMatcher):
    def accept(self, token: int) -> bool:
        return super().accept(token) and self.accepted < 3


class RaisesAtTheThird(FaultyMatcher):
    def accept(self, token: int) -> bool:
        if self.accepted == 2:
            raise ZeroDivisionError("internals")
        return super().accept(token)


class RaisesInFill(FaultyMatcher):
    def fill(self, mask: Any) -> None:
        if self.accepted == 2:
            raise ZeroDivisionError("internals")
        super().fill(mask)


class AllowsNothing(FaultyMatcher):
    def fill(self, mask: Any) -> None:
        super().fill(mask)
        if self.accepted == 2:
            mask[:] = 0


class AllowsNobodysIds(FaultyMatcher):
    """Bits beyond the vocabulary, and none in it."""

    def fill(self, mask: Any) -> None:
        super().fill(mask)
        if self.accepted == 2:
            mask[:] = 0
            mask[-1] = 1 << 31


@pytest.mark.parametrize("drive", [SchedulerHarness.run, overlapped], ids=["normal", "overlap"])
@pytest.mark.parametrize(
    ("fault", "message", "booked"),
    [
        (RefusesTheThird, LEFT_GRAMMAR, 0),
        (RaisesAtTheThird, LEFT_GRAMMAR, 1),
        (RaisesInFill, LEFT_GRAMMAR, 1),
        (AllowsNothing, DEAD_END, 0),
        (AllowsNobodysIds, DEAD_END, 0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_b71_a_matcher_that_fails_at_token_3_ends_its_request_and_no_other(
    drive: Any, fault: type[FaultyMatcher], message: str, booked: int
) -> None:
    compiler = HandCompiler(vocabulary(), (EOS,))
    compiler._wrap = lambda grammar: _Faulty(grammar, fault if len(compiler.asked) == 1 else FaultyMatcher)
    ledger = FaultLedger("count")
    run = harness(compiler, ledger=ledger, page_size=4)
    sick = run.submit([2, 3, 4], max_new_tokens=30, grammar=regex("[a-f0-9]{20}"))
    run.scheduler.ingest()
    run.scheduler.poll()
    well = run.submit([2, 3, 5], max_new_tokens=30, grammar=regex("[a-f]{5}"))
    free = run.submit([2, 3, 6], max_new_tokens=8, ignore_eos=True)
    drive(run)
    finish = run.answers[sick].finish
    assert (finish.type, finish.message, finish.status_code) == ("abort", message, 500)
    assert len(run.answers[sick].ids) == 2, "the token that the grammar refused was shown"
    check(run, well, "[a-f]{5}")
    assert run.answers[free].ids == run.expected(free, 8)
    faults = ledger.snapshot().get("grammar.twin", {"count": 0})
    assert faults["count"] == booked
    run.assert_at_rest()


@pytest.mark.parametrize("drive", [SchedulerHarness.run, overlapped], ids=["normal", "overlap"])
def test_b71_nothing_is_accepted_after_the_end(drive: Any) -> None:
    compiler = HandCompiler(vocabulary(), (EOS,), wrap=lambda grammar: _Faulty(grammar, FaultyMatcher))
    run = harness(compiler)
    rids = {
        run.submit([2, 3, 4 + i], max_new_tokens=12, grammar=regex(pattern)): pattern
        for i, pattern in enumerate(("ab", "a(bc)?", "a[0-9]{1,3}", "[a-z]{11,12}"))
    }
    drive(run)
    for rid, pattern in rids.items():
        check(run, rid, pattern)


@pytest.mark.parametrize("when", range(6))
def test_an_abort_between_launch_and_sample_leaves_no_mask(when: int) -> None:
    run = harness()
    rid = run.submit([2, 3, 4], max_new_tokens=30, grammar=regex("[a-z]{20}"))
    other = run.submit([2, 3, 5], max_new_tokens=30, grammar=regex("[0-9]{8}"))
    scheduler = run.scheduler
    scheduler.ingest()
    scheduler.poll()
    for turn in range(7):
        step = scheduler.launch(scheduler.next_batch())
        if turn == when:
            run.abort(rid)
            scheduler.ingest()
        scheduler.sample(step)
        scheduler.commit(step)
        run.collect()
    run.run()
    assert run.answers[rid].finish.type == "abort"
    assert len(run.answers[rid].ids) == when
    check(run, other, "[0-9]{8}")
    run.assert_at_rest()


# ---- with everything else


def test_a_retracted_request_goes_on_where_its_grammar_stands() -> None:
    run = harness(total_slots=24, page_size=4, schedule_conservativeness=0.1, max_running_requests=6)
    rids = [run.submit([2, 3, 4 + i], max_new_tokens=14, grammar=regex("([a-z][0-9]){6}x")) for i in range(5)]
    run.run()
    assert run.scheduler.state().retractions > 0
    alone = harness()
    for i, rid in enumerate(rids):
        check(run, rid, "([a-z][0-9]){6}x")
        one = alone.submit([2, 3, 4 + i], max_new_tokens=14, grammar=regex("([a-z][0-9]){6}x"))
        alone.run()
        assert run.answers[rid].ids == alone.answers[one].ids
    run.assert_at_rest()


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("drive", [SchedulerHarness.run, overlapped], ids=["normal", "overlap"])
def test_a_worker_that_gives_several_tokens_gives_such_rows_one(drive: Any, deferred: bool) -> None:
    limits = WorkerLimits(max_rows=9, max_context=128, total_slots=256, page_size=4, vocab_size=SIZE, max_tokens=4096)
    run = harness(worker=WideWorker(limits, width=3, deferred=deferred), page_size=4)
    rid = run.submit([2, 3, 4], max_new_tokens=30, grammar=regex("[a-z]{3}0[0-9]{3}"))
    free = run.submit([2, 3, 5], max_new_tokens=12, ignore_eos=True)
    drive(run)
    check(run, rid, "[a-z]{3}0[0-9]{3}")
    assert run.answers[free].ids == run.expected(free, 12)
    assert max(run.worker.gave) == 3
    run.assert_at_rest()


@pytest.mark.parametrize("drive", [SchedulerHarness.run, overlapped], ids=["normal", "overlap"])
def test_a_grammar_begins_behind_its_ids(drive: Any) -> None:
    """The answer is free, end tokens included, until it holds them one behind the other."""
    script = ids("zzy") + ids("xyx") + ids("yyyy")
    run = harness(worker=None, max_running_requests=2)
    run.worker._next_token = lambda opened, sampled, state: (
        script[len(sampled)] if opened.uid == 1 and len(sampled) < len(script) else state % SIZE
    )
    rid = run.submit([2, 3, 4], max_new_tokens=30, grammar=regex("[0-9]{4}"), grammar_after=tuple(ids("yx")))
    never = run.submit([2, 3, 5], max_new_tokens=9, grammar=regex("a"), grammar_after=(0, 0, 0), ignore_eos=True)
    drive(run)
    answer = text(run.answers[rid].ids)
    assert answer.startswith("zzyx")
    assert re.fullmatch("zzyx[0-9]{4}", answer), answer
    assert run.answers[rid].finish.type == "stop"
    assert run.answers[never].ids == run.expected(never, 9)
    assert run.answers[never].finish.type == "length"


def test_an_end_token_before_the_grammar_begins_ends_the_request() -> None:
    run = harness()
    run.worker._next_token = lambda opened, sampled, state: EOS
    rid = run.submit([2, 3, 4], max_new_tokens=30, grammar=regex("a"), grammar_after=(5,))
    run.run()
    assert run.answers[rid].finish.matched == EOS


def test_a_scheduler_without_a_backend_refuses_and_goes_on() -> None:
    run = SchedulerHarness()
    rid, other = run.submit([1, 2], grammar=regex("a")), run.submit([1, 2], max_new_tokens=2)
    run.run()
    finish = run.answers[rid].finish
    assert finish is not None
    assert finish.status_code == 400
    assert "regex is not supported" in (finish.message or "")
    assert run.answers[other].ids == run.expected(other, 2)


def test_masks_have_a_bit_a_token() -> None:
    run = harness()
    run.submit([2, 3, 4], max_new_tokens=3, grammar=regex("[ab]c"))
    run.run()
    bits = np.unpackbits(run.worker.masks[0].bits.view(np.uint8), bitorder="little")
    assert np.flatnonzero(bits).tolist() == sorted([*ids("ab"), vocabulary().index(b"bc")])
