"""Another schedule policy on a live replica, over HTTP under load and through an engine: who runs hears nothing of it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.stack.discovery.plugin_file import MODULE_PREFIX
from tests.e2e.engines import assert_alive, tiny, without_tokenizer
from tests.e2e.http.servers import DEADLINE, SIMULATED, Server, serving, until
from tests.unit.stack.distributions import POLICY, Site, plugin_row

pytestmark = pytest.mark.goal_row(34)

HERALD = """
import dataclasses, json, os
from jackfield.hookspecs import hookimpl


class Herald:
    def __init__(self, context):
        self.role = context.process.role

    @hookimpl
    def jackfield_stack_changed(self, stack):
        with open(os.environ["HERALD"], "a") as lines:
            lines.write(json.dumps({"role": self.role, **dataclasses.asdict(stack)}) + "\\n")


@hookimpl
def jackfield_observer(context):
    return Herald(context)
"""
ILL = POLICY.replace("        self.context = context", '        raise RuntimeError("no such weather")')
POLICIES = ("lof", "lpm", "dfs-weight", "fair-share", "priority", "random", "token-budget", "edf", "hrrn", "fcfs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("swap")


@pytest.fixture(scope="module")
def site(folder: Path) -> Site:
    site = Site(folder / "site")
    roles = ["main", "scheduler", "detokenizer"]
    site.add("acme-herald", plugin_row("observer", "herald", processes=roles), sources={"herald": HERALD})
    site.add("acme-ill", plugin_row("schedule_policy", "ill"), sources={"ill": ILL})
    return site


@pytest.fixture(scope="module")
def server(site: Site, folder: Path) -> Iterator[Server]:
    flags = (
        "--topology",
        "processes",
        "--observer",
        "herald",
        "--metrics",
        "prometheus",
        "--max-running-requests",
        "4",
    )
    timed = ("--option", "worker.simulated.realtime=true", "--option", "worker.simulated.base_us=1000")
    environment = {"PYTHONPATH": str(site.folder), "HERALD": str(folder / "herald.jsonl")}
    with serving(*SIMULATED, "--skip-tokenizer-init", *flags, *timed, env=environment) as server:
        yield server


def ask(server: Server, number: int) -> Any:
    prompt = [3 + number % 3, *range(10, 10 + 5 * (number % 4)), number]
    limits = {"max_new_tokens": 30 + number, "temperature": 0, "ignore_eos": True}
    return server.generate(input_ids=prompt, sampling_params=limits, priority=number % 3, tenant=str(number % 2))


@pytest.mark.goal_row(13)
def test_requests_go_on_through_swap_after_swap(server: Server, folder: Path) -> None:
    """row 34; row 13: every result, metric and record names the stack."""
    start = server.get("/schedule_policy").json()
    assert (start["name"], start["stack_epoch"]) == ("fcfs", 0)
    with ThreadPoolExecutor(16) as pool:
        alone = [job.result(DEADLINE)["output_ids"] for job in [pool.submit(ask, server, i) for i in range(16)]]
        jobs = [pool.submit(ask, server, i) for i in range(16)]
        told: list[dict[str, Any]] = []
        while not all(job.done() for job in jobs) or len(told) < len(POLICIES):
            answer = server.post("/schedule_policy", {"name": POLICIES[len(told) % len(POLICIES)]})
            assert answer.status_code == 200, answer.text
            told.append(answer.json())
        answers = [job.result(DEADLINE) for job in jobs]
    assert [answer["output_ids"] for answer in answers] == alone
    hashes = {0: start["stack_hash"], **{one["stack_epoch"]: one["stack_hash"] for one in told}}
    assert [one["stack_epoch"] for one in told] == list(range(1, len(told) + 1))
    assert [one["changed"] for one in told] == [True] * len(told)
    metas = [answer["meta_info"] for answer in answers]
    assert all(meta["stack_hash"] == hashes[meta["stack_epoch"]] for meta in metas)
    assert any(meta["stack_epoch"] for meta in metas)

    last = told[-1]
    for route in ("/server_info", "/plugins"):
        stack = server.get(route).json()["stack"]
        assert (stack["epoch"], stack["hash"]) == (len(told), last["stack_hash"])
        assert [row["name"] for row in stack["plugins"] if row["kind"] == "schedule_policy"] == [last["name"]]
    shown: dict[tuple[int, str], float] = {}
    for labels, value in re.findall(r"jackfield_stack_info\{(.*)\} (\S+)", server.get("/metrics").text):
        found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        shown[int(found["epoch"]), found["hash"]] = float(value)
    assert shown == {(len(told), last["stack_hash"]): 1}
    heard: dict[str, list[tuple[int, str]]] = {}
    until(lambda: len((folder / "herald.jsonl").read_text().splitlines()) == 3 * len(told))
    for line in map(json.loads, (folder / "herald.jsonl").read_text().splitlines()):
        heard.setdefault(line["role"], []).append((line["epoch"], line["stack_hash"]))
    expected = [(one["stack_epoch"], one["stack_hash"]) for one in told]
    assert heard == {"main": expected, "scheduler": expected, "detokenizer": expected}
    assert f"stack epoch 1: schedule_policy plugin '{told[0]['name']}'" in server.log
    long = max(answers, key=lambda answer: answer["meta_info"]["stack_epoch"])["meta_info"]["id"]
    story = "\n".join(server.get(f"/requests/{long}/why").json()["story"])
    assert "took the place of" in story


@pytest.mark.goal_row(11, 31)
def test_the_page_of_plugins_tells_what_each_costs_in_each_process(server: Server) -> None:
    server.generate(input_ids=[4, 5, 6], sampling_params={"max_new_tokens": 3})
    until(lambda: server.get("/plugins").json()["busy_s"] > 0)
    told = server.get("/plugins").json()
    stack = [f"{row['kind']}.{row['instance']}" for row in told["stack"]["plugins"]]
    rows = {row["plugin"]: row for row in told["plugins"]}
    assert list(rows) == stack
    policy = rows[next(key for key in stack if key.startswith("schedule_policy"))]["processes"]
    assert list(policy) == ["scheduler"]
    order = policy["scheduler"]["methods"]["budget"]
    assert order["calls"] > 0
    assert 0 < order["share"] < 1
    assert order["exceptions"] == order["overruns"] == 0
    cache = rows["cache.radix"]["processes"]["scheduler"]["methods"]
    assert {"acquire", "commit", "release"} <= set(cache)
    worker = rows["worker.simulated"]["processes"]["scheduler"]["methods"]
    assert worker["launch"]["calls"] == worker["sample"]["calls"] > 0
    assert set(rows["metrics.prometheus"]["processes"]["main"]["methods"]) >= {"record"}
    assert set(rows["observer.herald"]["processes"]) == {"main", "scheduler", "detokenizer"}
    assert not any(row["quarantined"] for row in rows.values())
    text = server.get("/metrics").text
    for name in ("plugin_calls_total", "plugin_seconds_total"):
        assert re.search(rf'jackfield_{name}\{{.*hook="acquire".*plugin="cache.radix".*\}}', text)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"name": "lmp"}, "no schedule_policy plugin 'lmp' is installed; did you mean 'lpm'"),
        (
            {"name": "edf", "options": {"lat": "first"}},
            'options."schedule_policy.edf".lat (from a live swap): unknown option',
        ),
        ({"name": "edf", "options": {"late": 3}}, 'options."schedule_policy.edf".late (from a live swap): must be '),
        ({"name": "fcfs", "options": {"a": 1}}, "has no options"),
        ({"name": "ill"}, "could not be made: jackfield_schedule_policy raised RuntimeError: no such weather"),
    ],
)
def test_what_cannot_be_had_changes_nothing(server: Server, body: dict[str, Any], words: str) -> None:
    before = server.get("/schedule_policy").json()
    answer = server.post("/schedule_policy", body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "policy_refused"
    assert words in error["message"]
    assert server.get("/schedule_policy").json() == before
    assert server.state()["faults"] == {}


def test_each_of_two_clients_that_swap_at_once_hears_of_its_own_epoch(server: Server) -> None:
    def swap(name: str) -> dict[str, Any]:
        told: dict[str, Any] = server.post("/schedule_policy", {"name": name}).json()
        assert told["name"] == name
        return told

    before = server.get("/schedule_policy").json()["stack_epoch"]
    with ThreadPoolExecutor(2) as clients:
        answers = list(clients.map(swap, ["lof", "random"] * 10))
    epochs = [answer["stack_epoch"] for answer in answers if answer["changed"]]
    assert sorted(epochs) == list(range(before + 1, before + 1 + len(epochs)))


def test_the_same_policy_with_the_same_options_is_no_swap(server: Server) -> None:
    first = server.post("/schedule_policy", {"name": "edf", "options": {"late": "last"}}).json()
    again = server.post("/schedule_policy", {"name": "edf", "options": {"late": "last"}}).json()
    other = server.post("/schedule_policy", {"name": "edf"}).json()
    assert (again["changed"], again["stack_epoch"]) == (False, first["stack_epoch"])
    assert (other["options"], other["stack_epoch"] - first["stack_epoch"]) == ({}, other["changed"])
    assert other["changed"] == (other["stack_hash"] != first["stack_hash"])


def test_a_policy_that_was_installed_after_the_start(server: Server, site: Site) -> None:
    site.add("acme-late", plugin_row("schedule_policy", "late"), sources={"late": POLICY})
    answer = server.post("/schedule_policy", {"name": "late"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["distribution"] == "acme-late"
    assert server.generate(input_ids=[4, 5], sampling_params={"max_new_tokens": 2})["meta_info"]["stack_epoch"]


def test_an_engine_swaps_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with without_tokenizer(cache_policy="chunk", metrics=["prometheus"]) as engine:
        with pytest.raises(ConfigurationError, match="it needs 'forest', which cache 'chunk' does not offer"):
            engine.swap_schedule_policy("dfs-weight")
        params = {"max_new_tokens": 6, "temperature": 0, "ignore_eos": True}
        stream = iter(engine.generate(input_ids=[5, 6], sampling_params=params, stream=True))
        next(stream)
        told = engine.swap_schedule_policy("token-budget", {"step_tokens": 64})
        assert (told["changed"], told["stack_epoch"], told["options"]) == (True, 1, {"step_tokens": 64})
        *_, last = stream
        assert last["meta_info"]["stack_epoch"] == 1
        assert last["meta_info"]["stack_hash"] == told["stack_hash"] == engine.get_server_info()["stack"]["hash"]
        assert last["output_ids"] == engine.generate(input_ids=[5, 6], sampling_params=params)["output_ids"]
        assert not engine.swap_schedule_policy("token-budget", {"step_tokens": 64})["changed"]
        assert_alive(engine)


ONE_FILE = """
from jackfield.hookspecs import SchedulePolicy, hookimpl

PLUGIN = {"kind": "schedule_policy", "name": "draft", "summary": "a draft", "contract": {"schedule_policy": "1.0"}}


class Draft(SchedulePolicy):
    def order(self, waiting, view):
        return None


@hookimpl
def jackfield_schedule_policy(context):
    return Draft()
"""


def test_a_draft_in_one_file_is_edited_and_swapped_in_again(tmp_path: Path) -> None:
    file = tmp_path / "draft.py"
    file.write_text(ONE_FILE)
    with without_tokenizer(plugin=[file], schedule_policy="draft") as engine:
        assert not engine.swap_schedule_policy("draft")["changed"]
        file.write_text(ONE_FILE.replace("return None", "return [row for row in range(len(waiting))]"))
        told = engine.swap_schedule_policy("draft")
        assert (told["changed"], told["stack_epoch"]) == (True, 1)
        assert len([name for name in sys.modules if name.startswith(f"{MODULE_PREFIX}draft_")]) == 1
        file.write_text(ONE_FILE.replace("return Draft()", "return 3"))
        with pytest.raises(ConfigurationError, match="returned int, not a"):
            engine.swap_schedule_policy("draft")
        assert engine.get_server_info()["stack"]["hash"] == told["stack_hash"]
        assert_alive(engine)


@pytest.mark.goal_row(31)
def test_what_a_model_is_made_of_is_metered_once_a_step(tiny_model: Path) -> None:
    with tiny(tiny_model, attention_backend="torch", ops="torch") as engine:
        engine.generate(
            input_ids=[5, 6, 7], sampling_params={"max_new_tokens": 4, "temperature": 0, "ignore_eos": True}
        )
        steps = engine.get_server_info()["scheduler"]["steps"]
        costs = engine._runtime.monitor.timings()
        assert costs["attention.torch"]["plan"]["calls"] == costs["worker.torch"]["launch"]["calls"] >= steps
        assert set(costs["attention.torch"]) == {"plan"}
        assert costs["worker.torch"]["result"]["calls"] >= steps
        assert not {"ops.torch", "model.llama"} & set(costs)
