"""What a stranger's package touches: the contract's public names, and nothing of the core is changed under its feet."""

from __future__ import annotations

import ast
import io
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from jackfield import hookspecs
from jackfield.entrypoints.authoring.names import new_package
from jackfield.entrypoints.authoring.render import render
from jackfield.hookspecs import KINDS
from jackfield.stack.discovery.catalogue import Catalogue
from tests.third_party.environment import STRANGERS

GRAMMARS = ("jackfield.grammars",)
TORCH_SIDE = ("jackfield.layers", "jackfield.model_executor")
FOR_TESTS = ("jackfield", "jackfield.testing")
REACHES_ANYTHING = ("setattr", "delattr", "__import__", "globals", "vars", "exec", "eval")
PATCHES = ("__setattr__", "__delattr__", "__dict__", "__code__", "meta_path", "path_hooks")
PATCHING_FIXTURES = ("monkeypatch", "mocker")
NOT_IMPORTED = ("importlib", "gc", "inspect", "ctypes")
NEVER_IMPORTED = ("pluggy", "mock", "unittest", "wrapt")
MOST_LINES = 150


def sources(project: Path, *, tests: bool) -> list[Path]:
    return [path for path in sorted(project.rglob("*.py")) if ("tests" in path.relative_to(project).parts) is tests]


def is_public(module: str, names: list[str], *, in_tests: bool) -> bool:
    """Whether `from module import names` keeps to what docs/contract.md promises."""
    if module == "jackfield.hookspecs":
        return set(names) <= set(hookspecs.__all__)
    allowed = GRAMMARS + TORCH_SIDE + (FOR_TESTS if in_tests else ())
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
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in NEVER_IMPORTED:
            yield f"line {node.lineno}: from {node.module} import ..."
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "jackfield":
                    yield f"line {node.lineno}: import {alias.name}: import names, from jackfield.hookspecs"
                top = alias.name.partition(".")[0]
                if top in NEVER_IMPORTED or (top in NOT_IMPORTED and not in_tests):
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
        if isinstance(node, ast.Attribute) and node.attr in PATCHES:
            yield f"line {node.lineno}: reaches for {node.attr}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ours:
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            if private:
                yield f"line {node.lineno}: reads {ast.unparse(node)}, which is private to the core"
        if isinstance(node, ast.arg) and node.arg in PATCHING_FIXTURES:
            yield f"line {node.lineno}: asks for the fixture {node.arg}"


def code_lines(source: str) -> int:
    """Lines that hold code: no blank ones, comments or docstrings."""
    quiet = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in quiet:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def rendered(kind: str) -> dict[str, ast.Module]:
    """The Python files of the package that `jackfield new` writes for a kind."""
    new = new_package(kind, "my-own", catalogue=Catalogue(), directory="nowhere")
    return {path: ast.parse(text) for path, text in render(new).items() if path.endswith(".py")}


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


@pytest.mark.goal_row(21)
def test_there_is_a_stranger_for_every_kind() -> None:
    kinds = [
        group.removeprefix("jackfield.")
        for project in STRANGERS.values()
        for group in tomllib.loads((project / "pyproject.toml").read_text())["project"]["entry-points"]
    ]
    assert sorted(kinds) == sorted(KINDS)


@pytest.mark.parametrize("project", STRANGERS.values(), ids=STRANGERS)
def test_a_plugin_is_small(project: Path) -> None:
    counted = {path.name: code_lines(path.read_text()) for path in sources(project, tests=False)}
    assert 0 < sum(counted.values()) < MOST_LINES, counted


@pytest.mark.goal_row(21)
@pytest.mark.parametrize("kind", KINDS)
def test_a_new_package_imports_public_names_and_patches_nothing(kind: str) -> None:
    found = {path: list(problems(tree, in_tests=path.startswith("tests/"))) for path, tree in rendered(kind).items()}
    assert len(found) >= 4
    assert not any(found.values()), found


@pytest.mark.parametrize(
    "code",
    [
        "from jackfield.stack.loading.load import load_stack",
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
        "import sys\nsys.meta_path.insert(0, x)",
        "import pluggy",
        "from unittest import mock",
        "from unittest.mock import patch",
        "import ctypes",
        "from jackfield.layers import linear\nlinear._tables.clear()",
        "from jackfield.hookspecs import Lease\nLease.__dict__",
        "object.__setattr__(x, 'y', 1)",
        "exec('1')",
        "def test(monkeypatch): ...",
    ],
)
def test_the_check_sees_what_reaches_past_the_contract(code: str) -> None:
    assert list(problems(ast.parse(code)))


def test_the_check_lets_the_contract_through() -> None:
    code = "from jackfield.hookspecs import hookimpl, Need\nfrom jackfield.layers.rotary import RotaryTable\nx = {}\nx['a'] = 1"
    assert not list(problems(ast.parse(code)))
    assert not list(problems(ast.parse("from jackfield.testing.attention_cases import check"), in_tests=True))
