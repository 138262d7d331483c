"""What a stranger's package touches: the contract's public names, and nothing of the core is changed under its feet."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackfield import hookspecs
from tests.third_party.environment import STRANGERS

TORCH_SIDE = ("jackfield.layers", "jackfield.model_executor")
FOR_TESTS = ("jackfield", "jackfield.testing")
REACHES_ANYTHING = ("setattr", "delattr", "__import__", "globals", "vars")


def sources(project: Path, *, tests: bool) -> list[Path]:
    return [path for path in sorted(project.rglob("*.py")) if ("tests" in path.relative_to(project).parts) is tests]


def is_public(module: str, names: list[str], *, in_tests: bool) -> bool:
    """Whether `from module import names` keeps to what docs/contract.md promises."""
    if module == "jackfield.hookspecs":
        return set(names) <= set(hookspecs.__all__)
    allowed = TORCH_SIDE + (FOR_TESTS if in_tests else ())
    within = any(module == name or (module.startswith(f"{name}.") and name != "jackfield") for name in allowed)
    return within and not any(part.startswith("_") for part in [*module.split("."), *names])


def problems(tree: ast.AST, *, in_tests: bool = False) -> Iterator[str]:
    """Everything that reaches past the contract."""
    ours: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "jackfield":
            names = [alias.name for alias in node.names]
            ours |= {alias.asname or alias.name for alias in node.names}
            if not is_public(node.module or "", names, in_tests=in_tests):
                yield f"line {node.lineno}: from {node.module} import {', '.join(names)}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "jackfield":
                    yield f"line {node.lineno}: import {alias.name}: import names, from jackfield.hookspecs"
                if alias.name.partition(".")[0] in ("importlib", "gc", "inspect") and not in_tests:
                    yield f"line {node.lineno}: import {alias.name}"
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = node.targets
        for target in targets:
            root: ast.expr = target
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if root is not target and isinstance(root, ast.Name) and root.id in ours:
                yield f"line {target.lineno}: changes {ast.unparse(target)}, which is the core's"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REACHES_ANYTHING:
            yield f"line {node.lineno}: calls {node.func.id}"
        if isinstance(node, ast.Attribute) and node.attr == "modules" and ast.unparse(node) == "sys.modules":
            yield f"line {node.lineno}: reads sys.modules"


@pytest.mark.parametrize("project", STRANGERS.values(), ids=STRANGERS)
def test_strangers_import_public_names_and_patch_nothing(project: Path) -> None:
    found = {path.name: list(problems(ast.parse(path.read_text()))) for path in sources(project, tests=False)}
    assert found
    assert not any(found.values()), found


@pytest.mark.parametrize("project", STRANGERS.values(), ids=STRANGERS)
def test_their_tests_use_what_is_there_for_tests(project: Path) -> None:
    files = sources(project, tests=True)
    assert files
    for path in files:
        assert list(problems(ast.parse(path.read_text()), in_tests=True)) == [], path.name


@pytest.mark.parametrize(
    "code",
    [
        "from jackfield.stack.loading import load_stack",
        "from jackfield.hookspecs import PROJECT",
        "from jackfield.hookspecs.attention import AttentionBackend",
        "from jackfield.layers.loading import _cut",
        "from jackfield.testing.attention_cases import check",
        "from jackfield import Engine",
        "import jackfield.hookspecs",
        "import jackfield.stack as s",
        "import importlib",
        "from jackfield.hookspecs import AttentionBackend\nAttentionBackend.plan = None",
        "from jackfield.layers import linear as l\nl.Linear.forward = 1",
        "from jackfield.hookspecs import KINDS\nKINDS['x'] = 1",
        "from jackfield.hookspecs import SPECS\ndel SPECS.x",
        "setattr(object(), 'x', 1)",
        "import sys\nsys.modules['jackfield.stack']",
    ],
)
def test_the_check_sees_what_reaches_past_the_contract(code: str) -> None:
    assert list(problems(ast.parse(code)))


def test_the_check_lets_the_contract_through() -> None:
    code = "from jackfield.hookspecs import hookimpl, Need\nfrom jackfield.layers.rotary import RotaryTable\nx = {}\nx['a'] = 1"
    assert not list(problems(ast.parse(code)))
    assert not list(problems(ast.parse("from jackfield.testing.attention_cases import check"), in_tests=True))
