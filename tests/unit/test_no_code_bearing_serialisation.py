"""B87 and rule R1: nothing that is read can become code. A static scan of the core, of our plugins, and of the strangers'."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for pattern in ("core/jackfield/**/*.py", "plugins/*/*/jackfield_*/**/*.py", "tests/third_party/*/**/*.py")
    for path in ROOT.glob(pattern)
)

# Modules whose readers run what they read. multiprocessing's queues, pipes and managers pickle; its parts below do not.
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "pickletools",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "joblib",
    "jsonpickle",
}
MULTIPROCESSING = {"shared_memory", "resource_tracker"}
BUILTINS = {"eval", "exec", "compile"}
METHODS = {"recv_pyobj", "send_pyobj", "unsafe_load", "full_load", "read_pickle", "to_pickle"}
LOADERS = {"yaml": {"load", "load_all"}, "torch.jit": {"load"}, "torch.package": {"PackageImporter"}}


def findings(tree: ast.AST) -> Iterator[str]:
    """What the scan objects to, one text each."""
    homes = _homes(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"{node.lineno}: import {alias.name}" for alias in node.names if _bad_module(alias.name, ""))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if _bad_module(node.module or "", alias.name):
                    yield f"{node.lineno}: from {node.module} import {alias.name}"
        elif isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Name) and node.id in BUILTINS:
            yield f"{node.lineno}: {node.id}"
        elif isinstance(node, ast.Call):
            yield from _bad_call(node, homes)


def _homes(tree: ast.AST) -> dict[str, str]:
    """Local name -> the dotted name that was imported under it."""
    homes: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                homes[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            homes |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return homes


def _bad_module(module: str, name: str) -> bool:
    if module.partition(".")[0] in MODULES:
        return True
    if module.partition(".")[0] != "multiprocessing":
        return False
    part = module.partition(".")[2] or name
    return part not in MULTIPROCESSING


def _bad_call(node: ast.Call, homes: dict[str, str]) -> Iterator[str]:
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}

    def says_true(name: str) -> bool:
        value = keywords.get(name)
        return isinstance(value, ast.Constant) and value.value is True

    head, _, rest = ast.unparse(node.func).partition(".")
    called = ".".join(filter(None, (homes.get(head, head), rest)))
    place = f"{node.lineno}: {called}"
    module, _, function = called.rpartition(".")
    if called == "torch.load" and not says_true("weights_only"):
        yield f"{place} without weights_only=True"
    if function in LOADERS.get(module, ()):
        yield place
    # Anything but a written False may be true.
    for name in ("allow_pickle", "trust_remote_code"):
        value = keywords.get(name)
        if value is not None and not (isinstance(value, ast.Constant) and value.value is False):
            yield f"{place} with {name}"
    if module == "builtins" and function in BUILTINS:
        yield place


def test_there_is_something_to_scan() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in SOURCES}
    assert "core/jackfield/ipc/messages.py" in names
    assert "plugins/models/loaders/jackfield_models_loaders/safetensors_source.py" in names
    assert len(names) > 150


def test_nothing_that_is_read_can_become_code() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): objections
        for path in SOURCES
        if (objections := list(findings(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import dill as d",
        "from cloudpickle import loads",
        "import marshal",
        "import multiprocessing",
        "from multiprocessing import Queue",
        "from multiprocessing.connection import Listener",
        "socket.recv_pyobj()",
        "socket.send_pyobj(x)",
        "eval('1')",
        "run = exec",
        "import builtins\nbuiltins.eval('1')",
        "import torch\ntorch.load(path)",
        "import torch\ntorch.load(path, weights_only=False)",
        "import torch as t\nt.load(path, weights_only=flag)",
        "from torch import load\nload(path)",
        "import torch.jit\ntorch.jit.load(path)",
        "import yaml\nyaml.load(text, Loader)",
        "import yaml\nyaml.unsafe_load(text)",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "AutoTokenizer.from_pretrained(path, trust_remote_code=flag)",
    ],
)
def test_the_scan_finds(code: str) -> None:
    assert list(findings(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "import json, re\nre.compile('x'); json.loads(text)",
        "model.eval()",
        "import torch\ntorch.load(path, weights_only=True)",
        "import yaml\nyaml.safe_load(text)",
        "from multiprocessing import shared_memory",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "executor.submit(work)",
    ],
)
def test_the_scan_lets_through(code: str) -> None:
    assert not list(findings(ast.parse(code)))
