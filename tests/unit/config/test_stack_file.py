"""The stack file: every way to choose a plugin, paths relative to the file, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.config.sources import load_server_args


def load(folder: Path, text: str) -> ServerArgs:
    path = folder / "stack.toml"
    path.write_text(text, encoding="utf-8")
    args, _ = load_server_args({}, {}, path)
    return args


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ('attention = "a"', "attention_backend", "a"),
        ('attention_backend = "a"', "attention_backend", "a"),
        ('cache = "a"', "cache_policy", "a"),
        ('cache_policy = "a"', "cache_policy", "a"),
        ('schedule_policy = "a"', "schedule_policy", "a"),
        ('event_loop = "a"', "event_loop", "a"),
        ('worker = "a"', "worker", "a"),
        ('ops = "a"', "ops", "a"),
        ('model = "a"', "model_impl", "a"),
        ('model_impl = "a"', "model_impl", "a"),
        ('loader = "a"', "load_format", "a"),
        ('load_format = "a"', "load_format", "a"),
        ('attention = { prefill = "a" }', "prefill_attention_backend", "a"),
        ('attention = { decode = "a", prefill = "b" }', "decode_attention_backend", "a"),
    ],
)
def test_a_choice_by_the_name_of_the_kind_or_of_its_field(line: str, field: str, value: str, tmp_path: Path) -> None:
    assert getattr(load(tmp_path, f"[stack]\n{line}"), field) == value


def test_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "chat.jinja").write_text("x", encoding="utf-8")
    (tmp_path / "models").mkdir()
    args = load(
        tmp_path,
        """
        model_path = "models"
        chat_template = "chat.jinja"
        download_dir = "../cache"
        dtype = "float32"
        page_size = 16
        debug = true
        plugin_allow = ["third-party"]
        json_model_override_args = { rope_theta = 1.0 }

        [stack]
        metrics = ["prometheus", { plugin = "prometheus", as = "audit", options = { port = 1 } }]
        observer = "jsonl"

        [options."attention.torch"]
        block = 64
        """,
    )
    assert args.model_path == str(tmp_path / "models")
    assert args.chat_template == tmp_path / "chat.jinja"
    assert args.download_dir == tmp_path.parent / "cache"
    assert args.json_model_override_args == {"rope_theta": 1.0}
    assert [use.instance for use in args.metrics] == ["prometheus", "audit"]
    assert [use.instance for use in args.observer] == ["jsonl"]
    assert args.options == {"attention.torch": {"block": 64}, "metrics.audit": {"port": 1}}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("org/name", "org/name"),
        ("./org/name", "{folder}/org/name"),
        ("here", "{folder}/here"),
        ("model.gguf", "{folder}/model.gguf"),
        ("/absolute/model", "/absolute/model"),
    ],
)
def test_a_model_path_is_relative_to_the_file_unless_it_is_a_hub_id(written: str, meant: str, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    assert load(tmp_path, f'model_path = "{written}"').model_path == meant.format(folder=tmp_path)


def test_a_path_on_the_command_line_is_not_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "stack.toml"
    path.write_text('download_dir = "a"', encoding="utf-8")
    args, _ = load_server_args({"download_dir": "b"}, {}, path)
    assert args.download_dir == Path("b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("page_siz = 1", "there is no setting 'page_siz'; did you mean 'page_size'?"),
        ("[optoins]", "there is no setting 'optoins'; did you mean 'options'"),
        ('attention = "a"', "under [stack] it would be a plugin's name, at top level it is 'attention_backend'"),
        ('[stack]\natention = "a"', "[stack] has no kind 'atention'; did you mean 'attention'"),
        ('cache_policy = "a"\n[stack]\ncache = "b"', "'cache_policy' is given twice"),
        ('[stack]\ncache = "a"\ncache_policy = "b"', "'cache_policy' is given twice"),
        ('[stack]\nattention = { prefil = "a" }', "takes a name or { prefill = ..., decode = ... }"),
        ("[stack]\nattention = {}", "takes a name or { prefill = ..., decode = ... }"),
        ("stack = 3", "[stack] must be a table"),
        ("[options.attention.torch]\na = 1", 'write the key in quotes: [options."attention.torch"]'),
        ('[options."cache_policy.radix"]\na = 1', "did you mean 'cache.radix'?"),
        ("options = 3", "options must be a table of tables"),
        (
            "[stack]\nschedule_policy = { plugin = 'lpm', options = { x = 1 } }",
            'its options stand in [options."schedule_policy.lpm"]',
        ),
        ("[stack]\ncache = 3", "[stack] cache takes the name of one plugin, not 3"),
        ("[stack]\nqqq = 'x'", "[stack] has no kind 'qqq'; kinds: attention, cache, "),
        ("qqqqq = 1", "there is no setting 'qqqqq'; `jackfield serve --help` lists all"),
        (
            "[stacks.a.stacks.b]",
            "stack 'a': there is no setting 'stacks': a stack holds no others; write [stacks.NAME] at the top",
        ),
        ("plugin = ['']", "plugin: a path is empty; name a file, or leave it out"),
        ("locked = ''", "locked: a path is empty"),
        (
            "[stack]\nmetrics = [[]]",
            "metrics[0]: [] is no use of a plugin: write its name, or { plugin = ..., as = ..., options",
        ),
        ("plugin = 3", "plugin: 3 is not valid: it must be a list"),
        ("page_size = 'x'", "page_size: 'x' is not valid: it must be a whole number"),
        ('page_size = "16"', "must be a whole number (without quotes)"),
        ("page_size = ", "is not valid TOML"),
        ("[stack]\npage_size = 3", "[stack] has no kind 'page_size': it is a setting, and stands above [stack]"),
        ("page_size = " + "[" * 3000, "is nested too deeply"),
        ("[stack]\nmetrics = [3]", "metrics"),
        (
            '[options."metrics.a"]\nx = 1\n[stack]\nmetrics = {plugin="a", options={x=2}}',
            "'x' of metrics.a is given twice",
        ),
        (
            '[stack]\nmetrics = [{plugin="a", options={x=1}}, {plugin="a", options={x=2}}]',
            'the instance \'a\' is there twice: give one of them another name, as { plugin = "a", as = "another-name" } does',
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_file(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text)
    assert said in caught.value.message
    assert f"stack file {tmp_path / 'stack.toml'}" in caught.value.message


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, "page_siz = 1\nprot = 2\n[stack]\natention = 'a'")
    assert "3 problems" in caught.value.message


def test_a_file_that_is_not_there_offers_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "mystack.toml").write_text("", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"no such file; did you mean 'mystack.toml'"):
        load_server_args({}, {}, tmp_path / "mystak.toml")
    with pytest.raises(ConfigurationError, match="no such file"):
        load_server_args({}, {}, tmp_path / "no" / "folder.toml")


def bad_files(folder: Path) -> dict[str, Any]:
    binary = folder / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    return {"is not UTF-8": binary, "cannot be read": folder}


@pytest.mark.parametrize("said", ["is not UTF-8", "cannot be read"])
def test_a_file_that_is_no_text(said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=said):
        load_server_args({}, {}, bad_files(tmp_path)[said])


def test_plugin_files_are_relative_to_the_file(tmp_path: Path) -> None:
    assert load(tmp_path, 'plugin = ["mine.py", "/else/where.py"]').plugin == (
        tmp_path / "mine.py",
        Path("/else/where.py"),
    )
    assert load(tmp_path, 'plugin = "sub/../mine.py"').plugin == (tmp_path / "mine.py",)
