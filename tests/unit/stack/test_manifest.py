from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jackfield.hookspecs import KINDS
from jackfield.stack.discovery.interpreter import Interpreter
from jackfield.stack.discovery.manifest import parse_row, read_manifest
from tests.unit.stack.distributions import plugin_row


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_plain_row_of_every_kind_has_no_problem(kind: str) -> None:
    parsed = parse_row(plugin_row(kind, "x"))
    assert parsed.problems == ()
    assert (parsed.row.kind, parsed.row.name) == (kind, "x")


def test_an_interpreter_is_variables_and_dtypes() -> None:
    row = parse_row(plugin_row("ops", "x", interpreter={"environment": {"A": "1"}, "dtypes": ["float32"]})).row
    assert row.interpreter == Interpreter(environment={"A": "1"}, dtypes=("float32",))
    assert parse_row(plugin_row("ops", "x")).row.interpreter is None


def test_an_unknown_key_names_the_nearest() -> None:
    assert parse_row(plugin_row("ops", "x", prioritty=3)).problems == (
        "unknown manifest key 'prioritty'; did you mean 'priority'?",
    )


def test_every_problem_is_told() -> None:
    problems = parse_row({"kind": "cache", "name": "x", "priority": True, "devices": "cpu", "files": ["*.x"]}).problems
    assert len(problems) == 5
    assert "manifest key 'priority' must be a whole number, not True" in problems
    assert "manifest key 'devices' must be a list of texts, not 'cpu'" in problems
    assert "manifest key 'summary' is missing" in problems
    assert "manifest key 'contract' is missing" in problems
    assert any("'files' means nothing for kind 'cache'; it belongs to loader" in problem for problem in problems)


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (plugin_row("attention", "x", layouts=[]), "must list its layouts"),
        (plugin_row("attention", "x", layouts=["*"]), "'*' is for ops"),
        (plugin_row("model", "x", architectures=None), "must list its architectures"),
        (plugin_row("worker", "x", needs=["attenton"]), "cannot need 'attenton'; did you mean 'attention'?"),
        (plugin_row("cache", "x", needs=["forest"]), "'needs' means nothing for kind 'cache'"),
        (plugin_row("cache", "x", processes=["main"]), "has no place in process 'main'"),
        (plugin_row("cache", "x", parameters="a:B"), "'parameters' means nothing for kind 'cache'"),
        (plugin_row("cache", "x", options="no-colon"), 'of the form "package.module:name"'),
        (plugin_row("cache", "Bad Name"), "is not of the form"),
        (plugin_row("cache", "x", contract={"cache": 1}), "a table of kind"),
        (
            plugin_row("cache", "x", interpreter={"environment": {"A": "1"}}),
            "'interpreter' means nothing for kind 'cache'",
        ),
        (plugin_row("ops", "x", interpreter={"A": "1"}), "'interpreter' must be of the form { environment = {"),
        (plugin_row("ops", "x", interpreter={"environment": {}}), "'interpreter' must be of the form"),
        (plugin_row("ops", "x", interpreter={"environment": {"A": 1}}), "'interpreter' must be of the form"),
        (plugin_row("ops", "x", interpreter={"environment": {"A=B": "1"}}), "'interpreter' must be of the form"),
        (
            plugin_row("ops", "x", interpreter={"environment": {"A": "1"}, "dtypes": "float32"}),
            "'interpreter' must be of",
        ),
    ],
)
def test_what_a_row_may_not_say(row: dict[str, Any], text: str) -> None:
    assert any(text in problem for problem in parse_row(row).problems), parse_row(row).problems


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[plugin]\nkind = 'cache'\n", "two brackets"),
        ("[[plugins]]\n", "unknown table 'plugins'; did you mean 'plugin'?"),
        ("[[layout]]\nname = 'nhd-paged'\n", "of the form"),
        ("[[layout]]\nname = 'a/b'\n", "tensors must be a list"),
        ("[[layout]]\nname = 'a/b'\ntensors = [{ role = 'q', shape = ['page'] }]", "a tensor is"),
        ("[[layout]]\nname = 'a/b'\ntensors = [{ role = 'k', shape = ['pages'] }]", "a tensor is"),
        ("[[layout]]\nname = 'a/b'\nshape = []\ntensors = [{ role = 'k', shape = ['page'] }]", "unknown key 'shape'"),
        (
            "[[layout]]\nname = 'a/b'\ntensors = [{ role = 'k', shape = ['page'] }]",
            "layout 'a/b' must begin with the name of an attention plugin of this file (it has none)",
        ),
        (2 * "[[layout]]\nname = 'a/b'\ntensors = [{ role = 'k', shape = ['page'] }]\n", "'a/b' is declared twice"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "plugin.toml"
    file.write_text(text)
    assert any(problem in found for found in read_manifest(file).problems)
