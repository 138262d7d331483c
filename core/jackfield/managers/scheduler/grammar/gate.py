"""The core's gate of requests that are bound by a grammar: they wait here, without a row or KV, until it is compiled.

Requests of one spec share one compilation, and what was compiled is kept. A compilation that nobody waits for is cancelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jackfield.hookspecs import FaultScope, Gate, GateAnswer, GateEvent, GateRequest, RequestFault
from jackfield.hookspecs.grammar import CompiledGrammar, GrammarSpec
from jackfield.managers.grammar.cache import GrammarCache
from jackfield.managers.grammar.compiler import Compiler, Outcome
from jackfield.managers.grammar.words import GRAMMAR_FAILED
from jackfield.managers.scheduler.gates import OWN, OwnGateRequest
from jackfield.managers.scheduler.grammar.constraint import Constraint
from jackfield.managers.scheduler.request import Request
from jackfield.managers.scheduler.watchers import Ledger
from jackfield.stack.errors import PLUGIN_ERRORS

GATE_NAME = f"{OWN}grammar"


@dataclass(frozen=True, kw_only=True)
class GrammarSetup:
    """What a scheduler needs for constrained requests.

    compiler      makes grammars
    cache_bytes   for those that are kept
    max_waiting   most different ones that wait
    plugin        the backend's key in the fault ledger
    """

    compiler: Compiler
    cache_bytes: int = 256 * 2**20
    max_waiting: int = 256
    plugin: str = "grammar"


@dataclass
class GrammarNumbers:
    """Since the last `take`: hits of the cache, seconds of each compilation that ended, those that took too long, and others
    that failed."""

    hits: int = 0
    seconds: list[float] = field(default_factory=list)
    timeouts: int = 0
    failures: int = 0


@dataclass
class _Wait:
    job: int
    requests: dict[int, Request]


class GrammarGate(Gate):
    def __init__(self, setup: GrammarSetup, ledger: Ledger) -> None:
        self._compiler = setup.compiler
        self._cache = GrammarCache(setup.cache_bytes)
        self._max_waiting = setup.max_waiting
        self._plugin = setup.plugin
        self._ledger = ledger
        self._jobs = 0
        self._waiting: dict[GrammarSpec, _Wait] = {}
        self._spec_of_job: dict[int, GrammarSpec] = {}
        self._spec_of_uid: dict[int, GrammarSpec] = {}
        self._numbers = GrammarNumbers()

    def enter(self, request: GateRequest) -> GateAnswer:
        assert isinstance(request, OwnGateRequest)
        mine = request.request
        spec = mine.sampling.grammar
        if spec is None:
            return GateAnswer.OPEN
        grammar = self._cache.get(spec)
        if grammar is not None:
            self._numbers.hits += 1
            self._bind(mine, grammar)
            return GateAnswer.OPEN
        wait = self._waiting.get(spec)
        if wait is None:
            if len(self._waiting) >= self._max_waiting:
                raise RequestFault(
                    f"{len(self._waiting)} grammars wait for their compilation, and no more may (--max-waiting-grammars). "
                    "Try again later.",
                    status_code=503,
                )
            self._jobs += 1
            wait = self._waiting[spec] = _Wait(self._jobs, {})
            self._spec_of_job[wait.job] = spec
            self._compiler.submit(wait.job, spec)
        wait.requests[mine.uid] = mine
        self._spec_of_uid[mine.uid] = spec
        return GateAnswer.WAITING

    def poll(self) -> Sequence[GateEvent]:
        events: list[GateEvent] = []
        for outcome in self._compiler.poll():
            spec = self._spec_of_job.pop(outcome.job, None)
            if spec is None:
                continue  # it was cancelled when its outcome was on the way
            self._count(outcome)
            for uid, request in self._waiting.pop(spec).requests.items():
                del self._spec_of_uid[uid]
                events.append(self._event(request, outcome))
            if outcome.grammar is not None:
                self._cache.put(spec, outcome.grammar)
        return events

    def cancel(self, uid: int) -> None:
        spec = self._spec_of_uid.pop(uid)
        wait = self._waiting[spec]
        del wait.requests[uid]
        if not wait.requests:
            del self._waiting[spec], self._spec_of_job[wait.job]
            self._compiler.cancel(wait.job)

    def close(self) -> None:
        self._compiler.close()

    @property
    def waiting(self) -> int:
        """Requests that wait here."""
        return len(self._spec_of_uid)

    @property
    def kept(self) -> int:
        """Compiled grammars that are kept."""
        return len(self._cache)

    @property
    def has_news(self) -> bool:
        """Whether something was counted since the last `take`."""
        return self._numbers != GrammarNumbers()

    def take(self) -> GrammarNumbers:
        """What was counted since the last call."""
        taken, self._numbers = self._numbers, GrammarNumbers()
        return taken

    def _event(self, request: Request, outcome: Outcome) -> GateEvent:
        if outcome.grammar is None:
            return GateEvent(uid=request.uid, error=outcome.error, status_code=outcome.status_code)
        try:
            self._bind(request, outcome.grammar)
        except RequestFault as fault:
            return GateEvent(uid=request.uid, error=fault.message, status_code=fault.status_code)
        return GateEvent(uid=request.uid)

    def _bind(self, request: Request, grammar: CompiledGrammar) -> None:
        """Raises RequestFault."""
        try:
            matcher = grammar.matcher()
        except PLUGIN_ERRORS as error:
            self._ledger.record(self._plugin, FaultScope.REQUEST, error)
            raise RequestFault(GRAMMAR_FAILED, status_code=500) from error
        request.constraint = Constraint(matcher, request.sampling.grammar_after)

    def _count(self, outcome: Outcome) -> None:
        self._numbers.seconds.append(outcome.seconds)
        self._numbers.timeouts += outcome.timed_out
        self._numbers.failures += outcome.grammar is None and not outcome.timed_out
