from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jackfield import __version__
from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints import cli
from jackfield.entrypoints.cli import COMMANDS, main
from jackfield.hookspecs import ModelSourceError
from jackfield.managers.errors import RequestError
from jackfield.stack.selection.own import OWN_DISTRIBUTIONS
from tests.unit.stack.distributions import POLICY, Site, plugin_row


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings of whoever runs the tests, and the logging configuration as it was."""
    for name in [name for name in os.environ if name.startswith("JACKFIELD_")]:
        monkeypatch.delenv(name)
    root = logging.getLogger()
    handlers = list(root.handlers)
    yield
    root.handlers[:] = handlers


def output(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """stdout of a command that must succeed without a word on stderr."""
    code = main(argv)
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, "")
    return captured.out


def refusal(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one message of a command that must be refused."""
    code = main(argv)
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, ""), captured.err
    assert "Traceback" not in captured.err
    return captured.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "--version") == f"jackfield {__version__}\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "--help")
    assert all(name in text for name in cli.COMMANDS)


@pytest.mark.parametrize("command", ["plugins", "explain"])
def test_each_command_has_its_own_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert "--" in output(capsys, command, "--help")


def test_no_command_is_refused_with_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys).startswith("usage: jackfield")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["plugns"], "'plugns' is not known; did you mean 'plugins'?"),
        (["plugins"], "ACTION"),
        (["plugins", "lst"], "'lst' is not known; did you mean 'list'?"),
        (["plugins", "list", "--jsn"], "unknown flag --jsn; did you mean '--json'?"),
        (["plugins", "show", "torch"], "is not of the form KIND.NAME, such as attention.torch"),
        (["plugins", "show", "atention.torch"], "there is no kind 'atention'; did you mean 'attention'?"),
        (["plugins", "show", "cache.zzz"], "no cache plugin 'zzz' is installed"),
        (["explain", "--cache-polcy", "radix"], "did you mean '--cache-policy'?"),
        (["explain", "--cache-policy", "zzz"], "--cache-policy: no cache plugin 'zzz' is installed"),
        (["explain", "--page-size", "0"], "--page-size"),
        (["explain", "--model-path", "./no/such/model.gguf"], "no such file or directory"),
        (["explain", "--option", "cache.zzz.x=1"], 'options."cache.zzz" (from --option): there is no such instance'),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], argv: list[str], text: str) -> None:
    message = refusal(capsys, *argv)
    assert text in message
    assert message.startswith("jackfield")
    assert not message.startswith("jackfield: jackfield")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--top-p", "1.5", "hi"], "top_p must be"),
        (["--stop", "", "hi"], "stop"),
        (["--temperature", "nan", "hi"], "temperature must be"),
        (["--skip-tokenizer-init", "hi"], "leave out --skip-tokenizer-init"),
        (["--skip-tokenizer-init", "--input-ids", "5"], "give --input-ids and --json"),
        (["--skip-tokenizer-init", "--json", "hi"], "give --input-ids and --json"),
        ([], "give TEXT or --input-ids"),
        (["hi", "--input-ids", "5"], "give TEXT or --input-ids"),
        (["--input-ids", "5", "--chat"], "--chat makes ids of a text"),
        (["--input-ids", "5,x"], "whole numbers"),
        (["--input-ids", "5.0"], "whole numbers"),
        (["--input-ids", "[true]"], "whole numbers"),
        (["--input-ids", "[[5]]"], "whole numbers"),
        (["--max-stops", "1", "--stop", "a", "--stop", "b", "hi"], "--max-stops"),
    ],
)
def test_generate_refuses_before_it_loads_a_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: list[str], text: str
) -> None:
    monkeypatch.setitem(sys.modules, "jackfield.entrypoints.engine", None)  # an import of it would raise
    assert text in refusal(capsys, "generate", *argv)


def test_an_unknown_environment_variable_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JACKFIELD_CACHE_POLCY", "radix")
    assert "unknown environment variable JACKFIELD_CACHE_POLCY" in refusal(capsys, "explain")


def command(monkeypatch: pytest.MonkeyPatch, error: BaseException | None) -> None:
    """`explain` raises this."""

    def run(namespace: Any) -> int:
        if error is not None:
            raise error
        return 0

    from jackfield.entrypoints.cli import explain

    monkeypatch.setattr(explain, "run", run)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigurationError("no"), 2, "jackfield: no\n"),
        (ModelSourceError("m is cut off"), 2, "jackfield: m is cut off\n"),
        (RequestError("top_p is odd", param="top_p"), 2, "jackfield: top_p is odd\n"),
        (
            RequestError("the request failed", status_code=500),
            1,
            "jackfield: the request failed\njackfield: run it again with --debug for the traceback\n",
        ),
        (
            RuntimeError("odd"),
            1,
            "jackfield: RuntimeError: odd\njackfield: run it again with --debug for the traceback\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (None, 0, ""),
    ],
)
def test_exit_codes(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
    code: int,
    text: str,
) -> None:
    command(monkeypatch, error)
    assert main(["explain"]) == code
    assert capsys.readouterr().err == text


@pytest.mark.parametrize("source", ["flag", "environment", "stack file"])
@pytest.mark.parametrize("error", [ConfigurationError("no"), RuntimeError("odd")])
def test_debug_shows_the_traceback_whatever_source_asks_for_it(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    source: str,
    error: Exception,
) -> None:
    command(monkeypatch, error)
    argv = ["explain"]
    if source == "flag":
        argv.append("--debug")
    elif source == "environment":
        monkeypatch.setenv("JACKFIELD_DEBUG", "true")
    else:
        (tmp_path / "s.toml").write_text("debug = true\n")
        argv += ["--stack", str(tmp_path / "s.toml")]
    assert main(argv) == (2 if isinstance(error, ConfigurationError) else 1)
    assert "Traceback" in capsys.readouterr().err


def test_plugins_list_works_when_half_of_them_are_broken(capsys: pytest.CaptureFixture[str], live_site: Site) -> None:
    live_site.add("acme-good", plugin_row("cache", "acme-good"))
    live_site.add("acme-old", plugin_row("cache", "acme-old", contract={"cache": "0.0"}))
    live_site.info("acme-torn", "0.7", "[jackfield.cache\n")
    rows = {row["distribution"]: row for row in json.loads(output(capsys, "plugins", "list", "--json"))}
    for row in rows.values():
        assert {"kind", "name", "distribution", "version", "summary", "status", "problem", "contract", "hooks"} < set(
            row
        )
        assert row["active"] is None, "nobody said which run is meant"
    assert (rows["acme-good"]["status"], rows["acme-good"]["problem"]) == ("ok", "")
    assert (rows["acme-good"]["contract"], rows["acme-good"]["hooks"]) == ("0.1", ["jackfield_prefix_cache"])
    assert rows["acme-old"]["status"] == "incompatible"
    assert (rows["acme-torn"]["status"], rows["acme-torn"]["version"]) == ("broken", "0.7")
    lines = output(capsys, "plugins", "list").splitlines()
    (line,) = [line for line in lines if "acme-old" in line]
    assert "this core speaks 0.1: upgrade the plugin" in line, "a row is one line when piped"


@pytest.mark.goal_row(10)
def test_plugins_list_tells_what_a_run_would_use_when_it_knows_the_run(
    capsys: pytest.CaptureFixture[str], live_site: Site, parts: list[str]
) -> None:
    live_site.add("acme-watch", plugin_row("metrics", "acme-watch"), plugin_row("metrics", "acme-idle"))
    argv = (
        "plugins",
        "list",
        "--device",
        "cpu",
        *parts,
        "--metrics",
        "acme-watch",
        "--metrics",
        '{plugin = "acme-watch", as = "two"}',
    )
    rows = {(row["kind"], row["name"]): row for row in json.loads(output(capsys, *argv, "--json"))}
    active = {name for name, row in rows.items() if row["active"]}
    assert active == {*STACK_PARTS.items(), ("metrics", "acme-watch")}
    assert rows["metrics", "acme-watch"]["instances"] == ["acme-watch", "two"]
    (line,) = [line for line in output(capsys, *argv).splitlines() if line.split()[:2] == ["metrics", "acme-watch"]]
    assert "yes (as acme-watch, two)" in line
    assert "did you mean '--cache-policy'" in refusal(capsys, "plugins", "list", "--cache-polic", "x")


def test_help_begins_with_what_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "generate", "--help").splitlines()
    assert lines[:3] == ["usage: jackfield generate [TEXT] [FLAG ...]", "", lines[2]]
    assert lines[2].startswith("Answer one prompt")
    # Few flags stand in the first lines, as argparse writes them.
    assert "[--json]" in output(capsys, "plugins", "doctor", "--help").splitlines()[0]
    commands = output(capsys, "--help")
    assert all(re.search(rf"^    {name} +[a-z]", commands, re.MULTILINE) for name in COMMANDS)


def test_plugins_show(capsys: pytest.CaptureFixture[str], live_site: Site) -> None:
    package = live_site.add(
        "acme-show",
        plugin_row("schedule_policy", "acme-policy", options="PACKAGE.options:Options"),
        sources={
            "acme_policy": POLICY,
            "options": "from pydantic import BaseModel, Field\n"
            "class Options(BaseModel):\n    depth: int = Field(3, description='how deep')\n"
            "    script: list[str | list[int]] = []\n    most: float = float('inf')\n    on: bool = True\n"
            "    made: list[str] = Field(default_factory=lambda: ['a'])\n",
        },
    )
    manifest = live_site.folder / package / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("PACKAGE", package))
    (shown,) = json.loads(output(capsys, "plugins", "show", "schedule-policy.Acme_Policy", "--json"))
    assert (shown["name"], shown["status"], shown["flag"]) == ("acme-policy", "ok", "--schedule-policy")
    assert shown["findings"] == []
    assert [(field["name"], field["default"]) for field in shown["option_fields"][2:]] == [
        ("most", float("inf")),
        ("on", True),
        ("made", ["a"]),
    ]
    assert shown["option_fields"][:2] == [
        {"name": "depth", "type": "integer", "default": 3, "required": False, "description": "how deep"},
        {
            "name": "script",
            "type": "array of (string | array of integer)",
            "default": [],
            "required": False,
            "description": "",
        },
    ]
    text = output(capsys, "plugins", "show", "schedule_policy.acme-policy")
    assert "--schedule-policy.acme-policy.NAME VALUE" in text
    assert "how deep" in text
    assert re.search(r"on +boolean +true", text)
    assert re.search(r'made +array of string +\["a"\]', text)
    assert package not in sys.modules


def test_plugins_show_of_a_name_alone_names_every_plugin_of_that_name(
    capsys: pytest.CaptureFixture[str], live_site: Site
) -> None:
    live_site.add("acme-a", plugin_row("cache", "acme-twin"))
    live_site.add("acme-b", plugin_row("observer", "acme-twin"))
    assert "there is cache.acme-twin, observer.acme-twin" in refusal(capsys, "plugins", "show", "acme-twin")


def test_plugins_show_of_a_broken_one_tells_its_problem(capsys: pytest.CaptureFixture[str], live_site: Site) -> None:
    live_site.add("acme-bad", plugin_row("cache", "acme-bad"), manifest="")
    assert "has no plugin.toml" in output(capsys, "plugins", "show", "cache.acme-bad")


def test_our_own_distributions_are_the_folders_of_the_repository() -> None:
    """The list that decides whom automatic selection trusts is written by hand; this is what it is held against."""
    root = Path(__file__).parents[3]
    folders = {
        f"jackfield-{file.parent.parent.name}-{file.parent.name}" for file in root.glob("plugins/*/*/pyproject.toml")
    }
    assert folders <= set(OWN_DISTRIBUTIONS)


STACK_PARTS = {
    "cache": "acme-cache",
    "schedule_policy": "acme-policy",
    "event_loop": "acme-loop",
    "loader": "acme-loader",
    "worker": "acme-worker",
}
"""A whole stack of strangers' plugins, so that these tests need none of ours."""


@pytest.fixture
def parts(live_site: Site) -> list[str]:
    """Flags of a stack whose every module fails when it is imported."""
    rows = [plugin_row(kind, name) for kind, name in STACK_PARTS.items()]
    live_site.add("acme-parts", *rows, sources={name.replace("-", "_"): "1/0" for name in STACK_PARTS.values()})
    fields = {
        "cache": "cache-policy", "schedule_policy": "schedule-policy", "event_loop": "event-loop", "loader": "load-format",
        "worker": "worker",
    }  # fmt: skip
    return ["--routes", "none", *(word for kind, name in STACK_PARTS.items() for word in (f"--{fields[kind]}", name))]


def test_explain_json_holds_args_stack_and_topology(capsys: pytest.CaptureFixture[str], parts: list[str]) -> None:
    report = json.loads(output(capsys, "explain", "--json", "--device", "cpu", "--topology", "inline", *parts))
    assert {"args", "stack", "topology"} <= set(report)
    assert report["args"]["cache_policy"] == "acme-cache"
    assert report["args"]["context_length"] == 8192, "the embedded model's configuration ships with the core"
    assert [(plugin["kind"], plugin["name"]) for plugin in report["stack"]["plugins"]] == list(STACK_PARTS.items())
    for plugin in report["stack"]["plugins"]:
        assert {"kind", "name", "instance", "distribution", "version", "options", "reason"} <= set(plugin)
        assert plugin["reason"].startswith("named by --")
    assert len(report["stack"]["hash"]) == 64
    assert report["stack"]["epoch"] == 0
    assert all(set(rejected) == {"kind", "name", "reason", "origin"} for rejected in report["stack"]["rejected"])
    assert [process["role"] for process in report["topology"]["processes"]] == ["inline"]


def test_explain_is_the_same_twice_and_the_hash_is_stable(capsys: pytest.CaptureFixture[str], parts: list[str]) -> None:
    argv = ("explain", "--json", "--device", "cpu", *parts)
    one, two = (json.loads(output(capsys, *argv)) for _ in range(2))
    one.pop("device"), two.pop("device")  # the free memory changes
    assert one == two


@pytest.mark.goal_row(12)
def test_explain_says_the_same_to_people_and_to_programs(capsys: pytest.CaptureFixture[str], parts: list[str]) -> None:
    argv = ("explain", "--device", "cpu", *parts)
    text, report = output(capsys, *argv), json.loads(output(capsys, *argv, "--json"))
    stack = report["stack"]
    told = [*(plugin["reason"] for plugin in stack["plugins"]), *(other["reason"] for other in stack["rejected"])]
    told += [
        stack["layout_reason"],
        stack["weights_reason"],
        stack["worker_thread_reason"],
        stack["hash"],
        *report["notes"],
        report["device"]["reason"],
    ]
    told += [change["rule"] for change in report["changes"]]
    assert len(told) > 20
    for words in told:
        assert words in text
    assert {other["kind"] for other in stack["rejected"]} >= {"attention", "metrics", "observer"}, (
        "kinds that run nothing here"
    )


def test_explain_for_people(capsys: pytest.CaptureFixture[str], parts: list[str]) -> None:
    text = output(capsys, "explain", "--device", "cpu", *parts)
    assert "the embedded SmolLM2-135M-Instruct's configuration" in text
    assert "named by --cache-policy" in text
    assert "stack hash" in text


def test_explain_refuses_misspelt_and_ill_typed_options(
    capsys: pytest.CaptureFixture[str], live_site: Site, parts: list[str]
) -> None:
    package = live_site.add(
        "acme-options",
        plugin_row("observer", "acme-watch", options="PACKAGE.options:Options"),
        sources={"options": "from pydantic import BaseModel\nclass Options(BaseModel):\n    depth: int = 3\n"},
    )
    manifest = live_site.folder / package / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("PACKAGE", package))
    argv = ["explain", "--device", "cpu", *parts, "--observer", "acme-watch"]
    assert "options.\"observer.acme-watch\".dpth (from --option): unknown option; did you mean 'depth'?" in refusal(
        capsys, *argv, "--option", "observer.acme-watch.dpth=1"
    )
    assert "depth (from --option): must be a whole number, not 'deep'" in refusal(
        capsys, *argv, "--option", "observer.acme-watch.depth=deep"
    )
    assert package not in sys.modules


def test_explain_refuses_a_plugin_whose_required_option_is_missing(
    capsys: pytest.CaptureFixture[str], live_site: Site, parts: list[str]
) -> None:
    """It would be refused at the start, so it must not be explained as if it ran."""
    package = live_site.add(
        "acme-needy",
        plugin_row("observer", "acme-needy", options="PACKAGE.options:Options"),
        sources={"options": "from pydantic import BaseModel\nclass Options(BaseModel):\n    depth: int\n"},
    )
    manifest = live_site.folder / package / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("PACKAGE", package))
    argv = ["explain", "--device", "cpu", *parts, "--observer", "acme-needy"]
    assert 'options."observer.acme-needy".depth: must be given' in refusal(capsys, *argv)


def test_explain_of_a_hub_model_that_is_not_here_leaves_open_what_depends_on_it(
    capsys: pytest.CaptureFixture[str], parts: list[str]
) -> None:
    report = json.loads(output(capsys, "explain", "--json", "--device", "cpu", "--model-path", "org/name", *parts))
    assert report["stack"]["hash"] is None
    assert report["args"]["context_length"] is None


def clean_interpreter(source: str, *argv: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("JACKFIELD_")}
    return subprocess.run(
        [sys.executable, "-c", source, *argv],
        capture_output=True,
        text=True,
        check=False,
        env=environ | {"PYTHONPATH": path},
    )


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_reader_that_goes_away_is_no_error(live_site: Site, more: list[str]) -> None:
    """As in `jackfield plugins list | head -1`."""
    source = (
        "import os, sys\nreader, writer = os.pipe()\nos.close(reader)\nos.dup2(writer, 1)\n"
        "from jackfield.entrypoints.cli import main\nsys.exit(main(['plugins', 'list', *sys.argv[1:]]))\n"
    )
    live_site.add("acme-good", plugin_row("cache", "acme-good"))
    ended = clean_interpreter(source, *more, path=str(live_site.folder))
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_closed_output_is_no_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, name, None)
    assert main(["plugins", "list", "--json"]) == 0
    getattr(sys, name).close()
