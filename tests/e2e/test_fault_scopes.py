"""How far a plugin's fault reaches, one observable result a scope: its request, its batch, its decision, or the replica."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jackfield.hookspecs import BatchFault
from jackfield.managers.errors import RequestError
from tests.e2e.engines import assert_alive, tiny, without_tokenizer
from tests.e2e.http.servers import DEADLINE, SIMULATED, SLOW, Server, serving, until
from tests.e2e.sick_plugins import STACK, install
from tests.unit.stack.distributions import POLICY, Site, plugin_row

GREEDY = {"max_new_tokens": 6, "temperature": 0, "ignore_eos": True}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    return Site(tmp_path / "site")


@pytest.mark.parametrize("loop", ["normal", "overlap"])
@pytest.mark.parametrize("at", [1, 4])
def test_batch_a_failed_plan_ends_its_requests_and_the_engine_lives(tiny_model: Path, loop: str, at: int) -> None:
    with tiny(tiny_model, event_loop=loop) as engine:
        whole = engine.generate(input_ids=[5, 6, 7], sampling_params=GREEDY)["output_ids"]
        engine.flush_cache()
        worker: Any = engine._runtime.worker  # type: ignore[union-attr]
        attention = getattr(worker, "_worker", worker)._runner.attention
        plan, calls = attention.plan, iter(range(1, 10**6))

        def breaks(batch: Any) -> Any:
            if next(calls) == at:
                raise BatchFault("no kernel for this batch")
            return plan(batch)

        attention.plan = breaks
        with pytest.raises(RequestError) as ended:
            engine.generate(input_ids=[5, 6, 7], sampling_params=GREEDY, rid="ended")
        assert ended.value.status_code == 500
        assert "kernel" not in ended.value.message  # the plugin's words are for the operator
        account = engine.get_server_info()["faults"]["worker.torch"]
        assert (account["by_scope"], account["last"]) == ({"batch": 1}, "BatchFault: no kernel for this batch")
        assert engine.generate(input_ids=[5, 6, 7], sampling_params=GREEDY)["output_ids"] == whole
        (life,) = engine.why("ended")["requests"]
        assert (life["events"][-1]["status_code"], life["events"][-1]["outputs"]) == (500, at - 1)
        assert_alive(engine)


BROKEN_ORDER = POLICY.replace(
    "    def order(self, waiting, view):", "    def order(self, waiting, view):\n        1 / 0"
)


def test_degrade_a_failing_policy_shows_everywhere(site: Site) -> None:
    site.add("acme-lost", plugin_row("schedule_policy", "lost"), sources={"lost": BROKEN_ORDER})
    with without_tokenizer(schedule_policy="lost", metrics=["prometheus"], topology="processes") as engine:
        engine.generate(input_ids=[[5, 6], [7, 8]], sampling_params=GREEDY)
        account = engine.get_server_info()["faults"]["schedule_policy.lost"]
        assert set(account["by_scope"]) == {"degrade"}
        assert account["last"] == "ZeroDivisionError: division by zero"
        assert engine._runtime.monitor.health.status()[1]["degraded"] == ["schedule_policy.lost"]
        shown = engine.expose_metrics()
        assert shown is not None
        assert "plugin_faults_total{" in shown.body.decode()
        assert 'plugin="schedule_policy.lost"' in shown.body.decode()


def test_degrade_stands_in_the_record(site: Site) -> None:
    site.add("acme-lost", plugin_row("schedule_policy", "lost"), sources={"lost": BROKEN_ORDER})
    with without_tokenizer(schedule_policy="lost") as engine:
        engine.generate(input_ids=[5, 6], sampling_params=GREEDY)
        first = engine._runtime.scheduler.decisions()[0]  # type: ignore[union-attr]
        assert first.faults == ("ZeroDivisionError: division by zero",)


OBSERVER = """
from jackfield.hookspecs import hookimpl


class Shy:
    @hookimpl
    def jackfield_process_started(self, process):
        if process.role == "detokenizer":
            raise ValueError("nothing to see here")


@hookimpl
def jackfield_observer():
    return Shy()
"""


def test_count_an_observers_fault_in_the_detokenizer_is_told_too(site: Site) -> None:
    row = plugin_row("observer", "shy", processes=["main", "scheduler", "detokenizer"])
    site.add("acme-shy", row, sources={"shy": OBSERVER})
    with without_tokenizer(observer=["shy"], topology="processes") as engine:
        until(lambda: "observer.shy" in engine.get_server_info()["faults"])
        account = engine.get_server_info()["faults"]["observer.shy"]
        assert (account["by_scope"], account["last"]) == ({"count": 1}, "ValueError: nothing to see here")
        timings = engine._runtime.monitor.timings  # each process tells in its own time
        until(lambda: timings()["observer.shy"]["jackfield_process_started"]["calls"] == 3)
        assert_alive(engine)


@pytest.mark.goal_row(30, 33)
@pytest.mark.parametrize("topology", ["inline", "processes"])
def test_nothing_that_can_be_survived_reaches_a_request(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topology: str
) -> None:
    """All at once: policy, observer, sink, gate and tier raise whatever they are asked, `SystemExit` too. Who hears beside
    them misses nothing, and each fault stands under its scope."""
    monkeypatch.setenv("SICK", str(tmp_path))
    install(site)
    limits = {"plugin_fault_limit": 10_000, "metrics_interval": 0}
    with without_tokenizer(topology=topology, **STACK, **limits) as engine:
        prompts = [[5, 6, 7, 8] * 20, [5, 6, 7, 8] * 20 + [9], [11]]
        answers = [engine.generate(input_ids=prompt, sampling_params=GREEDY)["output_ids"] for prompt in prompts]
        with pytest.raises(RequestError) as ended:
            engine.generate(input_ids=[13], sampling_params=GREEDY)
        assert (ended.value.status_code, ended.value.message) == (500, "The request could not be prepared.")
        engine.flush_cache()
        engine.expose_metrics()
        scopes = {
            "schedule_policy.lost": {"degrade"},
            "observer.leaver": {"count"},
            "metrics.sick": {"count"},
            "gate.closed": {"request"},
            "kv_tier.torn": {"count"},
        }
        until(lambda: engine.get_server_info()["faults"].keys() >= scopes.keys())  # each process tells in its own time
        faults = engine.get_server_info()["faults"]
        assert {plugin: set(account["by_scope"]) for plugin, account in faults.items()} == scopes
        assert not any(account["quarantined"] for account in faults.values())
        steps = engine.get_server_info()["scheduler"]["steps"]
        assert_alive(engine)
    with without_tokenizer() as engine:
        assert answers == [engine.generate(input_ids=ids, sampling_params=GREEDY)["output_ids"] for ids in prompts]
    heard = [line for file in tmp_path.glob("heard-*") for line in file.read_text().splitlines()]
    assert [line for line in heard if line.startswith("step")][:steps] == [f"step {n + 1}" for n in range(steps)]
    assert heard.count("request") == 5
    names = set(json.loads((tmp_path / "names").read_text()))
    assert names >= {"e2e_request_latency_seconds", "prompt_tokens_total", "num_running_reqs", "scheduler_steps_total"}
    assert names >= {"scheduler_step_duration_seconds", "plugin_faults_total", "stack_info"}


@pytest.mark.goal_row(33)
def test_who_is_shut_out_in_one_process_is_shown_everywhere(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SICK", str(tmp_path))
    install(site)
    sick = {"observer": ["leaver", "quiet"], "metrics": ["prometheus"], "metrics_interval": 0}
    with without_tokenizer(topology="processes", plugin_fault_limit=3, plugin_time_budget=1e-6, **sick) as engine:
        engine.generate(input_ids=[5, 6], sampling_params=GREEDY)  # the scheduler's observer fails in each step
        until(lambda: engine.get_server_info()["faults"].get("observer.leaver", {}).get("quarantined", False))
        found = engine._runtime.monitor.health.status()[1]
        assert found["quarantined"] == ["observer.leaver"]
        assert found["overruns"]["worker.simulated"]["launch"] > 0
        told = engine._runtime.monitor.plugins.of_stack(engine._runtime.resolution.stack)["plugins"]
        (leaver,) = [row for row in told if row["plugin"] == "observer.leaver"]
        assert leaver["quarantined"]
        assert {role: life["quarantined"] for role, life in leaver["processes"].items()} == {
            "main": False,
            "scheduler": True,
        }
        assert leaver["processes"]["scheduler"]["methods"]["jackfield_batch_committed"]["calls"] == 3
        shown = engine.expose_metrics()
        assert shown is not None
        (line,) = [line for line in shown.body.decode().splitlines() if "plugin_quarantined{" in line]
        assert 'plugin="observer.leaver"' in line
        assert line.endswith(" 1.0")
        assert "jackfield_plugin_overruns_total{" in shown.body.decode()
        assert_alive(engine)
    assert (tmp_path / "heard-scheduler").read_text().splitlines()[:6] == [f"step {n + 1}" for n in range(6)]


CACHE = """
from jackfield.hookspecs import hookimpl
from jackfield_cache_prefix.radix_cache import RadixCache


class HalfWay(RadixCache):
    def commit(self, lease, key, slots, *, final):
        if key.tokens[0] == 13:
            raise RuntimeError("half of the tree is changed")
        return super().commit(lease, key, slots, final=final)


@hookimpl
def jackfield_prefix_cache(context):
    return HalfWay(context.page_size)
"""


DEVICE = """
from jackfield.hookspecs import hookimpl
from jackfield_worker_simulated.options import SimulatedOptions
from jackfield_worker_simulated.worker import SimulatedWorker


class Gone(SimulatedWorker):
    def launch(self, batch):
        if 13 in batch.token_ids.tolist():
            raise RuntimeError("the device is gone")
        return super().launch(batch)


@hookimpl
def jackfield_model_worker(context):
    return Gone(context, SimulatedOptions(realtime=True, base_us=20000))
"""


@pytest.mark.parametrize("topology", ["processes", "inline"])
@pytest.mark.parametrize(
    ("kind", "source", "words"),
    [("cache", CACHE, "half of the tree is changed"), ("worker", DEVICE, "the device is gone")],
)
def test_stop_tells_every_client_and_ends_the_server_with_a_code(
    site: Site, kind: str, source: str, words: str, topology: str
) -> None:
    site.add("acme-ill", plugin_row(kind, "ill", features=["async"]), sources={"ill": source})
    chosen = {
        "cache": (*SIMULATED, *SLOW, "--cache-policy", "ill"),
        "worker": ("--worker", "ill", "--skip-server-warmup"),
    }
    with serving(*chosen[kind], "--topology", topology, check=False) as server, ThreadPoolExecutor(3) as pool:
        long = {"max_new_tokens": 4000, "ignore_eos": True}
        plain = pool.submit(server.post, "/generate", {"input_ids": [5, 6], "sampling_params": long})
        stream = pool.submit(server.post, "/generate", {"input_ids": [7, 8], "sampling_params": long, "stream": True})
        until(lambda: server.scheduler() == (2, 0))
        culprit = pool.submit(_last_words, server)
        for answer in (plain.result(DEADLINE), culprit.result(DEADLINE)):
            assert answer.status_code in (500, 503)
            assert answer.json()["error"]["message"]
        assert '"error"' in stream.result(DEADLINE).text
        assert server.wait() == 1
        assert words in server.log
        assert f"{kind}.ill" in server.log


def _last_words(server: Server) -> Any:
    return server.post("/generate", {"input_ids": [13, 13], "sampling_params": {"max_new_tokens": 4}})
