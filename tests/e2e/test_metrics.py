"""Metrics of whole runs, in both topologies: they add up, they never fall, and nothing of a client becomes a label."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jackfield import Engine
from jackfield.entrypoints.monitor import Monitor
from jackfield.entrypoints.warmup import PROMPT, WarmUpFailed, warm_up
from jackfield.managers.errors import RequestError
from jackfield.observability.metrics import METRICS, PREFIX

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]
DEADLINE = 60.0
TOPOLOGIES = ("inline", "processes")


def monitor_of(engine: Engine) -> Monitor:
    return engine._runtime.monitor


def scrape(engine: Engine) -> Series:
    """(name, labels without model_name) -> value."""
    answer = engine.expose_metrics()
    assert answer is not None
    found: Series = {}
    for family in text_string_to_metric_families(answer.body.decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("model_name") == engine.model_name
            assert sample.name.startswith(PREFIX)
            if not sample.name.endswith("_created"):
                found[sample.name.removeprefix(PREFIX), tuple(sorted(labels.items()))] = sample.value
    return found


def value(series: Mapping[Any, float], name: str, **labels: str) -> float:
    return series.get((name, tuple(sorted(labels.items()))), 0.0)


def settled(engine: Engine, steps: Callable[[Series], bool]) -> Series:
    """Scrapes until `steps` holds: the scheduler's last report may be on its way when an answer is there."""
    until = time.monotonic() + DEADLINE
    while not steps(series := scrape(engine)):
        assert time.monotonic() < until, series
        time.sleep(0.01)
    return series


@pytest.fixture(params=TOPOLOGIES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(
        worker="simulated",
        topology=request.param,
        metrics=["prometheus"],
        metrics_interval=0,
        check_invariants="step",
        max_running_requests=8,
    ) as engine:
        yield engine


def assert_monotone(before: Series, after: Series) -> None:
    kinds = {metric.name: metric.type for metric in METRICS}
    for (name, labels), old in before.items():
        family = name if name in kinds else name.rpartition("_")[0]
        if kinds[family] != "gauge":
            assert after[name, labels] >= old, name


def test_scrapes_while_serving(engine: Engine) -> None:
    """B80: counters are monotone and consistent with what was sent; finished = stop + length + abort + error; gauges return
    to 0."""
    scrapes: list[Series] = []
    over = threading.Event()
    failed: list[BaseException] = []

    def scraper() -> None:
        try:
            while not over.is_set():
                scrapes.append(scrape(engine))
        except BaseException as error:
            failed.append(error)

    watching = threading.Thread(target=scraper)
    watching.start()
    sent = {"length": 0, "abort": 0}
    prompt_tokens = generated = 0
    shared = list(range(100, 140))
    try:
        for number in range(12):
            prompts = [[*shared, 200 + number, 300 + i] for i in range(4)]
            for answer in engine.generate(input_ids=prompts, sampling_params={"max_new_tokens": 6, "ignore_eos": True}):
                sent["length"] += 1
                prompt_tokens += answer["meta_info"]["prompt_tokens"]
                generated += answer["meta_info"]["completion_tokens"]
            stream = engine.generate(
                input_ids=[*shared, 7 + number],
                sampling_params={"max_new_tokens": 4000, "ignore_eos": True},
                stream=True,
            )
            next(stream)
            stream.close()
            sent["abort"] += 1
            prompt_tokens += len(shared) + 1
            with pytest.raises(RequestError):
                engine.generate(input_ids=[-1])
    finally:
        over.set()
        watching.join(DEADLINE)
    assert not failed
    ended = sum(sent.values())
    series = settled(
        engine, lambda now: value(now, "num_running_reqs") == 0 and value(now, "num_requests_total") == ended
    )
    scrapes.append(series)
    assert len(scrapes) > 2
    for before, after in itertools.pairwise(scrapes):
        assert_monotone(before, after)
    finished = {reason: value(series, "num_finished_requests_total", reason=reason) for reason in ("stop", "error")}
    assert finished == {"stop": 0, "error": 0}
    for reason, count in sent.items():
        assert value(series, "num_finished_requests_total", reason=reason) == count
    assert value(series, "num_received_requests_total") == value(series, "num_requests_total") == ended
    assert value(series, "num_aborted_requests_total") == sent["abort"]
    assert value(series, "prompt_tokens_total") == prompt_tokens
    assert value(series, "generation_tokens_total") >= generated + sent["abort"]
    assert value(series, "cached_tokens_total") > 0
    assert value(series, "e2e_request_latency_seconds_count") == ended
    assert value(series, "per_stage_req_latency_seconds_count", stage="queue") == ended
    assert value(series, "time_to_first_token_seconds_count") == ended
    for gauge in ("num_running_reqs", "num_queue_reqs", "num_used_tokens", "token_usage", "gen_throughput"):
        assert value(series, gauge) == 0, gauge
    total = value(series, "max_total_num_tokens")
    assert value(series, "kv_available_tokens") + value(series, "kv_evictable_tokens") == total
    steps = value(series, "scheduler_steps_total")
    assert steps == value(series, "scheduler_step_duration_seconds_count") > 0
    assert steps == engine.get_server_info()["scheduler"]["steps"]
    in_worker = value(series, "forward_execution_seconds_total")
    assert 0 < in_worker < value(series, "scheduler_step_duration_seconds_sum")
    computed = {
        mode: value(series, "realtime_tokens_total", mode=mode) for mode in ("prefill_compute", "prefill_cache")
    }
    assert sum(computed.values()) == prompt_tokens
    assert computed["prefill_cache"] == value(series, "cached_tokens_total")
    assert value(series, "realtime_tokens_total", mode="decode") >= value(series, "generation_tokens_total")


def test_the_stack_and_the_processes_are_told(engine: Engine) -> None:
    engine.generate("hello", {"max_new_tokens": 1})
    info = engine.get_server_info()
    series = scrape(engine)
    assert value(series, "stack_info", hash=info["stack"]["hash"], epoch="0") == 1
    assert value(series, "startup_time_seconds") > 0
    for process in info["processes"]:
        assert value(series, "process_cpu_seconds_total", role=process["role"]) > 0


def test_invented_names_do_not_grow_the_labels(engine: Engine) -> None:
    """B80: the label of an unknown model is "other"; ids and routes of clients are no labels at all."""
    engine.generate("hello", {"max_new_tokens": 1})
    monitor = monitor_of(engine)
    settled(engine, lambda now: value(now, "num_requests_total") == 1)
    before = set(scrape(engine))
    for number in range(1000):
        monitor.http_request("/v1/completions", "POST", 404, f"model-{number}")
        monitor.http_request(None, f"METHOD{number}", 404)
    for number in range(50):
        engine.generate("hello", {"max_new_tokens": 1}, rid=f"client-{number}")
    monitor.http_request("/v1/completions", "POST", 200, engine.model_name)
    series = settled(engine, lambda now: value(now, "num_requests_total") == 51)
    http = {labels: count for (name, labels), count in series.items() if name == "http_requests_total"}
    assert len(http) == 3
    unknown = {"endpoint": "/v1/completions", "method": "POST", "status": "404", "model": "other"}
    assert value(series, "http_requests_total", **unknown) == 1000
    nowhere = {"endpoint": "other", "method": "other", "status": "404", "model": ""}
    assert value(series, "http_requests_total", **nowhere) == 1000
    new = set(series) - before
    assert len(new) < 50, new  # what a process reports for the first time, its plugins' calls say, may come late
    said = {word for _, labels in new for _, word in labels}
    assert not {word for word in said if word.startswith(("model-", "METHOD", "client-"))}


def test_the_warm_up_leaves_no_trace(tmp_path: Path) -> None:
    for topology in TOPOLOGIES:
        directory = tmp_path / topology
        with Engine(
            worker="simulated",
            topology=topology,
            metrics=["prometheus"],
            observer=["jsonl"],
            options={"observer.jsonl": {"directory": str(directory)}},
            metrics_interval=0,
        ) as engine:
            assert warm_up(engine._mover, has_tokenizer=True) > 0
            kv = engine.get_server_info()["kv"]
            assert kv["free"] == kv["total"]
            answer = engine.generate(PROMPT, {"max_new_tokens": 2})
            assert answer["meta_info"]["cached_tokens"] == 0
            series = settled(engine, lambda now: value(now, "scheduler_steps_total") == 2)
            assert value(series, "num_received_requests_total") == value(series, "num_requests_total") == 1
            hooks = (
                "jackfield_requests_received",
                "jackfield_batch_committed",
            )  # of the main process, of the scheduler
            calls = [value(series, "plugin_calls_total", plugin="observer.jsonl", hook=hook) for hook in hooks]
            assert calls == [1, 2]
        events = [json.loads(line)["event"] for line in (directory / "requests.jsonl").read_text().splitlines()]
        assert events == ["started", "received", "finished", "stopped"]
        events = [json.loads(line)["event"] for line in (directory / "steps.jsonl").read_text().splitlines()]
        assert events == ["started", *["scheduled", "decided", "committed"] * 2, "stopped"]


def test_a_warm_up_that_fails_says_why() -> None:
    with Engine(worker="simulated", topology="inline", context_length=1) as engine:
        with pytest.raises(WarmUpFailed, match=r"the warm-up request failed: .*context"):
            warm_up(engine._mover, has_tokenizer=False)
        assert engine.generate(input_ids=[5], sampling_params={"max_new_tokens": 1})["output_ids"]


def test_faults_and_times_of_plugins_are_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import jackfield_observability_jsonl.run_log as run_log

    def broken(*_: Any) -> None:
        raise OSError("no space left")

    with Engine(
        worker="simulated",
        topology="inline",
        metrics=["prometheus"],
        observer=["jsonl"],
        options={"observer.jsonl": {"directory": str(tmp_path), "steps": False}},
        plugin_fault_limit=3,
    ) as engine:
        monkeypatch.setattr(run_log.RunLog, "write", broken)
        for _ in range(5):
            engine.generate("hello", {"max_new_tokens": 1})
        series = scrape(engine)
        assert value(series, "plugin_faults_total", plugin="observer.jsonl", scope="count") == 3
        assert value(series, "plugin_calls_total", plugin="observer.jsonl", hook="jackfield_requests_finished") >= 1
        healthy, details = monitor_of(engine).health.status()
        assert healthy
        assert details["quarantined"] == ["observer.jsonl"]
        monkeypatch.undo()


def test_without_a_sink_nothing_answers() -> None:
    with Engine(worker="simulated", topology="inline") as engine:
        engine.generate("hello", {"max_new_tokens": 1})
        assert engine.expose_metrics() is None


def test_two_uses_of_one_sink_do_not_meet() -> None:
    sinks = ["prometheus", {"plugin": "prometheus", "as": "second"}]
    with Engine(worker="simulated", topology="inline", metrics=sinks) as engine:
        engine.generate("hello", {"max_new_tokens": 1})
        settled(engine, lambda now: value(now, "num_requests_total") == 1)
        for sink in ("metrics.prometheus", "metrics.second"):  # each on a thread of its own
            settled(engine, lambda now, sink=sink: value(now, "plugin_calls_total", plugin=sink, hook="record") > 0)
