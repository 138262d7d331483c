"""The names of a new package: derived, and refused with the reason and the remedy. The command says what to do next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pytest

from jackfield import hookspecs
from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.authoring import render
from jackfield.entrypoints.authoring.names import NewPackage, new_package
from jackfield.entrypoints.cli import main
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow
from jackfield.stack.discovery.scan import discover

pytestmark = pytest.mark.goal_row(39)

HERE = Catalogue((PluginRow(kind="gate", name="door", distribution="front-door", version="2.0"),))


def new(kind: str, name: str, **given: Any) -> NewPackage:
    return new_package(kind, name, catalogue=HERE, **given)


def test_names_follow_from_kind_and_name() -> None:
    made = new("schedule-policy", "Least_Work")
    assert (made.kind, made.name) == ("schedule_policy", "least-work")
    assert (made.distribution, made.package) == ("least-work-policy", "least_work_policy")
    assert made.directory == Path("least-work-policy")
    assert (made.class_name, made.author, made.license) == ("LeastWorkPolicy", "The least-work-policy authors", "MIT")


def test_each_name_may_be_given(tmp_path: Path) -> None:
    given = {"directory": str(tmp_path), "distribution": "Acme.Gate", "package": "acme", "author": " Acme "}
    made = new("gate", "slow", **given, license_name="Apache-2.0")
    assert (made.distribution, made.package, made.directory, made.author) == ("Acme.Gate", "acme", tmp_path, "Acme")
    assert new("gate", "slow", distribution="Acme.Gate").package == "acme_gate"


def test_a_class_never_has_a_name_of_the_contract() -> None:
    made = new("schedule_policy", "schedule")
    assert "SchedulePolicy" in hookspecs.__all__
    assert made.class_name == "MySchedulePolicy"
    assert new("gate", "3-d", package="three").class_name == "Plugin3DGate"


@pytest.mark.parametrize(
    ("kind", "name", "given", "words"),
    [
        ("schedul_policy", "x", {}, ["no kind 'schedul_policy'", "did you mean 'schedule_policy'"]),
        ("load-format", "x", {}, ["no kind 'load-format'", "did you mean 'loader'"]),
        ("zzz", "x", {}, ["no kind 'zzz'", "kinds: attention, cache"]),
        ("gate", "no spaces", {}, ["'no spaces' is not a name", "letters, digits and single dashes"]),
        ("gate", "auto", {}, ["'auto'", "no plugin may have this name"]),
        ("gate", "door", {}, ["front-door 2.0 offers the gate 'door' already"]),
        ("gate", "back", {"distribution": "Front_Door"}, ["front-door 2.0 is installed already", "--distribution"]),
        ("gate", "x", {"distribution": "-x"}, ["--distribution: '-x'"]),
        ("gate", "2x", {}, ["'2x_gate' cannot be imported", "name one with --package"]),
        ("gate", "x", {"package": "class"}, ["'class' cannot be imported"]),
        ("gate", "x", {"package": "json"}, ["'json' is a module of Python's own"]),
        ("gate", "x", {"package": "jackfield"}, ["package 'jackfield' already"]),
        ("gate", "x", {"license_name": "mit"}, ["--license: 'mit'", "did you mean 'MIT'"]),
        ("gate", "x", {"author": "a\nb"}, ["--author: write one line"]),
        ("gate", "x", {"directory": str(Path(__file__).parent)}, ["exists and is not empty", "another --directory"]),
        ("gate", "x", {"directory": __file__}, ["is not a directory"]),
    ],
)
def test_what_cannot_be_is_refused_in_words(kind: str, name: str, given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        new(kind, name, **given)
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"3 problems(.|\n)*door(.|\n)*json(.|\n)*GPL"):
        new("gate", "door", package="json", license_name="GPL")


def test_an_unknown_variable_in_a_template_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, file, text in (("licenses", "MIT.jinja", ""), ("gate", "file.jinja", "{{ nobody }}")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text(text)
    monkeypatch.setattr(render, "TEMPLATES", tmp_path)
    with pytest.raises(jinja2.UndefinedError, match="nobody"):
        render.render(new("gate", "x"))


def test_the_command_writes_and_says_what_to_type_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "gate", "my-door", "--license", "BSD-3-Clause"]) == 0
    told = capsys.readouterr().out
    written, following = told.split("\nNext:\n")
    assert sorted(written.splitlines()) == sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
    )
    assert [line.strip() for line in following.splitlines()] == [
        "pip install -e './my-door-gate[test]'",
        "pytest my-door-gate",
        "jackfield conformance gate.my-door",
    ]
    assert "BSD 3-Clause" in (tmp_path / "my-door-gate" / "LICENSE").read_text()
    assert main(["new", "gate", "my-door"]) == 2
    assert "exists and is not empty" in capsys.readouterr().err


def test_a_name_of_an_installed_plugin_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    row = discover().rows("schedule_policy")[0]
    assert main(["new", "schedule-policy", row.name]) == 2
    assert row.distribution in capsys.readouterr().err
