"""`plugins doctor` over plugins with one fault each: each fault is found, at the plugin that has it and at no other."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from jackfield.config.device import usable_cuda_device
from jackfield.entrypoints.cli import main
from jackfield.stack.diagnosis.doctor import Severity, examine_row
from jackfield.stack.discovery.scan import discover
from tests.unit.stack.distributions import POLICY, Site, plugin_row

FAKE_TORCH = """
import os, warnings
os.environ["TORCH_SETS_THIS"] = "1"
class cuda:
    ready = False
    @staticmethod
    def is_initialized(): return cuda.ready
"""
"""Stands where torch would: the real one takes seconds. What it does to the process is not held against who imports it."""

SITE_WIDE = """
import os, signal, threading, warnings
import jackfield.hookspecs.schedule_policy, jackfield.stack.names
os.environ["ACME"] = "1"
warnings.simplefilter("error", UserWarning)
signal.signal(signal.SIGUSR1, lambda *_: None)
threading.Thread(target=threading.Event().wait, name="acme-thread", daemon=True).start()
kept_open = open(os.path.abspath(__file__))
def stack_key(kind, instance): return "acme"
jackfield.stack.names.instance_key = stack_key
"""

OPTIONS = "from pydantic import BaseModel\nclass Options(BaseModel):\n    depth: int = {default}\n"

NO_SCHEMA = """
from pydantic import BaseModel, ConfigDict
class Thing: pass
class Options(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    thing: Thing | None = None
"""

MODELS = """
from jackfield.hookspecs import ModelEntry, hookimpl
@hookimpl
def jackfield_models(context):
    return {"OtherForCausalLM": ModelEntry(model="PACKAGE.shape:Model", shape="PACKAGE.shape:shape")}
"""


def add(site: Site, name: str, source: str = POLICY, kind: str = "schedule_policy", **more: Any) -> None:
    """One distribution with one plugin; PACKAGE stands for the import package in sources and manifest."""
    sources = {name.replace("-", "_"): source, **more.pop("sources", {})}
    package = site.add(f"acme-{name}", plugin_row(kind, name, **more), sources=sources)
    for file in (site.folder / package).iterdir():
        if file.suffix in (".py", ".toml"):
            file.write_text(file.read_text().replace("PACKAGE", package))


@pytest.fixture(scope="module")
def doctored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Exit code, "kind.name" -> what was told of it, and the same for people."""
    before = set(sys.modules)
    site = Site(tmp_path_factory.mktemp("site"))
    (site.folder / "torch.py").write_text(FAKE_TORCH)
    add(site, "sound", options="PACKAGE.options:Options", sources={"options": OPTIONS.format(default=3)})
    add(site, "torch-user", "import torch\n" + POLICY)
    add(
        site,
        "torch-options",
        options="PACKAGE.options:Options",
        sources={"options": "import torch\n" + OPTIONS.format(default=3)},
    )
    add(site, "torch-metrics", "import torch\n" + POLICY.replace("schedule_policy", "metrics_sink"), "metrics")
    add(site, "cuda-user", "import torch\ntorch.cuda.ready = True\n" + POLICY)
    add(site, "site-wide", SITE_WIDE + POLICY)
    add(site, "unhooked", POLICY.replace("def jackfield", "async def jackfield"))
    add(site, "unimportable", "import acme_missing")
    add(site, "exiting", "raise SystemExit(3)")
    add(site, "crashing", "import os\nos._exit(7)")
    add(site, "bad-default", options="PACKAGE.options:Options", sources={"options": OPTIONS.format(default="'deep'")})
    add(site, "no-schema", options="PACKAGE.options:Options", sources={"options": NO_SCHEMA})
    add(site, "bad-probe", probe="PACKAGE.check:check", sources={"check": "def check(ned, device): return []"})
    probe = "from jackfield.hookspecs import Problem\n\n\ndef check(need, device): return [Problem(text='acme-lib is absent')]"
    devices = {"devices": ["cuda"], "dtypes": ["float16"], "probe": "PACKAGE.check:check"}
    add(site, "far-away", POLICY.replace("schedule_policy", "ops"), "ops", sources={"check": probe}, **devices)
    add(site, "bad-model", MODELS, "model", sources={"shape": "import torch\n"}, architectures=["LlamaForCausalLM"])
    site.add("acme-twin-a", plugin_row("cache", "twin"))
    site.add("acme-twin-b", plugin_row("cache", "twin"))
    site.add("acme-later", plugin_row("stage", "later"))
    site.info("acme-torn", "1.0", "[jackfield.cache\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site.folder))
        importlib.invalidate_caches()
        names = [f"{row.kind}.{row.name}" for row in discover([str(site.folder)]) if row.name]
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            code = main(["plugins", "doctor", "--json", *dict.fromkeys(names)])
        people = io.StringIO()
        with contextlib.redirect_stdout(people):
            main(["plugins", "doctor", "cache.twin", "schedule_policy.sound"])
        report = json.loads(shown.getvalue())
        yield code, report, people.getvalue()
    assert not [name for name in {*sys.modules} - before if name.startswith("acme_")], (
        "they are imported in children alone"
    )


FOUND = {
    "schedule_policy.sound": [],
    "schedule_policy.torch-user": [],
    "schedule_policy.torch-options": ["error torch: the module of its options imports torch, and it is imported where"],
    "metrics.torch-metrics": [
        "error torch: its module PACKAGE imports torch, and it is loaded in the process main, which computes nothing",
    ],
    "schedule_policy.cuda-user": ["error cuda: its import initialises CUDA"],
    "schedule_policy.site-wide": [
        "warning thread: while it was imported, it started the thread 'acme-thread'",
        "warning file: while it was imported, it left ",
        "warning state: while it was imported, it changed warnings.filters: ('error', None, <class 'UserWarning'>",
        "warning state: while it was imported, it changed os.environ: ACME",
        "error signals: while it was imported, it changed signal handlers: SIGUSR1",
        "error patch: while it was imported, it replaced jackfield.stack.names.instance_key",
        "error patch: its code stands in jackfield.stack.names.instance_key",
    ],
    "schedule_policy.unhooked": ["error contract: jackfield_schedule_policy is async; hooks are called synchronously"],
    "schedule_policy.unimportable": [
        "error import: its module PACKAGE cannot be imported: ModuleNotFoundError: No module named 'acme_missing'"
    ],
    "schedule_policy.exiting": ["error import: its module PACKAGE cannot be imported: SystemExit: 3"],
    "schedule_policy.crashing": [
        "error examination: its examination failed: the process of jackfield.stack.diagnosis.examination ended"
    ],
    "schedule_policy.bad-default": [
        "error options: the defaults of PACKAGE:Options are not values that it takes: depth must be a whole number, not 'deep'"
    ],
    "schedule_policy.no-schema": ["error options: PACKAGE:Options has no JSON schema"],
    "schedule_policy.bad-probe": ["error probe: its probe PACKAGE:check has the unknown argument 'ned'; did you mean 'need'?"],
    "ops.far-away": [
        f"note probe: its probe says{' of cuda in float16' if usable_cuda_device()[0] else ''}: acme-lib is absent",
        *([] if usable_cuda_device()[0] else ["note device: it runs on cuda, which is not here: "]),
    ],
    "model.bad-model": [
        "error torch: the module of its shape imports torch, and it is imported where nothing is computed",
        "error contract: its manifest and jackfield_models disagree over LlamaForCausalLM, OtherForCausalLM",
    ],
    "cache.twin": ["error conflict: acme-twin-a 1.0 and acme-twin-b 1.0 both offer cache 'twin': uninstall one"],
    "stage.later": ["warning unknown-kind: this core knows no kind 'stage'"],
}  # fmt: skip
"""Plugin -> the beginnings of its findings, in order. PACKAGE stands for the dotted name of the plugin's module."""


@pytest.mark.goal_row(8)
def test_each_fault_is_found_where_it_is(doctored: tuple[int, dict[str, Any], str]) -> None:
    code, report, _ = doctored
    assert code == 1
    told: dict[str, list[str]] = {}
    for one in report["plugins"]:
        for finding in one["findings"]:
            if finding["code"] == "slow":  # a question of the machine
                continue
            assert finding["remedy"], finding
        key = f"{one['kind']}.{one['name']}"
        told[key] = [f"{f['severity']} {f['code']}: {f['text']}" for f in one["findings"] if f["code"] != "slow"]
    assert set(told) == set(FOUND)
    for key, beginnings in FOUND.items():
        assert len(told[key]) == len(beginnings), (key, told[key])
        for text, beginning in zip(told[key], beginnings, strict=True):
            head, _, tail = beginning.partition("PACKAGE")
            assert text.startswith(head), key
            assert tail in text, key


def test_what_an_import_took_is_measured(doctored: tuple[int, dict[str, Any], str]) -> None:
    _, report, _ = doctored
    rows = {one["name"]: one for one in report["plugins"]}
    measured = rows["torch-user"]["measured"]
    assert measured["torch"]
    assert not measured["cuda"]
    assert measured["import_seconds"] > 0 < measured["import_ratio"]
    assert not rows["sound"]["measured"]["torch"]
    assert rows["cuda-user"]["measured"]["cuda"]
    assert rows["sound"]["hooks"] == [{"hook": "jackfield_schedule_policy", "arguments": ["context"], "on": ""}]
    assert report["schema_version"] == 1
    assert (report["errors"], report["warnings"]) == (17, 5)


def test_doctor_for_people(doctored: tuple[int, dict[str, Any], str]) -> None:
    lines = doctored[2].splitlines()
    assert lines[-1] == "3 examined: 2 errors, 0 warnings"
    assert [line.rstrip().endswith("sound") for line in lines if line.startswith("schedule_policy.sound")] == [True]
    assert any("uninstall one of the distributions" in line for line in lines)


def test_warnings_alone_end_with_0(live_site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    live_site.add("acme-later", plugin_row("stage", "later"))
    assert main(["plugins", "doctor", "stage.later"]) == 0
    assert capsys.readouterr().out.endswith("1 examined: 0 errors, 1 warnings\n")


def test_a_plugin_whose_import_never_ends_is_killed_and_told(live_site: Site) -> None:
    live_site.add(
        "acme-hung", plugin_row("cache", "hung"), sources={"hung": "import threading\nthreading.Event().wait()"}
    )
    (row,) = discover([str(live_site.folder)]).find("cache", "hung")
    (finding,) = examine_row(row, limit=0.5, bare=1.0).findings
    assert finding.severity is Severity.ERROR
    assert finding.text == "its examination failed: it had not answered after 0.5 seconds, and was killed"
