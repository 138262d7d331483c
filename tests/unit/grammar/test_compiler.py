"""The compiler's process: what a compilation does wrong is told to those who wait for it, and the next one is as good as ever."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from jackfield.hookspecs import GrammarSpec
from jackfield.hookspecs.grammar import CompiledGrammar
from jackfield.managers.grammar.compiler import Outcome, ProcessCompiler
from jackfield.managers.grammar.messages import CompilerOrders
from jackfield.managers.grammar.process import CompilerProcess
from jackfield.managers.grammar.words import GRAMMAR_FAILED, TOO_MUCH_MEMORY, UNAVAILABLE, too_slow
from jackfield.stack.discovery.scan import discover
from jackfield.stack.loading.load import INLINE, load_stack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.selection.single import select_one

PLUGIN = Path(__file__).parent / "sick_grammar.py"
VOCAB = [b"", b"a", b"b", b"ab"]
TIMEOUT = 0.4


class Bench:
    """A compiler, and what came of its jobs."""

    def __init__(self, *, timeout: float = TIMEOUT, memory: int = 64 << 20, side_by_side: int = 2, eager: bool = False):
        selected = select_one(discover(files=(PLUGIN,)), "grammar", "sick", {})
        backend = load_stack(ResolvedStack(plugins=(selected,)), INLINE).make(
            "grammar", vocab_size=len(VOCAB), stop_ids=(0,), vocab=lambda: VOCAB
        )
        self.orders = CompilerOrders(
            plugin=selected,
            vocab_size=len(VOCAB),
            stop_ids=(0,),
            vocab=VOCAB,
            timeout=timeout,
            memory=memory,
            side_by_side=side_by_side,
            sys_path=sys.path,
        )
        self.faults: list[BaseException] = []
        self.started: list[CompilerProcess] = []
        self._news = threading.Event()
        self._told: dict[int, Outcome] = {}
        self._jobs = 0
        self.start: Callable[[], CompilerProcess] = lambda: CompilerProcess(self.orders, os.environ)
        self.compiler = ProcessCompiler(
            self._started, backend, self.faults.append, timeout=timeout, eager=eager, news=self._news.set
        )

    def _started(self) -> CompilerProcess:
        self.started.append(self.start())
        return self.started[-1]

    def submit(self, source: str) -> int:
        self._jobs += 1
        self.compiler.submit(self._jobs, GrammarSpec(form="regex", source=source))
        return self._jobs

    def outcome(self, job: int) -> Outcome:
        """Waits for it."""
        while job not in self._told:
            self._news.wait()
            self._news.clear()
            self._told.update({one.job: one for one in self.compiler.poll()})
        return self._told.pop(job)

    def of(self, source: str) -> Outcome:
        return self.outcome(self.submit(source))

    def works(self) -> None:
        grammar = self.of("ab").grammar
        assert isinstance(grammar, CompiledGrammar)
        matcher = grammar.matcher()
        assert matcher.accept(1)
        assert not matcher.accept(1)

    def take_faults(self) -> list[str]:
        told = [str(fault) for fault in self.faults]
        self.faults.clear()
        return told


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench(eager=True)
    yield made
    made.compiler.close()


def test_a_grammar_comes_back_as_it_was_compiled(bench: Bench) -> None:
    bench.works()
    outcome = bench.of("a*")
    assert (outcome.error, outcome.timed_out) == ("", False)
    assert outcome.seconds > 0


@pytest.mark.parametrize(
    ("source", "error", "status", "fault"),
    [
        ("hang", too_slow(TIMEOUT), 400, None),
        ("memory:1000000000", TOO_MUCH_MEMORY, 400, None),
        ("refuse", "regex: uniqueItems is not supported (at /a/uniqueItems)", 400, None),
        ("(((", "regex: a ( without its ), at character 3", 400, None),
        ("raise", GRAMMAR_FAILED, 500, "internals"),
        ("text", GRAMMAR_FAILED, 500, "returned a str, not bytes"),
        ("killed", GRAMMAR_FAILED, 500, "ended with SIGKILL"),
        ("exits", GRAMMAR_FAILED, 500, "ended with code 3"),
        ("unloadable", GRAMMAR_FAILED, 500, "internals"),
    ],
)
def test_b71_what_goes_wrong_is_told_and_the_next_one_is_good(
    bench: Bench, source: str, error: str, status: int, fault: str | None
) -> None:
    """Nothing of it is shown to clients but what the backend said to them; it is a fault of the backend, or none."""
    outcome = bench.of(source)
    assert (outcome.grammar, outcome.error, outcome.status_code) == (None, error, status)
    assert outcome.timed_out == (source == "hang")
    told = bench.take_faults()
    assert len(told) == (fault is not None)
    assert all(fault in one for one in told if fault is not None)
    bench.works()
    assert len(bench.started) == 1, "the warm process was lost"


def test_b71_many_large_ones_do_not_wait_for_each_other(bench: Bench) -> None:
    """Larger, both ways, than what a socket holds."""
    jobs = [bench.submit("large:" + "x" * 400_000) for _ in range(8)]
    assert all(bench.outcome(job).grammar is not None for job in jobs)
    bench.works()


def test_a_server_may_have_more_descriptors_than_select_knows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip("this system allows no descriptor above 1023")
    if soft < 1200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1200, hard))
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while taken[-1] < 1040:
            taken.append(os.dup(taken[0]))
        crowded = Bench()
        try:
            crowded.works()
            assert crowded.started[0].link.fileno() > 1023
        finally:
            crowded.compiler.close()
    finally:
        for number in taken:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_several_at_once_beside_one_that_hangs(bench: Bench) -> None:
    hung = bench.submit("hang")
    others = [bench.submit("a" * n) for n in range(1, 9)]
    assert all(bench.outcome(job).grammar is not None for job in others)
    assert bench.outcome(hung).timed_out


def test_a_cancelled_one_ends_and_its_place_is_free(bench: Bench) -> None:
    """With a limit of time that would be no help."""
    patient = Bench(timeout=10_000.0, side_by_side=1)
    try:
        hung = patient.submit("hang")
        waits = patient.submit("ab")
        patient.compiler.cancel(hung)
        assert patient.outcome(waits).grammar is not None
        queued = [patient.submit("hang"), patient.submit("raise"), patient.submit("ab")]
        for job in queued[:2]:
            patient.compiler.cancel(job)
        assert patient.outcome(queued[2]).grammar is not None
        assert patient.take_faults() == []
    finally:
        patient.compiler.close()


def test_b71_a_process_that_is_killed_is_started_again(bench: Bench) -> None:
    """What it had in hand is compiled by the next one; a job that costs two processes is given up with 503."""
    own = Bench(timeout=10_000.0)
    try:
        own.works()
        first = own.compiler.pid
        hung = own.submit("hang")
        while hung not in own.started[0].sent:
            own.works()
        assert first is not None
        os.kill(first, signal.SIGKILL)
        own.works()
        second = own.compiler.pid
        assert second not in (first, None)
        while hung not in own.started[1].sent:
            own.works()
        os.kill(second or 0, signal.SIGKILL)
        outcome = own.outcome(hung)
        assert (outcome.error, outcome.status_code) == (UNAVAILABLE, 503)
        own.works()
    finally:
        own.compiler.close()
    for process in own.started:
        assert process._process.returncode is not None, "it was not reaped"


def test_a_process_that_cannot_start_costs_those_who_wait_and_is_tried_again() -> None:
    own = Bench()
    good = own.start

    def fails() -> CompilerProcess:
        raise OSError("no process")

    try:
        own.start = fails
        assert own.of("a").status_code == 503
        assert own.take_faults() == ["no process"]
        gone = msgspec.structs.replace(own.orders, plugin=replace(own.orders.plugin, path=str(PLUGIN) + ".gone"))
        own.start = lambda: CompilerProcess(gone, os.environ)
        assert own.of("a").status_code == 503
        assert "the backend could not be made in its process" in own.take_faults()[0]
        own.start = good
        own.works()
    finally:
        own.compiler.close()


def test_close_twice_with_work_under_way_and_without_any() -> None:
    own = Bench(timeout=10_000.0)
    own.submit("hang")
    own.compiler.close()
    own.compiler.close()
    assert all(process._process.returncode is not None for process in own.started)
    idle = Bench()
    idle.compiler.close()
    assert idle.started == []
    assert not [thread for thread in threading.enumerate() if thread.name == "jackfield-grammars" and not thread.daemon]
