"""Compilers to test the gate and the masks with: no process and no thread, and a compilation ends when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jackfield.hookspecs.grammar import CompiledGrammar, GrammarError, GrammarSpec
from jackfield.managers.grammar.compiler import Outcome
from jackfield.testing.grammar_twin import TwinBackend


class HandCompiler:
    """Implements `managers.grammar.compiler.Compiler`.

    asked      the specs that were submitted, in order
    cancelled  jobs that were
    finish     ends everything that was submitted at the next `poll`; else `end` does it one by one
    wrap       changes what was compiled, such as for a faulty matcher
    """

    def __init__(
        self,
        vocab: Sequence[bytes],
        stop_ids: Sequence[int] = (),
        *,
        finish: bool = True,
        wrap: Callable[[CompiledGrammar], CompiledGrammar] = lambda grammar: grammar,
    ) -> None:
        self.asked: list[GrammarSpec] = []
        self.cancelled: list[int] = []
        self.closed = False
        self.finish = finish
        self._wrap = wrap
        self._backend = TwinBackend(lambda: vocab, stop_ids)
        self._jobs: dict[int, GrammarSpec] = {}
        self._ended: list[Outcome] = []

    def submit(self, job: int, spec: GrammarSpec) -> None:
        self.asked.append(spec)
        self._jobs[job] = spec

    def cancel(self, job: int) -> None:
        self.cancelled.append(job)
        self._jobs.pop(job, None)

    def poll(self) -> list[Outcome]:
        if self.finish:
            for job in list(self._jobs):
                self.end(job)
        ended, self._ended = self._ended, []
        return ended

    def end(self, job: int, *, error: str = "", status_code: int = 500, timed_out: bool = False) -> None:
        """This job ends, with its grammar or with an error."""
        spec = self._jobs.pop(job)
        if error:
            self._ended.append(Outcome(job=job, error=error, status_code=status_code, timed_out=timed_out))
            return
        try:
            grammar = self._backend.load(self._backend.compile(spec))
        except GrammarError as refused:
            self._ended.append(Outcome(job=job, error=refused.message, status_code=400))
            return
        self._ended.append(Outcome(job=job, grammar=self._wrap(grammar), seconds=0.25))

    def close(self) -> None:
        self.closed = True
