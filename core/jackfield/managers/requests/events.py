"""What observers and metrics are told of requests in the main process; nothing of the warm-up's."""

from __future__ import annotations

from collections.abc import Sequence

from jackfield.hookspecs.observer import RequestFinished, RequestReceived
from jackfield.managers.requests.checked_request import CheckedRequest
from jackfield.managers.requests.metrics import RequestMetrics
from jackfield.managers.requests.req_state import ReqState, finish_type
from jackfield.stack.runtime.observers import ObserverHub


class RequestEvents:
    """muted   nobody is told anything"""

    def __init__(self, observers: ObserverHub | None, metrics: RequestMetrics | None) -> None:
        self.muted = False
        self._observers = observers
        self._metrics = metrics

    def received(self, checked: Sequence[CheckedRequest]) -> None:
        if self.muted:
            return
        if self._metrics is not None and (count := sum(one.state.wishes.metrics for one in checked)):
            self._metrics.received(count)
        if self._observers is None or not self._observers.listens("jackfield_requests_received"):
            return
        self._observers.notify(
            "jackfield_requests_received",
            requests=tuple(
                RequestReceived(
                    rid=one.state.label,
                    received_at=one.state.received_at,
                    prompt_tokens=one.state.prompt_tokens,
                    max_new_tokens=one.state.sampling.max_new_tokens,
                    stream=one.state.stream,
                )
                for one in checked
            ),
        )

    def moved(self, grown: Sequence[tuple[ReqState, int]], closed: Sequence[ReqState], now: float) -> None:
        """grown: who got tokens, and how many; closed: whose last word came, with the scheduler's counters and times."""
        if self.muted:
            return
        if self._metrics is not None:
            if seen := [(state, tokens) for state, tokens in grown if state.wishes.metrics]:
                self._metrics.progressed(seen, now)
            if over := [state for state in closed if state.wishes.metrics]:
                self._metrics.ended(over, now)
        if not closed or self._observers is None or not self._observers.listens("jackfield_requests_finished"):
            return
        self._observers.notify(
            "jackfield_requests_finished",
            requests=tuple(
                RequestFinished(
                    rid=state.label,
                    finish_type=finish_type(state.finish),
                    prompt_tokens=state.prompt_tokens,
                    completion_tokens=len(state.output_ids),
                    cached_tokens=state.cached_tokens,
                    e2e_latency=(state.finished_at or now) - state.received_at,
                    stage_times=state.times.seconds(),
                )
                for state in closed
            ),
        )
