"""The hook reference is complete and true, and its examples are code that is checked like any other."""

from __future__ import annotations

import ast
import inspect
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jackfield.hookspecs import KINDS, LIFECYCLE_HOOKS, SPECS
from jackfield.stack.loading.hooks import hook_table
from jackfield.stack.loading.implementations import implementations, lifecycle_methods
from tests.contract.facts import facts_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "hooks.md").read_text()
MANIFEST_KEYS = (ROOT / "docs" / "contract.md").read_text()
EXAMPLES = ROOT / "docs" / "reference" / "hook_examples.py"
STUBS = ROOT / "tests" / "contract" / "stubs"
HOOKS = {name: function for spec in SPECS for name, function in vars(spec).items() if name in hook_table()}


@pytest.mark.goal_row(19)
@pytest.mark.parametrize("name", sorted(HOOKS))
def test_every_hook_says_where_when_at_what_cost_and_how(name: str) -> None:
    doc = inspect.getdoc(HOOKS[name]) or ""
    assert [word for word in ("Process:", "When:", "Cost:", "Example:") if word not in doc] == []
    signature = ", ".join(
        f"{one.name}: {one.annotation}" for one in list(inspect.signature(HOOKS[name]).parameters.values())[1:]
    )
    assert f"### `{name}({signature})" in PAGE or f"**`{name}({signature})" in PAGE


@pytest.mark.goal_row(19)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_everything_in_a_contract_is_in_the_reference_with_its_version(kind: str) -> None:
    version = KINDS[kind].contract_version
    assert f'`contract = {{ {kind} = "{version}" }}`' in PAGE
    sections = {part.partition("\n")[0].strip(): part for part in PAGE.split("\n### ")}
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{kind}` | {version} |")]
    missing = []
    for subject, fact in facts_of(kind).items():
        owner, _, member = subject.partition(".")
        if owner == "kind":
            told = {"several": {"yes": "any number", "no": "one"}.get(fact, fact), "entry_point_group": f"`{kind}`"}
            if told.get(member, fact) not in row:
                missing.append(subject)
            continue
        if subject.startswith("manifest.layout."):  # roles and dimensions, which a layout's records explain
            if member.rpartition(".")[2] not in sections["KVTensorSpec"]:
                missing.append(subject)
            continue
        if owner == "manifest":
            if member and f"`{member}`" not in MANIFEST_KEYS:
                missing.append(subject)
            continue
        if fact == "word":  # WAIT_NUMBERS.MEMORY.free
            member = member.rpartition(".")[2]
        if fact.startswith(("hook", "constant", "function")) and not member:
            if owner not in PAGE:  # hooks have their own test, and constants stand where they are used
                missing.append(subject)
            continue
        text = sections.get(owner, "")
        shared = member in ("kind", "name", "instance", "options") and owner.endswith("Context")
        if not text or (member and not shared and member not in text and not member.startswith("__")):
            missing.append(subject)
    assert missing == []


def examples() -> ModuleType:
    module = ModuleType("hook_examples")
    exec(compile(EXAMPLES.read_text(), str(EXAMPLES), "exec"), vars(module))
    return module


@pytest.mark.goal_row(20)
def test_every_hook_has_an_example_that_is_typed_throughout() -> None:
    functions = [node for node in ast.walk(ast.parse(EXAMPLES.read_text())) if isinstance(node, ast.FunctionDef)]
    assert {function.name for function in functions} >= set(hook_table())
    for function in functions:
        named = [argument for argument in function.args.args if argument.arg != "self"]
        assert function.returns is not None
        assert all(argument.annotation is not None for argument in named), function.name


@pytest.mark.goal_row(20)
def test_the_loader_would_take_every_example() -> None:
    module = examples()
    methods, problems = lifecycle_methods(module.Observer())  # type: ignore[attr-defined]
    assert (set(methods), problems) == (set(LIFECYCLE_HOOKS), [])
    for kind in KINDS.values():
        alone: Any = ModuleType(kind.name)
        setattr(alone, kind.hook, getattr(module, kind.hook))
        assert implementations(alone, kind.name)[1] == []


def test_what_the_examples_import_has_one_stub_each() -> None:
    """Each module of the made-up package is one example's, so that mypy sees every name with its type."""
    nodes = ast.walk(ast.parse(EXAMPLES.read_text()))
    modules = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and str(node.module).startswith("my_")]
    assert len(modules) == len(set(modules))
    assert [
        name for name in modules if name and not (STUBS / name.replace(".", "/")).with_suffix(".pyi").exists()
    ] == []


@pytest.mark.goal_row(20)
def test_mypy_is_given_the_examples_and_every_package_of_a_stranger() -> None:
    told = subprocess.run(["make", "-n", "lint"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    runs = told.replace("\\\n", " ").split("bin/mypy ")[1:]
    command = [word for run in runs for word in run.partition("\n")[0].split()]
    packages = [
        file.parent.relative_to(ROOT)
        for folder in ("third_party", "frozen")
        for file in (ROOT / "tests" / folder).rglob("plugin.toml")
        if not {"build", ".venv"} & set(file.parts)
    ]
    assert len(packages) > 10
    assert {"core", "docs/reference/hook_examples.py", *map(str, packages)} <= set(command)
