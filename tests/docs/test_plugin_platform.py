"""Every promise of docs/plugin-platform.md is named by a test that is collected. Reads the tests' syntax, runs none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "plugin-platform.md"
ROWS = range(1, 40)


def marks(node: ast.AST) -> Iterator[int]:
    """The rows that marks within this expression name."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "goal_row":
            for number in call.args:
                assert isinstance(number, ast.Constant), ast.unparse(call)
                assert isinstance(number.value, int), ast.unparse(call)
                yield number.value


def rows_of(code: str) -> set[int]:
    """The rows that a file's tests name: each by itself, by their class, or all by `pytestmark`."""
    found: set[int] = set()

    def visit(body: list[ast.stmt], inherited: set[int]) -> bool:
        own = set(inherited)
        for node in body:
            if isinstance(node, ast.Assign) and "pytestmark" in [ast.unparse(target) for target in node.targets]:
                own |= set(marks(node.value))
        tests = False
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
                named = own.union(*(marks(decorator) for decorator in node.decorator_list))
                tests |= visit(node.body, named)
                if node.bases:  # its tests may be those of a suite that it inherits
                    found.update(named)
                    tests = True
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                found.update(own.union(*(marks(decorator) for decorator in node.decorator_list)))
                tests = True
        return tests

    visit(ast.parse(code).body, set())
    return found


@pytest.fixture(scope="module")
def proven() -> dict[int, set[str]]:
    """Row -> the files whose tests name it. The strangers' own tests run elsewhere and do not count."""
    strangers = {path.parent for path in (ROOT / "tests" / "third_party").glob("*/pyproject.toml")}
    found: dict[int, set[str]] = {}
    for folder in ("tests", "plugins"):
        for file in sorted((ROOT / folder).rglob("test_*.py")):
            if not strangers & set(file.parents):
                for row in rows_of(file.read_text()):
                    found.setdefault(row, set()).add(file.relative_to(ROOT).as_posix())
    return found


def test_the_page_has_the_rows_in_order() -> None:
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| [^|]+ \| \[[^|]+\) \|$", PAGE.read_text(), flags=re.MULTILINE)
    assert [int(row) for row in rows] == [*ROWS]


def test_every_row_is_named_by_a_test(proven: dict[int, set[str]]) -> None:
    missing = set(ROWS) - proven.keys()
    assert missing == set(), f"no test names the rows {sorted(missing)} of {PAGE.name}"


def test_no_test_names_a_row_that_is_not_there(proven: dict[int, set[str]]) -> None:
    assert {row: proven[row] for row in proven.keys() - set(ROWS)} == {}


@pytest.mark.parametrize(
    ("code", "rows"),
    [
        ("@pytest.mark.goal_row(3, 4)\ndef test_a(): ...", {3, 4}),
        ("@pytest.mark.goal_row(3)\nasync def test_a(): ...", {3}),
        ("@pytest.mark.goal_row(3)\ndef helper(): ...", set()),
        ("pytestmark = pytest.mark.goal_row(3)\ndef test_a(): ...", {3}),
        ("pytestmark = [pytest.mark.slow, pytest.mark.goal_row(3)]\nclass TestA:\n    def test_b(self): ...", {3}),
        ("pytestmark = pytest.mark.goal_row(3)\ndef helper(): ...", set()),
        ("@pytest.mark.goal_row(3)\nclass TestA(Suite): ...", {3}),
        ("@pytest.mark.goal_row(3)\nclass TestA:\n    x = 1", set()),
        ("@mark.parametrize('x', [param(1, marks=pytest.mark.goal_row(5))])\ndef test_a(x): ...", {5}),
    ],
)
def test_how_marks_are_read(code: str, rows: set[int]) -> None:
    assert rows_of(code) == rows
