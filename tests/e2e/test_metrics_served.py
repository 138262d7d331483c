"""Metrics, health and warm-up of a real server with its processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.http.servers import LONG, SIMULATED, SLOW, Server, serving, until

METRICS = ("--metrics", "prometheus", "--metrics-interval", "0")

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(server: Server) -> Series:
    answer = server.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    found: Series = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "model_name"}
            if not sample.name.endswith("_created"):
                found[sample.name.removeprefix("jackfield_"), tuple(sorted(labels.items()))] = sample.value
    return found


def value(series: Series, name: str, **labels: str) -> float:
    return series.get((name, tuple(sorted(labels.items()))), 0.0)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*SIMULATED, *SLOW, *METRICS, "--served-model-name", "mine") as up:
        yield up


def test_aborts_refusals_and_answers_add_up(server: Server) -> None:
    """B80: finished = stop + length + abort + error, gauges back to 0, invented model names are "other"."""
    before = scrape(server)
    for _ in range(5):
        server.generate(input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 2, "ignore_eos": True})
    with server.client() as client:
        for _ in range(3):
            request = {"input_ids": [5, 6, 7], "sampling_params": LONG, "stream": True}
            with client.stream("POST", "/generate", json=request) as stream:
                next(stream.iter_lines())
        for number in range(1000):
            body = {"model": f"invented-{number}", "prompt": "x", "max_tokens": 1}
            assert client.post("/v1/completions", json=body).status_code == 404
        assert client.post("/v1/completions", json={"model": "mine", "prompt": "x", "max_tokens": 1}).status_code == 200
        for number in range(50):
            assert client.get(f"/no/such/route/{number}").status_code == 404
    until(
        lambda: value(scrape(server), "num_aborted_requests_total") - value(before, "num_aborted_requests_total") == 3
    )
    until(lambda: value(scrape(server), "num_running_reqs") == 0)
    after = scrape(server)

    def grown(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    reasons = {
        reason: grown("num_finished_requests_total", reason=reason) for reason in ("stop", "length", "abort", "error")
    }
    assert reasons["abort"] == 3
    assert reasons["error"] == 0
    assert reasons["stop"] + reasons["length"] == 6
    assert grown("num_requests_total") == grown("num_received_requests_total") == 9
    for gauge in ("num_queue_reqs", "num_used_tokens", "token_usage", "gen_throughput"):
        assert value(after, gauge) == 0, gauge
    http = {"method": "POST", "endpoint": "/v1/completions"}
    assert grown("http_requests_total", **http, status="404", model="other") == 1000
    assert grown("http_requests_total", **http, status="200", model="mine") == 1
    assert grown("http_requests_total", method="GET", endpoint="other", status="404", model="") == 50
    assert not [key for key in after if "invented" in str(key) or "/no/such" in str(key)]
    for role in ("main", "scheduler", "detokenizer"):
        assert value(after, "process_cpu_seconds_total", role=role) > 0


def test_health_fails_while_the_scheduler_does_not_move() -> None:
    """Open work and no completed step: unhealthy, and healthy again when it goes on."""
    flags = ("--health-timeout", "1", "--throughput-log-interval", "1")
    with serving(*SIMULATED, *SLOW, *METRICS, *flags) as up, up.client() as client:
        scheduler = up.pid("scheduler")
        request = {"input_ids": [5, 6, 7], "sampling_params": LONG, "stream": True}
        with client.stream("POST", "/generate", json=request) as stream:
            next(stream.iter_lines())
            os.kill(scheduler, signal.SIGSTOP)
            try:
                until(lambda: up.get("/health").status_code == 503)
                assert "no step was completed" in up.get("/health").text
            finally:
                os.kill(scheduler, signal.SIGCONT)
            until(lambda: up.get("/health").status_code == 200)
            until(lambda: "running 1, waiting 0, token usage" in up.log)


def test_the_warm_up_is_told_by_the_log_alone() -> None:
    with serving("--worker", "simulated", *METRICS) as up:
        assert "warming up: 1 of 1" in up.log
        series = scrape(up)
        assert value(series, "num_received_requests_total") == value(series, "num_requests_total") == 0
        assert value(series, "scheduler_steps_total") == 0
        assert value(series, "startup_time_seconds") > 0
        assert up.state()["kv"]["evictable"] == 0
