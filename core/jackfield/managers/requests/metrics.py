"""Samples what the main process sees of requests: counts, latencies, stages. Knows no sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jackfield.hookspecs import Sample
from jackfield.managers.requests.req_state import ReqState, finish_type
from jackfield.observability.stages import RequestStage

Record = Callable[[Sequence[Sample]], None]


class RequestMetrics:
    """Called by the tokenizer manager, never for the warm-up. `record` neither blocks nor raises."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def received(self, count: int) -> None:
        self._record([Sample(name="num_received_requests_total", value=count)])

    def progressed(self, states: Sequence[tuple[ReqState, int]], now: float) -> None:
        """states: each with the number of tokens that it has just got, >= 1. Only streamed requests are timed here: the
        tokens of others come in one piece."""
        samples = []
        for state, tokens in states:
            if not state.stream:
                continue
            before, state.last_token_at = state.last_token_at, now
            if before is None:
                samples.append(Sample(name="time_to_first_token_seconds", value=now - state.received_at))
            else:
                samples.append(Sample(name="inter_token_latency_seconds", value=(now - before) / tokens))
        if samples:
            self._record(samples)

    def ended(self, states: Sequence[ReqState], now: float) -> None:
        samples: list[Sample] = []
        for state in states:
            reason = finish_type(state.finish)
            seconds = state.times.seconds()
            counts = {
                "num_requests_total": 1,
                "prompt_tokens_total": state.prompt_tokens,
                "generation_tokens_total": len(state.output_ids),
                "cached_tokens_total": state.cached_tokens,
            }
            if reason == "abort":
                counts["num_aborted_requests_total"] = 1
            samples += [Sample(name=name, value=value) for name, value in counts.items() if value]
            samples.append(Sample(name="num_finished_requests_total", value=1, labels=(("reason", reason),)))
            samples.append(
                Sample(name="e2e_request_latency_seconds", value=(state.finished_at or now) - state.received_at)
            )
            samples.append(Sample(name="queue_time_seconds", value=seconds.get(RequestStage.QUEUE.value, 0.0)))
            samples += [
                Sample(name="per_stage_req_latency_seconds", value=value, labels=(("stage", stage),))
                for stage, value in seconds.items()
            ]
            if not state.stream and state.output_ids:
                samples += _unstreamed(len(state.output_ids), seconds)
        if samples:
            self._record(samples)


def _unstreamed(tokens: int, seconds: dict[str, float]) -> list[Sample]:
    """From the scheduler's own times, because the tokens of such a request arrive in one piece."""
    stages = (RequestStage.TOKENIZE, RequestStage.QUEUE, RequestStage.PREFILL)
    first = sum(seconds.get(stage.value, 0.0) for stage in stages)
    samples = [Sample(name="time_to_first_token_seconds", value=first)]
    if tokens > 1:
        mean = seconds.get(RequestStage.DECODE.value, 0.0) / (tokens - 1)
        samples.append(Sample(name="inter_token_latency_seconds", value=mean))
    return samples
