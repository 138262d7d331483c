"""Every metric of a run, in one table. Names are SGLang's where it has one; sinks put the prefix `jackfield_` before them.

No label's value comes from a client: labels are stages, reasons, plugins, process roles and routes of ours.
"""

from __future__ import annotations

from collections.abc import Mapping

from jackfield.hookspecs import Metric

PREFIX = "jackfield_"

OTHER = "other"
"""Stands in a label for whatever a client made up."""

_LATENCY = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_REQUEST = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0)
_STEP = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def _counter(name: str, text: str, *labels: str, unit: str = "") -> Metric:
    return Metric(name=name, type="counter", help=text, unit=unit, labels=labels)


def _gauge(name: str, text: str, *labels: str, unit: str = "") -> Metric:
    return Metric(name=name, type="gauge", help=text, unit=unit, labels=labels)


def _seconds(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(name=name, type="histogram", help=text, unit="seconds", labels=labels, buckets=buckets)


_REQUESTS_SEEN = (
    _counter("num_received_requests_total", "Requests that passed validation."),
    _counter("num_requests_total", "Requests that ended, for whatever reason."),
    _counter("num_finished_requests_total", "Requests that ended, by reason: stop, length, abort or error.", "reason"),
    _counter("num_aborted_requests_total", "Requests that were aborted: by their client, or because it went away."),
    _counter("prompt_tokens_total", "Prompt tokens of requests that ended.", unit="tokens"),
    _counter("generation_tokens_total", "Tokens that ended requests generated and their clients saw.", unit="tokens"),
    _counter(
        "cached_tokens_total", "Prompt tokens of ended requests that came out of the prefix cache.", unit="tokens"
    ),
    _seconds(
        "time_to_first_token_seconds",
        "From receiving a request to its first token; where the answer is not streamed, to the end of its prefill.",
        _LATENCY,
    ),
    _seconds(
        "inter_token_latency_seconds",
        "Time a token between two streamed chunks; where the answer is not streamed, the request's mean.",
        _LATENCY,
    ),
    _seconds("e2e_request_latency_seconds", "From receiving a request to its complete answer.", _REQUEST),
    _seconds("queue_time_seconds", "Time that a request waited before its first step.", _LATENCY),
    _seconds("per_stage_req_latency_seconds", "Time of a request in one stage.", _LATENCY, "stage"),
)

_SCHEDULER = (
    _gauge("num_running_reqs", "Requests that hold a row now."),
    _gauge("num_queue_reqs", "Requests that wait now."),
    _gauge("num_grammar_queue_reqs", "Requests among those that wait for their grammar to be compiled."),
    _seconds(
        "grammar_compilation_time_seconds",
        "Time of one grammar's compilation, also where it came to nothing.",
        _LATENCY,
    ),
    _counter("num_grammar_cache_hit_total", "Requests whose grammar was compiled already."),
    _counter("num_grammar_timeout_total", "Compilations that took longer than --grammar-compile-timeout."),
    _counter("num_grammar_failed_total", "Compilations that came to nothing for another reason."),
    _gauge("num_used_tokens", "KV slots that running requests use or hold in the cache.", unit="tokens"),
    _gauge("token_usage", "Share of the KV slots that is used, 0 to 1."),
    _gauge("kv_available_tokens", "Free KV slots.", unit="tokens"),
    _gauge("kv_evictable_tokens", "KV slots of cached prefixes that nobody uses.", unit="tokens"),
    _gauge("max_total_num_tokens", "KV slots altogether.", unit="tokens"),
    _gauge("kv_bytes_per_token", "Bytes of a KV slot over all layers; 0 without real memory.", unit="bytes"),
    _gauge("page_size", "Tokens in a page of the KV cache."),
    _gauge("cache_hit_rate", "Share of the prompt tokens admitted lately that came out of the cache, 0 to 1."),
    _gauge("gen_throughput", "Tokens generated a second, lately; 0 when idle."),
    _counter(
        "realtime_tokens_total",
        "Tokens as they are computed, by mode: prefill_compute, prefill_cache or decode.",
        "mode",
        unit="tokens",
    ),
    _counter("kv_loaded_tokens_total", "Tokens whose KV came back from a tier into the prefix cache.", unit="tokens"),
    _counter("kv_tier_hits_total", "Blocks that a KV tier was asked for and gave.", "tier"),
    _counter("kv_tier_misses_total", "Blocks that a KV tier was asked for and did not give.", "tier"),
    _counter("kv_tier_errors_total", "Calls of a KV tier that failed.", "tier"),
    _counter("kv_tier_dropped_writes_total", "Blocks not written to a KV tier because its queue was full.", "tier"),
    _counter(
        "kv_tier_bytes_total", "Bytes of blocks, by direction: read or written.", "tier", "direction", unit="bytes"
    ),
    _counter("evicted_tokens_total", "KV slots evicted from the prefix cache.", unit="tokens"),
    _counter(
        "num_retracted_requests_total", "Times that a running request went back into the queue for want of memory."
    ),
    _gauge("new_token_ratio", "Share of the outputs to come for which admission reserves memory now."),
    _counter(
        "forward_execution_seconds_total",
        "Time of the scheduler's thread in the worker: launching, sampling, waiting for results.",
        unit="seconds",
    ),
    _counter("scheduler_steps_total", "Scheduler steps committed."),
    _seconds("scheduler_step_duration_seconds", "From the launch of a step to its commit.", _STEP),
    _seconds(
        "scheduler_step_cpu_seconds",
        "CPU time of the scheduler's thread from launch to commit; counted once where steps overlap.",
        _STEP,
    ),
)

_RUN = (
    _counter("process_cpu_seconds_total", "CPU time of one process of the run.", "role", unit="seconds"),
    _gauge("startup_time_seconds", "From the start of the launch to ready.", unit="seconds"),
    _counter(
        "plugin_faults_total", "Faults of a plugin that were survived, by how far they reached.", "plugin", "scope"
    ),
    _gauge("plugin_quarantined", "1 if the plugin is switched off in any process after its faults.", "plugin"),
    _counter("plugin_calls_total", "Calls of a plugin's method or hook.", "plugin", "hook"),
    _counter("plugin_seconds_total", "Time spent in a plugin's method or hook.", "plugin", "hook", unit="seconds"),
    _counter("plugin_overruns_total", "Calls that took longer than --plugin-time-budget.", "plugin", "hook"),
    _counter("metrics_samples_dropped_total", "Samples dropped because a sink was slow.", "sink"),
    _gauge("stack_info", "1 for the stack that runs; after a swap of the policy there is another.", "hash", "epoch"),
)

_HTTP = (
    _counter(
        "http_requests_total",
        "HTTP requests answered, by route template, method and status; what is none of ours is 'other'.",
        "endpoint",
        "method",
        "status",
        "model",
    ),
)

GROUPS: Mapping[str, tuple[Metric, ...]] = {
    "Requests, as the main process sees them": _REQUESTS_SEEN,
    "Scheduler and memory": _SCHEDULER,
    "The run": _RUN,
    "HTTP": _HTTP,
}
"""`model` of http_requests_total: the served name, "" if none was named, else "other"."""

METRICS: tuple[Metric, ...] = tuple(metric for group in GROUPS.values() for metric in group)

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}
