"""Strangers' packages in a replica of processes: served by children, refused where only the parent can import them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.third_party.environment import STRANGERS, Environment

pytestmark = pytest.mark.slow


def script(environment: Environment, cwd: Path, code: str, *arguments: str) -> Any:
    """What a Python script printed last, as JSON; nothing of it is left running, for its children die with it."""
    (cwd / "script.py").write_text(code)
    done = environment.run("script.py", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SERVED = """
import json, sys
from jackfield import Engine
if __name__ == "__main__":
    model, stack = sys.argv[1:]
    answers = {}
    for topology in ("processes", "inline"):
        with Engine(stack=stack, model_path=model, topology=topology, skip_tokenizer_init=True) as engine:
            prompts = [[3 + (7 * i * j) % 120 for i in range(n)] for j, n in enumerate([1, 16, 41, 90], 1)]
            got = engine.generate(input_ids=prompts, sampling_params={"temperature": 0, "max_new_tokens": 20, "ignore_eos": True})
            info = engine.get_server_info()
            answers[topology] = {
                "ids": [answer["output_ids"] for answer in got],
                "roles": sorted(row["role"] for row in info["processes"]),
                "plugins": {row["kind"]: row["distribution"] for row in info["stack"]["plugins"]},
                "imported": sorted({"torch", "columnar_attention.plugin", "least_work_policy.policy"} & set(sys.modules)),
            }
    print(json.dumps(answers))
"""

STACK = """
dtype = "float32"
page_size = 16
max_total_tokens = 4096

[stack]
attention = "columnar"
schedule_policy = "least-work"
"""


def test_a_stranger_serves_from_a_child(environment: Environment, tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "stack.toml").write_text(STACK)
    answers = script(environment, tmp_path, SERVED, str(tiny_model), "stack.toml")
    assert answers["processes"]["ids"] == answers["inline"]["ids"]
    assert answers["processes"]["imported"] == []  # they live in the scheduler's process
    assert answers["processes"]["roles"] == ["detokenizer", "main", "scheduler"]
    assert answers["processes"]["plugins"]["attention"] == "columnar-attention"
    assert answers["processes"]["plugins"]["schedule_policy"] == "least-work-policy"


# The package is found by an import hook of the parent, as notebooks, test runners and editable installs have them.
HIDDEN = """
import importlib.util, json, os, sys
from importlib.abc import MetaPathFinder

class Hook(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "hidden_policy":
            where = os.path.join({hidden!r}, "hidden_policy")
            return importlib.util.spec_from_file_location(
                name, os.path.join(where, "__init__.py"), submodule_search_locations=[where])
        return None

if __name__ == "__main__":
    sys.meta_path.insert(0, Hook())
    sys.path.append({info!r})
    from jackfield import Engine
    settings = dict(schedule_policy="hidden", worker="simulated", skip_tokenizer_init=True)
    with Engine(topology="inline", **settings) as engine:
        inline = engine.generate(input_ids=[5, 6, 7], sampling_params={{"max_new_tokens": 2}})["output_ids"]
    try:
        with Engine(topology="processes", **settings):
            refused = None
    except Exception as error:
        refused = [type(error).__name__, str(error)]
    print(json.dumps({{"inline": len(inline), "refused": refused}}))
"""


def test_what_only_the_parent_can_import_is_refused(environment: Environment, tmp_path: Path) -> None:
    hidden, info = tmp_path / "hidden", tmp_path / "info"
    source = STRANGERS["least-work-policy"] / "least_work_policy"
    shutil.copytree(source, hidden / "hidden_policy", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (hidden / "hidden_policy").iterdir():
        text = file.read_text().replace("least_work_policy", "hidden_policy").replace('"least-work"', '"hidden"')
        file.write_text(text)
    record = info / "hidden_policy-1.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: hidden-policy\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text("[jackfield.schedule_policy]\nhidden = hidden_policy.policy\n")
    told = script(environment, tmp_path, HIDDEN.format(hidden=str(hidden), info=str(info)))
    assert told["inline"] == 2  # the parent alone can do with it
    kind, message = told["refused"]
    assert kind == "ConfigurationError"
    assert "process refuses: the package hidden_policy of a selected plugin cannot be imported here" in message
    assert "install the package where every process finds it" in message
