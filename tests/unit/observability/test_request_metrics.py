"""Samples of requests, and that all of them fit their declarations."""

from __future__ import annotations

import pytest

from jackfield.hookspecs import Sample
from jackfield.ipc.messages import FinishReason, SamplingParams, TextOutput
from jackfield.managers.requests.metrics import RequestMetrics
from jackfield.managers.requests.req_state import ReqState
from jackfield.observability.metrics import BY_NAME, METRICS


def state(stream: bool, received: float = 10.0) -> ReqState:
    return ReqState(
        rid="r", label="client-text", index=0, prompt_tokens=7, sampling=SamplingParams(), stream=stream, now=received
    )


def values(samples: list[Sample], name: str) -> list[float]:
    return [sample.value for sample in samples if sample.name == name]


def check(samples: list[Sample]) -> None:
    for sample in samples:
        assert tuple(name for name, _ in sample.labels) == BY_NAME[sample.name].labels
        assert "client-text" not in dict(sample.labels).values()


def end(one: ReqState, finish: FinishReason, at: float) -> None:
    times = {"queue": 0.5, "prefill": 1.0, "decode": 4.0}
    one.take(TextOutput(rid="r", finish=finish, closed=True, cached_tokens=3, stage_times=times), at)


def test_a_streamed_request_is_timed_as_its_chunks_come() -> None:
    samples: list[Sample] = []
    metrics = RequestMetrics(samples.extend)
    one = state(stream=True)
    metrics.received(1)
    metrics.progressed([(one, 1)], 12.0)
    metrics.progressed([(one, 4)], 14.0)
    one.take(TextOutput(rid="r", text="abc", ids=[1, 2, 3, 4, 5]), 14.0)
    end(one, FinishReason(type="length", length=5), 15.0)
    metrics.ended([one], 15.0)
    check(samples)
    assert values(samples, "num_received_requests_total") == [1]
    assert values(samples, "time_to_first_token_seconds") == [2.0]
    assert values(samples, "inter_token_latency_seconds") == [0.5]
    assert values(samples, "e2e_request_latency_seconds") == [5.0]
    assert values(samples, "queue_time_seconds") == [0.5]
    assert values(samples, "prompt_tokens_total") == [7]
    assert values(samples, "generation_tokens_total") == [5]
    assert values(samples, "cached_tokens_total") == [3]
    assert {sample.labels[0][1]: sample.value for sample in samples if "stage" in sample.name} == {
        "queue": 0.5,
        "prefill": 1.0,
        "decode": 4.0,
    }


def test_a_request_that_comes_in_one_piece_is_timed_by_the_scheduler() -> None:
    samples: list[Sample] = []
    metrics = RequestMetrics(samples.extend)
    one = state(stream=False)
    one.take(TextOutput(rid="r", text="abc", ids=[1, 2, 3, 4, 5]), 16.0)
    metrics.progressed([(one, 5)], 16.0)
    assert samples == []
    end(one, FinishReason(type="stop", matched=2), 16.0)
    metrics.ended([one], 16.0)
    check(samples)
    assert values(samples, "time_to_first_token_seconds") == [1.5]
    assert values(samples, "inter_token_latency_seconds") == [1.0]


@pytest.mark.parametrize(
    ("finish", "reason", "aborted"),
    [
        (FinishReason(type="stop"), "stop", []),
        (FinishReason(type="length", length=1), "length", []),
        (FinishReason(type="abort"), "abort", [1]),
        (FinishReason(type="abort", status_code=500), "error", []),
    ],
)
def test_every_end_has_one_reason(finish: FinishReason, reason: str, aborted: list[float]) -> None:
    """B80: finished = stop + length + abort + error."""
    samples: list[Sample] = []
    one = state(stream=True)
    end(one, finish, 11.0)
    RequestMetrics(samples.extend).ended([one], 11.0)
    check(samples)
    (told,) = [sample for sample in samples if sample.name == "num_finished_requests_total"]
    assert told.labels == (("reason", reason),)
    assert values(samples, "num_requests_total") == [1]
    assert values(samples, "num_aborted_requests_total") == aborted


def test_the_table_of_metrics_is_sound() -> None:
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert metric.type in ("counter", "gauge", "histogram")
        assert metric.help.endswith(".")
        assert metric.name.endswith("_total") == (metric.type == "counter")
        assert bool(metric.buckets) == (metric.type == "histogram")
        assert list(metric.buckets) == sorted(set(metric.buckets))
        if metric.type == "histogram":
            assert metric.name.endswith("_seconds")
