"""Options of plugins as flags: typed by the plugin's model, listed by --help, refused with the nearest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.flags import parse_server_args
from jackfield.config.server_args import ServerArgs
from jackfield.entrypoints.cli import _parsed, _parser, main, option_flags
from jackfield.stack.discovery.plugin_file import MODULE_PREFIX
from tests.unit.stack.distributions import plugin_row

SOURCE = """
from pydantic import BaseModel, Field

PLUGINS = {rows!r}


class Inner(BaseModel):
    depth: int = 1


class Options(BaseModel):
    max_queue: int = Field(4, ge=1, description="Longest queue; 100% of it.")
    share: float | None = None
    fast: bool = Field(False, description="Whether it hurries.")
    order: list[str] = []
    inner: Inner = Inner()
    must: str
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Policies and a sink with options of every shape; none of them need run."""
    path = tmp_path_factory.mktemp("plugins") / "mine.py"
    rows = [plugin_row("schedule_policy", "mine", options="Options"), plugin_row("metrics", "sink", options="Options")]
    path.write_text(SOURCE.format(rows=[*rows, plugin_row("schedule_policy", "bare")]))
    return str(path)


def parse(*words: str, environ: dict[str, str] | None = None) -> tuple[ServerArgs, dict[str, str]]:
    line = ["explain", *words]
    taken = option_flags.take(line, environ or {})
    parser, _ = _parser(line)
    namespace = parser.parse_args(taken.words)
    namespace.option_flags = taken.flags
    return parse_server_args(namespace, environ or {})


def refused(*words: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(*words)
    return str(caught.value)


def helped(capsys: pytest.CaptureFixture[str], words: Sequence[str]) -> str:
    assert main([*words, "--help"]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.goal_row(28, 29)
def test_every_shape_of_option_has_a_flag(file: str) -> None:
    before = {name for name in sys.modules if name.startswith(MODULE_PREFIX)}
    args, provenance = parse(
        *("--plugin", file, "--schedule-policy", "mine", "--metrics", '{plugin = "sink", as = "second"}'),
        *("--schedule-policy.mine.max-queue", "64", "--schedule-policy.mine.share=-0.5"),
        *("--schedule-policy.mine.order", "a,b", "--schedule-policy.mine.order", "c"),
        *("--schedule_policy.Mine.inner.depth", "3", "--no-schedule-policy.mine.fast"),
        *("--metrics.second.fast", "--metrics.second.must", "x=y", "--metrics.second.share", "none"),
        *("--page-size", "2", "--option", "metrics.second.max_queue=9"),
    )
    assert args.options == {
        "schedule_policy.mine": {
            "max_queue": 64,
            "share": -0.5,
            "order": ["a", "b", "c"],
            "inner": {"depth": 3},
            "fast": False,
        },
        "metrics.second": {"fast": True, "must": "x=y", "share": None, "max_queue": 9},
    }
    assert (args.page_size, args.schedule_policy) == (2, "mine")
    assert provenance["options.schedule_policy.mine.max_queue"] == "--schedule-policy.mine.max-queue"
    assert {name for name in sys.modules if name.startswith(MODULE_PREFIX)} == before


@pytest.mark.goal_row(29)
def test_what_is_not_known_or_not_of_the_type_is_refused_with_the_nearest(file: str) -> None:
    """All of a line at once, and each with its own reason: one child answers for all."""
    base = ("--plugin", file, "--schedule-policy", "mine")
    message = refused(
        *base,
        *("--schedule-policy.mine.max-queu", "64"),
        *("--schedule-policy.mien.max-queue", "64"),
        *("--schedul-policy.mine.max-queue", "64"),
        *("--schedule-policy.bare.max-queue", "64"),
        *("--schedule-policy.mine.max-queue", "many"),
        *("--schedule-policy.mine.inner.deth", "1"),
        "--schedule-policy.mine.fast=true",
        "--no-schedule-policy.mine.share",
        "--schedule-policy.mine.must",
        *("--decode-attention-backend.torch.block-size", "64"),
    )
    for said in (
        "10 problems",
        "unknown flag --schedule-policy.mine.max-queu; did you mean '--schedule-policy.mine.max-queue'?",
        "there is no schedule_policy plugin or instance 'mien'; did you mean 'mine'",
        "there is no kind 'schedul-policy'; did you mean 'schedule-policy'?",
        f"schedule_policy plugin 'bare' ({file}) has no options",
        "--schedule-policy.mine.max-queue: 'many' is not a whole number",
        "did you mean '--schedule-policy.mine.inner.depth'?",
        "--schedule-policy.mine.fast is a switch and takes no value",
        "the option 'share' is no switch, it takes a number or none",
        "--schedule-policy.mine.must needs a value: text",
        "the same in every phase that it serves: --attention-backend.torch.block-size",
    ):
        assert said in message


def test_the_same_option_in_two_forms_is_refused(file: str) -> None:
    words = ("--schedule-policy.mine.max-queue", "1", "--option", "schedule-policy.mine.max_queue=2")
    assert "is given by --option as well; keep one" in refused("--plugin", file, *words)


def test_a_flag_goes_before_environment_and_stack_file(file: str, tmp_path: Path) -> None:
    stack = tmp_path / "stack.toml"
    stack.write_text(
        f'plugin = "{file}"\n[stack]\nschedule_policy = "mine"\n[options."schedule_policy.mine"]\nmust = "a"\nmax_queue = 1\n'
    )
    environ = {"JACKFIELD_STACK": str(stack), "JACKFIELD_OPTIONS": "{'schedule_policy.mine' = {max_queue = 2}}"}
    args, _ = parse("--schedule-policy.mine.max-queue", "3", environ=environ)
    assert args.options == {"schedule_policy.mine": {"must": "a", "max_queue": 3}}


@pytest.mark.goal_row(29)
def test_help_shows_the_options_of_the_plugins_that_are_named(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = helped(capsys, ["explain", "--plugin", file, "--schedule-policy", "mine", "--cache-policy", "chunk"])
    assert f"Options of schedule_policy 'mine' ({file}):" in shown
    assert "--schedule-policy.mine.max-queue MAX_QUEUE Longest queue; 100% of it. (a whole number; default: 4)" in shown
    assert "--schedule-policy.mine.fast, --no-schedule-policy.mine.fast Whether it hurries. (default: off)" in shown
    assert "--schedule-policy.mine.must MUST (text; required)" in shown
    assert "--schedule-policy.mine.inner.depth DEPTH" in shown
    assert "Options of cache 'chunk'" in shown
    assert "Options of metrics" not in shown


def test_help_is_given_whatever_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shown = helped(capsys, ["serve", "--stack", str(tmp_path / "absent.toml")])
    assert "--page-size" in shown
    assert "The options of the named plugins cannot be shown: stack file" in shown
    broken = tmp_path / "broken.py"
    broken.write_text(f"PLUGIN = {plugin_row('gate', 'broken', options='Options')!r}\nraise RuntimeError('no')\n")
    assert "They cannot be shown: gate plugin 'broken'" in helped(
        capsys, ["serve", "--plugin", str(broken), "--gate", "broken"]
    )


@pytest.mark.parametrize("words", [["--help"], ["--page-size", "3"], ["--option", "cache.radix.eviction=lru"]])
def test_a_line_that_names_no_plugin_starts_no_child(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("a child was started, or plugins were looked for")

    monkeypatch.setattr("jackfield.stack.diagnosis.inspection.call_in_child", never)
    monkeypatch.setattr("jackfield.stack.discovery.scan.discover", never)
    for name in ("JACKFIELD_STACK", "JACKFIELD_SCHEDULE_POLICY"):
        monkeypatch.delenv(name, raising=False)
    line = ["serve", *words]
    parser, commands = _parser(line)
    if "--help" in words:
        with pytest.raises(SystemExit):
            _parsed(parser, commands, line)
    else:
        _parsed(parser, commands, line)


def test_words_behind_two_dashes_are_left_alone() -> None:
    assert not option_flags.looks_like_one(["generate", "--", "--cache.radix.eviction"])
    assert not option_flags.looks_like_one(
        ["generate", "a.b.c", "--option", "cache.radix.eviction=lru", "--stop=a.b.c"]
    )
