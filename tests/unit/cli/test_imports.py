"""What the core imports before it runs anything: in a clean interpreter, asserted on modules and never on seconds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jackfield import hookspecs
from tests.unit.stack.distributions import Site, plugin_row

LOOK = """
import contextlib, io, json, os, sys
sys.path[:0] = [sys.argv[1]]
from jackfield.entrypoints.cli import main

def roots():
    return {name.partition(".")[0] for name in sys.modules}

def look(work):
    before = roots()
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        code = work()
    maps = open("/proc/self/maps").read() if os.path.exists("/proc/self/maps") else ""
    seen[len(seen)] = {
        "code": code, "modules": sorted(roots()), "cuda": "libcuda" in maps or "libtorch" in maps, "shown": shown.getvalue()
    }

seen = {}
def importing():
    import importlib
    for name in json.loads(sys.argv[3]):
        importlib.import_module(name)
for argv in json.loads(sys.argv[2]):
    look(importing if argv == ["import"] else lambda: main(argv))
print(json.dumps(list(seen.values())))
"""

HEAVY = {"torch", "transformers", "tokenizers", "huggingface_hub", "starlette", "uvicorn", "triton", "flashinfer"}
"""What takes a second to import, or starts threads, or talks to a device."""

KINDS = {
    "cache": "cache-policy",
    "schedule_policy": "schedule-policy",
    "event_loop": "event-loop",
    "loader": "load-format",
    "worker": "worker",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A site with a plugin of each kind that cannot be imported, and the flags of a run with them."""
    site = Site(tmp_path_factory.mktemp("site"))
    site.add(
        "acme-parts",
        *(plugin_row(kind, f"acme-{kind.replace('_', '-')}") for kind in KINDS),
        sources={f"acme_{kind}": "1/0" for kind in KINDS},
    )
    return site.folder, [
        word for kind, field in KINDS.items() for word in (f"--{field}", f"acme-{kind.replace('_', '-')}")
    ]


def looked(folder: Path, *commands: list[str], modules: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """One clean interpreter that runs the commands in turn, and what it had imported after each."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("JACKFIELD_")}
    ended = subprocess.run(
        [sys.executable, "-c", LOOK, str(folder), json.dumps(commands), json.dumps(modules)],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = json.loads(ended.stdout)
    return found


@pytest.mark.goal_row(23)
def test_looking_imports_no_torch_no_plugin_and_touches_no_device(stack: tuple[Path, list[str]]) -> None:
    folder, flags = stack
    commands = [
        ["--help"],
        ["plugins", "list"],
        ["import"],
        ["serve", "--help"],
        ["explain", "--json", "--device", "cpu", *flags],
        ["plugins", "list", "--device", "cpu", *flags],
        ["plugins", "show", "cache.acme-cache"],
    ]
    parts = ("jackfield", "jackfield.hookspecs", "jackfield.config.server_args", "jackfield.stack.selection.resolution")
    found = looked(folder, *commands, modules=parts)
    for command, after in zip(commands, found, strict=True):
        assert not after["code"], command
        assert not after["cuda"], command
        assert not HEAVY & set(after["modules"]), command
        assert not [name for name in after["modules"] if name.startswith(("jackfield_", "acme_"))], command
    assert "acme-cache" in found[1]["shown"]
    help_, listed = found[0], found[1]
    assert not {"pydantic", "numpy", "msgspec", "rich"} & set(help_["modules"]), "--help needs none of it"
    assert not {"pydantic", "numpy", "msgspec"} & set(listed["modules"]), "a list of files needs none of it"


def test_no_core_file_knows_the_libraries_of_an_accelerator() -> None:
    """Their plugins do. `own.py` lists the names of our distributions, whatever those are called."""
    core = Path(hookspecs.__file__).parents[1]
    files = [file for file in core.rglob("*") if file.suffix in (".py", ".toml", ".jinja") and file.name != "own.py"]
    assert len(files) > 300
    named = [file for file in files if re.search("triton|flashinfer|cutlass", file.read_text(), re.IGNORECASE)]
    assert [file.relative_to(core).as_posix() for file in named] == []


def test_every_name_of_the_contract_is_found_when_it_is_asked_for() -> None:
    for name in hookspecs.__all__:
        assert getattr(hookspecs, name) is not None, name
    assert set(hookspecs.__all__) <= set(dir(hookspecs))
    with pytest.raises(AttributeError, match="no attribute 'HookSpec'"):
        _ = hookspecs.HookSpec  # type: ignore[attr-defined, unused-ignore]
