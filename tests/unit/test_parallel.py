"""The suite is dealt to workers so that what a session shares is made once."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.parallel import TOGETHER, sendable, unit_of

ROOT = Path(__file__).resolve().parents[2]
SHARED = {"reference_model", "wheels", "environment", "real"}


def test_a_file_stays_together_whatever_its_parameters_are() -> None:
    assert unit_of("tests/unit/test_a.py::test_b[x::y]") == "tests/unit/test_a.py"
    assert unit_of("tests/packaging/test_a.py::test_b") == unit_of("tests/third_party/test_c.py::test_d[e]") == "wheels"


def test_what_is_named_exists() -> None:
    assert [name for name in TOGETHER if not (ROOT / name).exists()] == []


def test_whoever_asks_for_a_costly_fixture_of_the_session_is_in_its_unit() -> None:
    units: dict[str, set[str]] = {}
    for folder in ("tests", "plugins"):
        for file in (ROOT / folder).rglob("test_*.py"):
            functions = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]
            asked = {argument.arg for function in functions for argument in function.args.args} & SHARED
            for name in asked - {function.name for function in functions}:
                units.setdefault(name, set()).add(unit_of(file.relative_to(ROOT).as_posix()))
    assert units.keys() >= {"reference_model", "environment"}
    assert [name for name, found in units.items() if len(found) > 1] == []


def test_half_a_character_in_a_report_can_be_sent() -> None:
    report = {"sections": [("Captured log", "half \ud800, whole é")], "longrepr": None, "where": Path("a")}
    told = sendable(report)
    assert told == {"sections": [("Captured log", "half \\ud800, whole é")], "longrepr": None, "where": "a"}
    str(told).encode()
