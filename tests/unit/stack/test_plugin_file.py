"""One-file plugins: what is read of a file without running it, what is refused, and that each process runs the same bytes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.config.sources import load_server_args
from jackfield.hookspecs import Need
from jackfield.stack.diagnosis.inspection import check_options_in_child, describe_models_in_child
from jackfield.stack.digest import stack_hash
from jackfield.stack.discovery.catalogue import Catalogue, PluginRow, Status
from jackfield.stack.discovery.scan import discover
from jackfield.stack.errors import PluginLoadError
from jackfield.stack.loading.load import INLINE, load_stack
from jackfield.stack.resolved import ResolvedStack
from jackfield.stack.selection.probes import probe_here, probe_in_child
from jackfield.stack.selection.resolution import resolve
from tests.unit.stack.catalogues import CPU, catalogue, facts
from tests.unit.stack.distributions import POLICY, Site, plugin_row

OPTIONS = """
from pydantic import BaseModel, Field


class Options(BaseModel):
    limit: int = Field(3, ge=1, description="How far.")
"""

PROBE = """
from jackfield.hookspecs import Problem


def check(need, device):
    return [Problem(text="not here")]
"""


def write(folder: Path, *rows: dict[str, Any], code: str = POLICY, name: str = "mine.py") -> Path:
    """A plugin file; by default one schedule policy `mine`."""
    rows = rows or (plugin_row("schedule_policy", "mine"),)
    constant = f"PLUGIN = {rows[0]!r}" if len(rows) == 1 else f"PLUGINS = {list(rows)!r}"
    file = folder / name
    file.write_text(f"from __future__ import annotations\n\n{constant}\n{code}")
    return file


def only(file: Path) -> PluginRow:
    """The one row that the file gives."""
    (row,) = discover([], files=[file])
    return row


def with_files(*files: Path) -> Catalogue:
    """The standard rows and those of the files."""
    return catalogue(*discover([], files=files))


def resolved(*files: Path, **args: Any) -> ResolvedStack:
    return resolve(ServerArgs(plugin=files, **args), CPU, facts(), with_files(*files)).stack


def refused(*files: Path, **args: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        resolved(*files, **args)
    return str(caught.value)


def test_a_file_is_read_without_being_run(tmp_path: Path) -> None:
    row = only(
        write(
            tmp_path,
            plugin_row(
                "schedule_policy", "mine", needs=("cached_tokens",), options="Options", probe=":check", priority=3
            ),
            code="raise RuntimeError",
        )
    )
    assert (row.status, row.kind, row.name, row.distribution) == (Status.OK, "schedule_policy", "mine", "mine.py")
    assert row.manifest is not None
    assert row.manifest.needs == ("cached_tokens",)
    assert row.manifest.options == f"{row.module}:Options"
    assert row.manifest.probe == f"{row.module}:check"


def test_several_plugins_and_a_layout(tmp_path: Path) -> None:
    layouts = [{"name": "cols/one", "tensors": [{"role": "k", "shape": ["page", "kv_heads", "head"]}]}]
    rows = discover(
        [],
        files=[
            write(
                tmp_path,
                plugin_row("schedule_policy", "mine"),
                plugin_row("attention", "cols", layouts=("cols/one",)),
                code=f"LAYOUTS = {layouts!r}",
            )
        ],
    )
    assert [(row.kind, row.name, row.problem) for row in rows] == [
        ("attention", "cols", ""),
        ("schedule_policy", "mine", ""),
    ]
    assert [layout.name for layout in rows.all_rows[0].layouts] == ["cols/one"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\ndef f(:\n", "it is not valid Python: line 2: def f(: (invalid syntax)"),
        (b"\xff = 1", "it is not valid Python"),
        ("x = 1\0", "source code string cannot contain null bytes"),
        ("PLUGIN = {}\nPLUGIN['kind'] = 'gate'", "line 2 changes its PLUGIN, which is read without running the file"),
        ("PLUGIN = {}\nPLUGIN |= {}", "line 2 changes its PLUGIN"),
        ("PLUGINS = []\nPLUGINS.append({})", "line 2 changes its PLUGINS"),
        (
            "if True:\n    PLUGIN = {}",
            "no constant PLUGIN at its top level (line 2 is inside another statement). Write",
        ),
        ("x = " + "y" * 200 + " z", "y... (invalid syntax)"),
        ("PLUGIN = " + "-" * 100_000 + "1", "it is not valid Python: it is nested too deeply"),
        ("PLUGIN = dict(kind='gate')", "its PLUGIN (line 1) must be a literal"),
        ("PLUGIN = {'kind': K}", "its PLUGIN (line 1) must be a literal"),
        ("PLUGIN: dict = ['a']", "its PLUGIN must be a dict, such as:"),
        ("PLUGINS = {}", "its PLUGINS must be a list of dicts"),
        ("PLUGINS = []", "its PLUGINS must be a list of dicts"),
        ("PLUGIN = {}\nPLUGINS = []", "it has both PLUGIN and PLUGINS: keep one"),
        ("PLUGIN = {}\nPLUGIN = {}", "it sets PLUGIN twice, the second time in line 2"),
        ("PLUGIN = {}\nLAYOUTS = 3", "its LAYOUTS must be a list of dicts"),
        ("plugin = {}", "it has no constant PLUGIN (it has 'plugin'). Write at its top level:\nPLUGIN = {"),
        ("def jackfield_gate(context): ...", '"contract": {"gate": "0.1"}'),
        ("PLUGIN = {}", "manifest key 'kind' is missing"),
    ],
)
def test_a_file_without_a_manifest_says_what_to_write(tmp_path: Path, source: str | bytes, said: str) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(source if isinstance(source, bytes) else source.encode())
    assert only(file).status is Status.BROKEN
    message = refused(file)
    assert message.startswith(f"--plugin {file}: ")
    assert said in message


def test_what_is_said_can_be_copied(tmp_path: Path) -> None:
    """The example in the message is a manifest that is accepted."""
    file = tmp_path / "mine.py"
    file.write_text("")
    told = only(file).problem
    file.write_text(told[told.index("PLUGIN = {") :] + POLICY)
    assert resolved(file, schedule_policy="my-schedule-policy").plugins


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"contract": None}, 'write "contract": {"schedule_policy": "'),
        (
            {"contract": {"schedule_policy": 1.0}},
            "must be a table of kind = \"major.minor\", not {'schedule_policy': 1.0}",
        ),
        ({"contract": {"schedule_policy": "9.0"}}, "upgrade jackfield"),
        ({"kind": "schedul_policy"}, "did you mean 'schedule_policy'?"),
        ({"summry": "x"}, "unknown manifest key 'summry'; did you mean 'summary'?"),
        ({"options": "elsewhere.options:Options"}, "must name something of this file, such as ':Options'"),
        ({"priority": "high"}, "manifest key 'priority' must be a whole number"),
    ],
)
def test_a_wrong_manifest_is_told(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    kind = changes.pop("kind", "schedule_policy")
    file = write(tmp_path, plugin_row("schedule_policy", "mine", **changes) | {"kind": kind})
    assert said in refused(file, schedule_policy="mine")


def test_a_path_that_is_no_file(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "plugin.toml").touch()
    assert "did you mean 'mine.py'?" in refused(tmp_path / "mein.py")
    assert "it is a folder: name one .py file" in refused(tmp_path)
    assert "its name must end in .py" in refused(tmp_path / "plugin.toml")
    (tmp_path / "gone.py").symlink_to("nowhere.py")
    assert "it is a link that leads nowhere (to nowhere.py)" in refused(tmp_path / "gone.py")
    (tmp_path / "round.py").symlink_to("round.py")
    assert "it is a link that leads nowhere (to round.py)" in refused(tmp_path / "round.py")
    os.mkfifo(tmp_path / "pipe.py")
    assert "it is no regular file: name one .py file" in refused(tmp_path / "pipe.py")


def test_a_file_serves_only_when_it_is_named_and_is_refused_when_nothing_of_it_does(tmp_path: Path) -> None:
    file = write(tmp_path, plugin_row("schedule_policy", "mine", priority=99))
    assert f"--plugin {file}: the stack uses nothing of it; add --schedule-policy mine" in refused(file)
    stack = resolved(file, schedule_policy="mine")
    policy = stack.one("schedule_policy")
    assert policy is not None
    assert (policy.name, policy.path) == ("mine", str(file))
    assert policy.reason == "named by --schedule-policy"


def test_files_that_several_stacks_share_may_be_idle_in_one(tmp_path: Path) -> None:
    file, other = write(tmp_path), write(tmp_path, plugin_row("gate", "door"), code="", name="door.py")
    stacks = tmp_path / "stacks.toml"
    shared = 'plugin = ["mine.py", "door.py"]\n'
    for text, chosen in (
        (f'{shared}[stacks.a.stack]\nschedule_policy = "mine"\n', f"{stacks}#a"),
        (shared, str(stacks)),
    ):
        stacks.write_text(text)
        args, provenance = load_server_args({}, {}, chosen)
        assert args.plugin == (file, other)
        if "#" in chosen:
            stack = resolve(args, CPU, facts(), with_files(file, other), provenance).stack
            assert [plugin.path for plugin in stack.of("schedule_policy")] == [str(file)]
        else:
            with pytest.raises(
                ConfigurationError, match=r"stack file .*stacks.toml.*uses nothing of it; add --gate door"
            ):
                resolve(args, CPU, facts(), with_files(file, other), provenance)


def test_two_files_with_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    files = [write(tmp_path), write(tmp_path / "two")]
    message = refused(*files)
    assert f"{files[0]} and {files[1]} both offer schedule_policy 'mine': give one another name" in message


def test_a_file_against_an_installed_plugin(tmp_path: Path, site: Site) -> None:
    site.add("acme-policies", plugin_row("schedule_policy", "mine"))
    file = write(tmp_path)
    rows = discover([str(site.folder)], files=[file])
    assert {row.status for row in rows} == {Status.CONFLICT}
    assert "acme-policies 1.0 and" in rows.all_rows[0].problem
    with pytest.raises(ConfigurationError, match="give the file's another name"):
        resolve(ServerArgs(plugin=(file,)), CPU, None, catalogue(*rows))


def test_one_file_named_twice_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path)
    monkeypatch.chdir(tmp_path)
    link = tmp_path / "link.py"
    link.symlink_to(file)
    (row,) = discover([], files=[file, Path("mine.py"), Path("./mine.py"), link])
    assert row.path == file
    (row,) = discover([], files=[link, file])
    assert (row.path, row.distribution) == (link, "link.py")


def test_it_is_loaded_made_and_checked_like_any_other(tmp_path: Path) -> None:
    file = write(tmp_path, plugin_row("schedule_policy", "mine", options=":Options"), code=OPTIONS + POLICY)
    stack = resolved(file, schedule_policy="mine", options={"schedule_policy.mine": {"limit": 7}})
    (policy,) = stack.of("schedule_policy")
    made = load_stack(ResolvedStack(plugins=(policy,)), INLINE).make(
        "schedule_policy", max_running=1, page_size=1, total_slots=8
    )
    assert made.context.options.limit == 7
    assert sys.modules[type(made).__module__].__file__ == str(file)
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", "the module registers no hook of kind 'schedule_policy'"),
        ("raise RuntimeError('early')", "the file in line 4 raised RuntimeError: early"),
        ("import surely_absent", "Install what provides 'surely_absent'"),
        ("import helpers_beside", "a one-file plugin is one file: make it a package"),
        (POLICY.replace("(context)", "(ctx)"), "unknown argument"),
        (POLICY.replace("jackfield_schedule_policy", "jackfield_gate"), "is a hook of kind 'gate'"),
    ],
)
def test_code_that_does_not_stand_up(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "helpers_beside.py").touch()
    file = write(tmp_path, code=code)
    stack = resolved(file, schedule_policy="mine")
    with pytest.raises(PluginLoadError) as caught:
        load_stack(ResolvedStack(plugins=stack.of("schedule_policy")), INLINE)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_file_may_hold_plugins_of_several_kinds(tmp_path: Path) -> None:
    gate = "\n@hookimpl\ndef jackfield_gate(context):\n    raise NotImplementedError\n"
    file = write(tmp_path, plugin_row("schedule_policy", "mine"), plugin_row("gate", "mine"), code=POLICY + gate)
    stack = resolved(file, schedule_policy="mine", gate=["mine"])
    ours = tuple(plugin for plugin in stack.plugins if plugin.path)
    assert [sorted(plugin.hooks) for plugin in load_stack(ResolvedStack(plugins=ours), INLINE).plugins] == [
        ["jackfield_schedule_policy"],
        ["jackfield_gate"],
    ]


def test_the_hash_is_of_the_files_bytes_and_not_of_its_place(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first, same = write(tmp_path), write(tmp_path / "other", name="renamed.py")

    def hashed(file: Path) -> str:
        return stack_hash(ResolvedStack(plugins=resolved(file, schedule_policy="mine").of("schedule_policy")))

    before = hashed(first)
    assert hashed(same) == before
    write(tmp_path, code=POLICY + "\n# changed\n")
    assert hashed(first) != before


@pytest.mark.goal_row(22)
def test_a_file_that_changes_between_two_processes_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path)
    planned = ResolvedStack(plugins=resolved(file, schedule_policy="mine").of("schedule_policy"))
    before = stack_hash(planned)
    write(tmp_path, code=POLICY + "\n# changed\n")
    assert stack_hash(planned) != before  # what another process would say it found
    with pytest.raises(PluginLoadError, match="was changed while this run was starting"):
        load_stack(planned, INLINE)
    file.unlink()
    with pytest.raises(ConfigurationError, match="there is no such file"):
        stack_hash(planned)


def test_an_edited_file_is_loaded_anew_in_the_same_process(tmp_path: Path) -> None:
    """A notebook edits the file and makes another engine."""
    seen = []
    for number in (1, 2):
        file = write(tmp_path, code=f"{POLICY}\nNUMBER = {number}\n")
        plugins = resolved(file, schedule_policy="mine").of("schedule_policy")
        seen.append(load_stack(ResolvedStack(plugins=plugins), INLINE).plugins[0].module.NUMBER)
    assert seen == [1, 2]


def test_probe_and_options_in_a_child(tmp_path: Path) -> None:
    code = OPTIONS + POLICY + PROBE
    file = write(tmp_path, plugin_row("schedule_policy", "mine", options="Options", probe="check"), code=code)
    row = only(file)
    assert probe_in_child(row, Need(device="cpu"), CPU) == ["not here"]
    assert row.module not in sys.modules
    assert probe_here(row, Need(device="cpu"), CPU) == ["not here"]
    ((schema, problem),) = describe_models_in_child([row])
    assert (list(schema["properties"]), problem) == (["limit"], "")
    stack = resolved(file, schedule_policy="mine", options={"schedule_policy.mine": {"limt": 7}})
    with pytest.raises(ConfigurationError, match="did you mean 'limit'"):
        check_options_in_child(ResolvedStack(plugins=stack.of("schedule_policy")))


def test_whose_options_end_their_process_is_told(tmp_path: Path) -> None:
    sound = write(tmp_path, plugin_row("schedule_policy", "mine", options="Options"), code=OPTIONS)
    code = "import os\nos._exit(3)\n"
    ending = write(tmp_path, plugin_row("gate", "door", options="Options"), code=code, name="door.py")
    rows = [row for row in discover([], files=[sound, ending]) if row.path is not None]
    with pytest.raises(ConfigurationError) as caught:
        describe_models_in_child(rows)
    assert str(caught.value).startswith(f"gate plugin 'door' ({ending}): the options could not be looked at: ")
