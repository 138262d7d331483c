"""`jackfield lock`, and what `explain --locked` says of a run that is not the locked one."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.sources import load_server_args
from jackfield.entrypoints.cli import main
from jackfield.stack.digest import package_digest
from jackfield.stack.lock import differences, lock_text, read_lock
from tests.unit.stack.distributions import Site, plugin_row

PARTS = {"cache-policy": "cache", "schedule-policy": "schedule_policy", "event-loop": "event_loop", "load-format": "loader",
         "worker": "worker"}  # fmt: skip
FORM = "schema_version = 1\nstack_hash = '{}'\n[core]\n[contracts]\n[resolution]\n[[plugin]]\n{}"
DAMAGED = "--locked: {path} is not a whole lock: "
ROW = "kind = 'a'\nname = 'a'\ninstance = 'a'\ndistribution = 'a'\nversion = ''\ncontent = 'a'\n"
OPTIONS = "from pydantic import BaseModel\nclass Options(BaseModel):\n    depth: int = 3\n"


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.goal_row(13)
def test_a_lock_names_all_that_runs_and_an_edited_file_of_a_plugin_is_told(
    capsys: pytest.CaptureFixture[str], live_site: Site, tmp_path: Path
) -> None:
    rows = [plugin_row(kind, f"acme-{kind.replace('_', '-')}") for kind in PARTS.values()]
    package = live_site.add("acme-parts", *rows, plugin_row("metrics", "acme-sink", options="PACKAGE.options:Options"))
    manifest = live_site.folder / package / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("PACKAGE", package))
    (live_site.folder / package / "options.py").write_text(OPTIONS)
    flags = [word for flag, kind in PARTS.items() for word in (f"--{flag}", f"acme-{kind.replace('_', '-')}")]
    flags += ["--device", "cpu", "--routes", "none", "--metrics", "acme-sink", "--option", "metrics.acme-sink.depth=4"]
    lock = tmp_path / "run.lock"

    code, out, err = run(capsys, "lock", *flags, "--output", str(lock))
    assert (code, out) == (0, "")
    document = tomllib.loads(lock.read_text())
    assert err == f"stack {document['stack_hash'][:12]} is locked in {lock}\n"
    assert [plugin["kind"] for plugin in document["plugin"]] == [*PARTS.values(), "metrics"]
    assert document["plugin"][-1]["options"] == {"depth": 4}
    assert all(plugin["distribution"] == "acme-parts" and plugin["version"] == "1.0" for plugin in document["plugin"])
    assert str(tmp_path) not in lock.read_text(), "a lock serves every machine"
    assert run(capsys, "lock", *flags, "--output", "-") == (0, lock.read_text(), "")

    (live_site.folder / package / "acme_cache.py").write_text("# edited\n")
    package_digest.cache_clear()
    code, out, err = run(
        capsys, "explain", "--json", *flags, "--option", "metrics.acme-sink.depth=5", "--locked", str(lock)
    )
    told = json.loads(out)["locked"]
    assert (code, told["file"], told["same"]) == (2, str(lock), False)
    assert told["differences"][0].startswith("the content of cache plugin 'acme-cache' is ")
    assert told["differences"][0].endswith(" was locked: its files were changed without a new version")
    assert told["differences"][-1] == "the option depth of metrics plugin 'acme-sink' is 5, 4 was locked"


BASE: dict[str, Any] = {
    "schema_version": 1,
    "stack_hash": "a" * 64,
    "core": {"version": "0.1.0", "content": "c" * 64},
    "contracts": {"cache": "0.1", "metrics": "1.0"},
    "resolution": {"dtype": "bfloat16", "page_size": 1},
    "plugin": [
        {"kind": "cache", "name": "radix", "instance": "radix", "distribution": "d", "version": "1", "content": "e" * 64},
        {"kind": "metrics", "name": "one", "instance": "one", "distribution": "d", "version": "1", "content": "e" * 64},
        {"kind": "metrics", "name": "one", "instance": "b", "distribution": "d", "version": "1", "content": "e" * 64},
    ],
}  # fmt: skip


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """BASE with one value changed."""
    document: Any = copy.deepcopy(BASE)
    part = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    found: dict[str, Any] = document
    return found


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (BASE, []),
        (changed(("core", "version"), "0.2.0"), ["the core is jackfield 0.2.0, 0.1.0 was locked"]),
        (
            changed(("core", "content"), "f" * 64),
            ["the content of the core is ffffffffffff, cccccccccccc was locked: files of jackfield were changed"],
        ),
        (changed(("contracts", "cache"), "0.2"), ["the cache contract of the core is 0.2, 0.1 was locked"]),
        (changed(("contracts", "gate"), "0.1"), ["the gate contract of the core is 0.1, none was locked"]),
        (changed(("resolution", "dtype"), "float32"), ["dtype is 'float32', 'bfloat16' was locked"]),
        (changed(("plugin", 0, "version"), "2"), ["the version of cache plugin 'radix' is 2, 1 was locked"]),
        (changed(("plugin", 0, "distribution"), "x"), ["the distribution of cache plugin 'radix' is x, d was locked"]),
        (changed(("plugin", 0, "options"), {"a": 1}), ["the option a of cache plugin 'radix' is 1, not given was locked"]),
        (
            {**BASE, "plugin": [{**BASE["plugin"][0], "name": "chunk", "instance": "chunk"}, *BASE["plugin"][1:]]},
            ["the cache is 'chunk', 'radix' was locked"],
        ),
        ({**BASE, "plugin": BASE["plugin"][:2]}, ["metrics plugin 'one' as 'b' was locked, and is not part of this run"]),
        (
            {**BASE, "plugin": [BASE["plugin"][0], BASE["plugin"][2], BASE["plugin"][1]]},
            ["the order is cache.radix, metrics.b, metrics.one; cache.radix, metrics.one, metrics.b was locked"],
        ),
        (
            {**BASE, "stack_hash": "b" * 64},
            ["the stack hash is bbbbbbbbbbbb, aaaaaaaaaaaa was locked, and nothing else differs: the lock was edited"],
        ),
    ],
)  # fmt: skip
def test_what_differs_is_told(now: dict[str, Any], told: list[str]) -> None:
    assert differences(BASE, now) == told


def test_a_nan_equals_a_nan_and_null_its_text() -> None:
    options = {"ratio": float("nan"), "most": None}
    now = changed(("plugin", 0, "options"), options)
    assert differences(tomllib.loads(lock_text(now)), now) == []


def test_what_only_the_lock_has_is_told() -> None:
    locked = changed(("contracts", "future"), "0.1")
    assert differences(locked, BASE) == ["this core has no future contract, 0.1 was locked"]
    assert differences(changed(("resolution", "shade"), "x"), BASE) == ["shade of the lock is unknown to this core"]


def test_a_plugin_of_one_file_has_no_version_that_could_have_been_raised() -> None:
    was, now = (changed(("plugin", 0), {**BASE["plugin"][0], "version": "", "content": each * 64}) for each in "ef")
    (told,) = differences(was, now)
    assert told.endswith("was locked: the file was changed")


def test_a_stack_file_names_the_lock_beside_it(tmp_path: Path) -> None:
    (tmp_path / "stack.toml").write_text('locked = "run.lock"\n')
    args, provenance = load_server_args({}, {}, tmp_path / "stack.toml")
    assert args.locked == tmp_path / "run.lock"
    assert provenance["locked"] == f"stack file {tmp_path / 'stack.toml'}"


def test_text_of_any_kind_comes_back_as_it_went() -> None:
    options = {"a b": 'quo"te\\ \x7f\n', "z": [1, 2.5, True, {"deep": "é😀"}], "none": {}, "ratio": float("inf")}
    document = changed(("plugin", 0, "options"), options)
    assert tomllib.loads(lock_text(document))["plugin"][0]["options"] == options


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "--locked: there is no file '{path}'; write one with: jackfield lock --output FILE"),
        ("= 3", "--locked: {path} is no lock, it is not TOML: "),
        ("", "--locked: {path} is no lock, it has no schema_version; write one with: jackfield lock --output FILE"),
        ("schema_version = 9", "--locked: {path} has the lock's schema_version 9, this core reads 1"),
        (
            "schema_version = 1\n[core]",
            "--locked: {path} is not a whole lock: the table [contracts] is missing or damaged",
        ),
        (FORM.format("a", "kind = 3"), DAMAGED + "kind of [[plugin]] number 1 is missing or no text"),
        (FORM.format("a", ROW + "options = 3"), DAMAGED + "options of [[plugin]] number 1 is no table"),
        (FORM.format("a", ROW + "phases = 'x'"), DAMAGED + "phases of [[plugin]] number 1 is no list"),
        (FORM.format("a", "").replace("[[plugin]]", "[plugin]"), DAMAGED + "[[plugin]] is no list of"),
        (FORM.format("a", ROW).replace("'a'", "3"), DAMAGED + "stack_hash is missing or no text"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_lock(tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "run.lock"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_lock(path)
    assert str(caught.value).startswith(told.format(path=path))
    with pytest.raises(ConfigurationError, match=r"^--locked \(from stack file s.toml\): "):
        read_lock(path, "--locked (from stack file s.toml)")


def test_an_empty_name_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "lock", "--output", "")
    assert (code, err) == (2, "jackfield: lock: --output is empty; name a file, or - for standard output\n")
