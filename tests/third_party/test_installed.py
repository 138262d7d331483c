"""Strangers' packages, installed from wheels beside Jackfield's in an environment of their own: seen, chosen, refused, served."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from jackfield.hookspecs import KINDS
from tests.third_party.environment import STRANGERS, Environment, build_wheel
from tests.unit.stack.distributions import Site, plugin_row

pytestmark = pytest.mark.slow

PLUGINS = {
    ("schedule_policy", "least-work", "least-work-policy"),
    ("attention", "columnar", "columnar-attention"),
    ("metrics", "statsd", "statsd-sink"),
    ("logits_processor", "allow-ids", "allow-ids-processor"),
    ("kv_tier", "dict", "dict-tier"),
    ("gate", "file", "file-gate"),
    ("routes", "kobold", "kobold-routes"),
    ("grammar", "choice", "choice-grammar"),
    ("parser", "tag", "tag-parser"),
    ("cache", "lfu", "lfu-cache"),
    ("event_loop", "turns", "turns-loop"),
    ("model", "gemma", "gemma-model"),
    ("loader", "npz", "npz-loader"),
    ("worker", "replay", "replay-worker"),
    ("ops", "double", "double-ops"),
    ("observer", "sqlite", "sqlite-observer"),
}
UNFIT = {"model": "it does not offer LlamaForCausalLM", "loader": "it reads *.npz"}
"""Kind -> why a stranger of it cannot serve the default model, allowed or not."""


def jackfield(environment: Environment, cwd: Path, *command: str, code: int = 0, **variables: str) -> str:
    """Standard output of a command that ends with `code`, or standard error if that is not 0."""
    done = environment.run("-m", "jackfield", *command, cwd=cwd, **variables)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stderr if code else done.stdout


def script(environment: Environment, cwd: Path, code: str, *arguments: str) -> Any:
    """What a Python script printed last, as JSON."""
    (cwd / "script.py").write_text(code)
    done = environment.run("script.py", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_nothing_of_the_checkout_shines_through(environment: Environment, tmp_path: Path) -> None:
    code = """
import importlib.metadata, json, sys
import jackfield
from jackfield.stack.discovery.scan import discover
rows = [str(row.location) for row in discover()]
editable = [d.name for d in importlib.metadata.distributions() if d.read_text("direct_url.json") and
            "editable" in d.read_text("direct_url.json") and "jackfield" in d.name]
print(json.dumps({"core": jackfield.__file__, "rows": rows, "editable": editable}))
"""
    told = script(environment, tmp_path, code)
    assert told["core"].startswith(str(environment.folder))
    assert told["editable"] == []
    assert len(told["rows"]) >= len(PLUGINS) + 11
    assert all(place.startswith(str(environment.folder)) for place in told["rows"])


def test_what_they_depend_on_is_there(environment: Environment) -> None:
    """pip's own judgement of every requirement of theirs and ours in the environment."""
    pip = [sys.executable, "-m", "pip", "--python", environment.python, "check"]
    done = subprocess.run(pip, capture_output=True, text=True, env=environment.variables())
    ours = [line for line in done.stdout.splitlines() if line.startswith(("jackfield", *STRANGERS))]
    assert ours == []
    assert done.stdout.strip(), done.stderr  # it did look


@pytest.mark.goal_row(39)
def test_a_new_package_is_written_by_the_installed_command(environment: Environment, tmp_path: Path) -> None:
    """The templates are in the wheel, and the project that they make builds."""
    jackfield(environment, tmp_path, "new", "schedule_policy", "my-own", "--license", "Apache-2.0")
    wheel = build_wheel(tmp_path / "my-own-policy", tmp_path / "wheel")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= {f"my_own_policy/{file}" for file in ("__init__.py", "plugin.py", "plugin.toml", "py.typed")}
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "file-gate 1" in jackfield(environment, tmp_path, "new", "gate", "file", code=2)


@pytest.mark.goal_row(1)
def test_they_are_listed_and_shown_with_their_options(environment: Environment, tmp_path: Path) -> None:
    rows = json.loads(jackfield(environment, tmp_path, "plugins", "list", "--json"))
    found = {(row["kind"], row["name"], row["distribution"]) for row in rows if row["status"] == "ok"}
    assert found >= PLUGINS
    versions = {row["distribution"]: row["version"] for row in rows}
    for name, project in STRANGERS.items():
        assert versions[name] == tomllib.loads((project / "pyproject.toml").read_text())["project"]["version"]
    assert "patience" in jackfield(environment, tmp_path, "plugins", "show", "schedule_policy.least-work")
    assert "columnar/kt-paged" in jackfield(environment, tmp_path, "plugins", "show", "attention.columnar")


def explain(environment: Environment, cwd: Path, *flags: str) -> dict[str, Any]:
    stack: dict[str, Any] = json.loads(jackfield(environment, cwd, "explain", "--json", *flags))["stack"]
    return stack


def why_not(stack: dict[str, Any], kind: str, name: str) -> str:
    (reason,) = [row["reason"] for row in stack["rejected"] if (row["kind"], row["name"]) == (kind, name)]
    return str(reason)


def test_a_stranger_is_not_chosen_unless_named_or_allowed(environment: Environment, tmp_path: Path) -> None:
    stack = explain(environment, tmp_path, "--page-size", "16")
    for kind, name, distribution in PLUGINS:
        assert name not in {row["name"] for row in stack["plugins"] if row["kind"] == kind}
        if KINDS[kind].exclusive:
            reason = UNFIT.get(kind, f"--plugin-allow {distribution}")
            assert reason in why_not(stack, kind, name)
    allowed = explain(
        environment, tmp_path, "--page-size", "16", "--plugin-allow", "least-work-policy,columnar-attention"
    )
    assert "does not exceed that of 'cpu'" in why_not(allowed, "attention", "columnar")
    named = explain(
        environment, tmp_path, "--page-size", "16", "--attention-backend", "columnar", "--metrics", "statsd"
    )
    (row,) = [row for row in named["plugins"] if row["kind"] == "attention"]
    assert (row["name"], row["distribution"], row["reason"]) == (
        "columnar",
        "columnar-attention",
        "named by --attention-backend",
    )
    assert why_not(named, "attention", "torch") == "'columnar' was named"
    assert ("metrics", "statsd") in {(row["kind"], row["name"]) for row in named["plugins"]}


def test_a_rival_of_our_own_name_is_not_passed_over_in_silence(environment: Environment, tmp_path: Path) -> None:
    Site(tmp_path / "rival").add("acme-cpu", plugin_row("attention", "cpu"))
    message = jackfield(environment, tmp_path, "explain", code=2, PYTHONPATH=str(tmp_path / "rival"))
    assert "acme-cpu 1.0 and jackfield-ops-cpu" in message
    assert "uninstall one" in message


def test_layouts_that_disagree_are_refused(environment: Environment, tmp_path: Path) -> None:
    flags = ("--page-size", "16", "--prefill-attention-backend", "columnar", "--decode-attention-backend", "torch")
    message = jackfield(environment, tmp_path, "explain", *flags, code=2)
    assert "columnar/kt-paged" in message
    assert "nhd-paged, hnd-paged" in message


def test_a_strangers_probe_is_asked(environment: Environment, tmp_path: Path) -> None:
    message = jackfield(environment, tmp_path, "explain", "--attention-backend", "columnar", code=2)
    assert "columnar-attention 0.4.1" in message
    assert "(--page-size 16)" in message


def test_a_policys_need_is_asked_of_the_cache(environment: Environment, tmp_path: Path) -> None:
    flags = ("--schedule-policy", "least-work", "--cache-policy", "chunk")
    assert "'cached_tokens'" in jackfield(environment, tmp_path, "explain", *flags, code=2)


def test_a_misspelt_option_of_a_stranger_is_refused(environment: Environment, tmp_path: Path) -> None:
    flags = ("--schedule-policy", "least-work", "--option", "schedule_policy.least-work.patiense=3")
    assert "did you mean 'patience'" in jackfield(environment, tmp_path, "explain", *flags, code=2)


def test_two_distributions_of_one_name_are_refused_with_both_versions(environment: Environment, tmp_path: Path) -> None:
    Site(tmp_path / "rival").add("more-least-work", plugin_row("schedule_policy", "least-work"), version="3.1")
    path = str(tmp_path / "rival")
    message = jackfield(environment, tmp_path, "explain", "--schedule-policy", "least-work", code=2, PYTHONPATH=path)
    assert "least-work-policy 1.2.0 and more-least-work 3.1 both offer" in message
    rows = json.loads(jackfield(environment, tmp_path, "plugins", "list", "--json", PYTHONPATH=path))
    assert [row["status"] for row in rows if row["name"] == "least-work"] == ["conflict", "conflict"]
    jackfield(environment, tmp_path, "explain", PYTHONPATH=path)  # who is not asked stops nothing


def test_a_contract_that_is_too_new_is_refused(environment: Environment, tmp_path: Path) -> None:
    row = plugin_row("schedule_policy", "tomorrow", contract={"schedule_policy": "9.0"})
    Site(tmp_path / "rival").add("tomorrows-policy", row)
    path = str(tmp_path / "rival")
    message = jackfield(environment, tmp_path, "explain", "--schedule-policy", "tomorrow", code=2, PYTHONPATH=path)
    assert "written for the schedule_policy contract 9.0, this core speaks 1." in message


STACK = """
dtype = "float32"
page_size = {page_size}
max_total_tokens = 4096
check_invariants = "step"

[stack]
attention = "{attention}"
cache_policy = "{cache}"
schedule_policy = "least-work"

[options."schedule_policy.least-work"]
patience = 10.0
"""


def stack_file(folder: Path, *, attention: str = "columnar", cache: str = "radix", page_size: int = 16) -> str:
    file = folder / f"{attention}-{cache}-{page_size}.toml"
    file.write_text(STACK.format(attention=attention, cache=cache, page_size=page_size))
    return str(file)


def test_their_attention_answers_as_ours_does(environment: Environment, tiny_model: Path, tmp_path: Path) -> None:
    """Greedy tokens in float32, from a stack file: mixed lengths in one batch, then the same again from the cache."""
    code = """
import json, sys
from jackfield import Engine
model, *stacks = sys.argv[1:]
prompts = [[3 + (7 * i * j) % 120 for i in range(n)] for j, n in enumerate([1, 7, 16, 41, 130, 64], 1)]
answers = {}
for stack in stacks:
    with Engine(stack=stack, model_path=model, skip_tokenizer_init=True, max_prefill_tokens=100, topology="inline") as engine:
        rounds = []
        for _ in range(2):
            got = engine.generate(input_ids=prompts, sampling_params={"temperature": 0, "max_new_tokens": 40, "ignore_eos": True})
            rounds.append([answer["output_ids"] for answer in got])
        cached = sum(answer["meta_info"]["cached_tokens"] for answer in got)
        info = engine.get_server_info()
    chosen = {row["kind"]: row["name"] for row in info["stack"]["plugins"]}
    answers[stack] = {"rounds": rounds, "cached": cached, "chosen": chosen, "kv": info["kv"]}
print(json.dumps(answers))
"""
    ours = stack_file(tmp_path, attention="torch", cache="radix")
    theirs = [stack_file(tmp_path, page_size=page) for page in (8, 16)]
    # The policy needs hints from the cache, so its cache is the radix one everywhere.
    answers = script(environment, tmp_path, code, str(tiny_model), ours, *theirs)
    wanted = answers[ours]["rounds"]
    assert all(len(ids) == 40 for ids in wanted[0])
    for stack in theirs:
        got = answers[stack]
        assert got["chosen"]["attention"] == "columnar"
        assert got["chosen"]["schedule_policy"] == "least-work"
        assert got["rounds"] == wanted, stack
        assert got["cached"] > 0
        assert got["kv"]["free"] + got["kv"]["evictable"] == got["kv"]["total"]


ACME = """
from jackfield.hookspecs import hookimpl


@hookimpl
def jackfield_attention_backend(context):
    assert context.phases == ("decode",)
    from columnar_attention.backend import ColumnarAttention

    return ColumnarAttention(context)
"""


@pytest.mark.goal_row(27)
def test_one_strangers_layout_serves_with_another_strangers_decode(
    environment: Environment, tiny_model: Path, tmp_path: Path
) -> None:
    """A layout is a name that others may accept: prefill writes it, somebody else's decode reads and writes it."""
    row = plugin_row("attention", "acme-decode", layouts=["columnar/kt-paged"])
    Site(tmp_path / "acme").add("acme-decode", row, package="acme_decode", sources={"acme_decode": ACME})
    code = """
import json, sys
sys.path.insert(0, sys.argv[2])
from jackfield import Engine
ids = []
for decode in ("columnar", "acme-decode"):
    with Engine(model_path=sys.argv[1], prefill_attention_backend="columnar", decode_attention_backend=decode, page_size=8,
                skip_tokenizer_init=True, max_total_tokens=1024, dtype="float32", topology="inline") as engine:
        greedy = {"temperature": 0, "max_new_tokens": 20, "ignore_eos": True}
        got = engine.generate(input_ids=list(range(3, 60)), sampling_params=greedy)
        ids.append(got["output_ids"])
print(json.dumps(ids))
"""
    same = script(environment, tmp_path, code, str(tiny_model), str(tmp_path / "acme"))
    assert same[0] == same[1]
    assert len(same[0]) == 20


@pytest.mark.goal_row(24)
def test_their_policy_decides_who_runs_next(environment: Environment, tmp_path: Path) -> None:
    code = """
import json, sys
from jackfield import Engine
order = {}
for policy in ("fcfs", "least-work"):
    with Engine(worker="simulated", schedule_policy=policy, skip_tokenizer_init=True, max_running_requests=1,
                topology="inline", check_invariants="step") as engine:
        prompts = [[5 + k] * n for k, n in enumerate([300, 20, 100])]
        got = engine.generate(input_ids=prompts, sampling_params={"max_new_tokens": 5, "ignore_eos": True})
        queued = [answer["meta_info"]["stage_times"]["queue"] for answer in got]
        order[policy] = sorted(range(3), key=queued.__getitem__)
print(json.dumps(order))
"""
    assert script(environment, tmp_path, code) == {"fcfs": [0, 1, 2], "least-work": [1, 2, 0]}
