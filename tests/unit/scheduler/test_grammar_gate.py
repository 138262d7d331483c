"""The gate of grammars: who waits for what, what is compiled once, kept, cancelled and counted."""

from __future__ import annotations

import pytest

from jackfield.managers.grammar.cache import OVERHEAD, GrammarCache
from jackfield.testing.grammar_compilers import HandCompiler
from jackfield.testing.grammar_twin import TwinBackend, TwinGrammar
from tests.unit.scheduler.constrained import EOS, check, harness, regex, vocabulary


def by_hand() -> HandCompiler:
    return HandCompiler(vocabulary(), (EOS,), finish=False)


def test_a_request_waits_without_a_row_and_others_pass_it() -> None:
    run = harness(by_hand(), max_running_requests=1)
    bound = run.submit([2, 3, 4], max_new_tokens=9, grammar=regex("[0-9]{3}"))
    free = run.submit([2, 3, 5], max_new_tokens=4, ignore_eos=True)
    for _ in range(6):
        run.turn()
    state = run.scheduler.state()
    assert (state.running, state.waiting, state.held) == (0, 1, 0)
    assert run.answers[free].ids == run.expected(free, 4)
    assert run.answers[bound].entries == []
    (life,) = run.scheduler.why(bound)["requests"]
    assert life["state"] == "gated"
    assert [event["gate"] for event in life["events"] if event["event"] == "gated"] == ["core.grammar"]
    run.compiler.end(1)
    run.run()
    check(run, bound, "[0-9]{3}")
    run.assert_at_rest()


def test_equal_specs_in_flight_are_compiled_once_and_later_ones_not_at_all() -> None:
    run = harness(by_hand())
    rids = [run.submit([2, 3, 4 + i], max_new_tokens=9, grammar=regex("[0-9]{3}")) for i in range(3)]
    run.turn()
    assert len(run.compiler.asked) == 1
    run.compiler.end(1)
    run.run()
    later = run.submit([9, 9], max_new_tokens=9, grammar=regex("[0-9]{3}"))
    run.run()
    for rid in (*rids, later):
        check(run, rid, "[0-9]{3}")
    assert len(run.compiler.asked) == 1
    reports = run.reports
    assert sum(report.grammar_hits for report in reports) == 1
    assert [seconds for report in reports for seconds in report.grammar_seconds] == [0.25]
    assert reports[-1].grammar_waiting == 0


def test_nothing_is_kept_if_nothing_may_be() -> None:
    run = harness(cache_bytes=0)
    for i in range(2):
        rid = run.submit([2, 3, 4 + i], max_new_tokens=9, grammar=regex("ab"))
        run.run()
        check(run, rid, "ab")
    assert len(run.compiler.asked) == 2


@pytest.mark.parametrize(
    ("error", "status", "timed_out"), [("too slow", 400, True), ("not available", 503, False), ("failed", 500, False)]
)
def test_b71_a_compilation_that_fails_ends_all_who_wait_for_it(error: str, status: int, timed_out: bool) -> None:
    run = harness(by_hand())
    sick = [run.submit([2, 3, 4 + i], max_new_tokens=9, grammar=regex("[0-9]{3}")) for i in range(2)]
    well = run.submit([2, 3, 9], max_new_tokens=9, grammar=regex("ab"))
    run.turn()
    run.compiler.end(1, error=error, status_code=status, timed_out=timed_out)
    run.compiler.end(2)
    run.run()
    for rid in sick:
        finish = run.answers[rid].finish
        assert (finish.type, finish.message, finish.status_code) == ("abort", error, status)
    check(run, well, "ab")
    assert sum(report.grammar_timeouts for report in run.reports) == timed_out
    assert sum(report.grammar_failures for report in run.reports) == (not timed_out)
    again = run.submit([2, 3, 4], max_new_tokens=9, grammar=regex("[0-9]{3}"))
    run.turn()
    run.compiler.end(3)
    run.run()
    check(run, again, "[0-9]{3}")  # a failure is not kept


def test_b71_an_abort_while_compiling_drops_the_compilation_with_its_last_waiter() -> None:
    run = harness(by_hand())
    first, second = (run.submit([2, 3, 4 + i], max_new_tokens=9, grammar=regex("ab")) for i in range(2))
    run.turn()
    run.abort(first)
    run.turn()
    assert run.answers[first].finish.type == "abort"
    assert run.compiler.cancelled == []
    run.abort(second)
    run.turn()
    assert run.compiler.cancelled == [1]
    third = run.submit([2, 3, 4], max_new_tokens=9, grammar=regex("ab"))
    run.turn()
    assert len(run.compiler.asked) == 2
    run.compiler.end(2)
    run.run()
    check(run, third, "ab")
    run.assert_at_rest()


def test_an_outcome_that_was_on_the_way_when_its_job_was_cancelled_is_nobodys() -> None:
    run = harness(by_hand())
    gone = run.submit([2, 3, 4], max_new_tokens=9, grammar=regex("ab"))
    run.turn()
    run.compiler.end(1)
    run.abort(gone)
    run.turn()
    run.run()
    assert run.answers[gone].finish.type == "abort"
    run.assert_at_rest()


def test_one_more_than_may_wait_is_refused_with_503() -> None:
    run = harness(by_hand(), max_waiting=2)
    rids = [run.submit([2, 3], max_new_tokens=9, grammar=regex(p)) for p in ("a", "b", "c", "a")]
    run.turn()
    finish = run.answers[rids[2]].finish
    assert finish.status_code == 503
    assert "--max-waiting-grammars" in finish.message
    for job in (1, 2):
        run.compiler.end(job)
    run.run()
    assert [run.answers[rid].finish.type for rid in rids] == ["stop", "stop", "abort", "stop"]


def test_the_compiler_is_closed_with_the_scheduler() -> None:
    run = harness(by_hand())
    run.scheduler.close()
    assert run.compiler.closed


def grammar(nbytes: int) -> TwinGrammar:
    made = TwinBackend(vocabulary, (EOS,)).load(b'"ab"')
    made.nbytes = nbytes
    return made


def test_the_cache_is_bounded_by_bytes_and_forgets_what_was_not_used_for_longest() -> None:
    cost = 1000 + 4 + OVERHEAD
    cache = GrammarCache(3 * cost)
    for name in "abc":
        cache.put(regex(name), grammar(1000))
    assert cache.get(regex("a")) is not None
    cache.put(regex("d"), grammar(1000))
    assert [cache.get(regex(name)) is not None for name in "abcd"] == [True, False, True, True]
    assert (len(cache), cache.bytes) == (3, 3 * cost)
    cache.put(regex("a"), grammar(1000))
    assert (len(cache), cache.bytes) == (3, 3 * cost)
    cache.put(regex("e"), grammar(10**6))  # it fits nowhere, and nobody goes for it
    assert (len(cache), cache.get(regex("e"))) == (3, None)
    cache.put(regex("f"), grammar(2 * cost))
    assert (len(cache), cache.bytes) == (1, 2 * cost + 4 + OVERHEAD)
