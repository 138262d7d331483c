"""Several stacks in one file: FILE#NAME has what stands at the top level, and its own laid over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.server_args import ServerArgs
from jackfield.config.sources import load_server_args, option_folders, server_args_from_kwargs

FILE = """
page_size = 16
download_dir = "models"

[stack]
schedule_policy = "lpm"
attention = "torch"
metrics = ["prometheus", { plugin = "statsd", as = "near", options = { port = 1 } }]

[options."schedule_policy.lpm"]
max_queue = 64

[options."cache.radix"]
eviction = "lru"
deep = { a = 1, b = 1 }

[stacks.fair]
max_running_requests = 8

[stacks.fair.stack]
schedule_policy = "fair-share"
attention = { prefill = "flash", decode = "torch" }

[stacks.fair.options."cache.radix"]
deep = { b = 2 }

[stacks.two-sinks]
page_size = 1
download_dir = "other"

[stacks.two-sinks.stack]
metrics = [{ plugin = "statsd", as = "near" }, { plugin = "statsd", as = "far", options = { port = 3 } }]

[stacks.two-sinks.options."metrics.near"]
port = 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "stacks.toml"
    path.write_text(FILE)
    return path


def load(stack: str, **values: str) -> ServerArgs:
    return load_server_args(values, {}, stack)[0]


def refused(stack: str | Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_server_args({}, {}, stack)
    return str(caught.value)


def test_without_a_name_the_top_level_is_the_stack(file: Path) -> None:
    args = load(str(file))
    assert (args.page_size, args.schedule_policy, args.attention_backend) == (16, "lpm", "torch")
    assert args.max_running_requests is None


@pytest.mark.goal_row(5)
def test_a_named_stack_is_laid_over_the_top_level(file: Path) -> None:
    args, provenance = load_server_args({}, {}, f"{file}#fair")
    assert (args.page_size, args.max_running_requests, args.schedule_policy) == (16, 8, "fair-share")
    assert (args.attention_backend, args.prefill_attention_backend, args.decode_attention_backend) == (
        None,
        "flash",
        "torch",
    )
    assert args.options["cache.radix"] == {"eviction": "lru", "deep": {"a": 1, "b": 2}}
    # The policy that it replaced went with its options, which would now be without effect.
    assert "schedule_policy.lpm" not in args.options
    assert provenance["page_size"] == f"stack file {file}"
    assert provenance["max_running_requests"] == f"stack file {file}, stack 'fair'"


@pytest.mark.goal_row(5)
def test_uses_keep_their_order_and_their_options(file: Path) -> None:
    args = load(f"{file}#two-sinks")
    assert [(use.plugin, use.instance) for use in args.metrics] == [("statsd", "near"), ("statsd", "far")]
    assert args.options_for("metrics", "near") == {"port": 2}
    assert args.options_for("metrics", "far") == {"port": 3}
    assert args.download_dir == file.parent / "other"


def test_the_name_comes_the_same_way_from_everywhere(file: Path) -> None:
    named = f"{file}#fair"
    assert load_server_args({}, {"JACKFIELD_STACK": named}, None)[0].schedule_policy == "fair-share"
    assert server_args_from_kwargs({"stack": named}, {})[0].schedule_policy == "fair-share"
    assert load(named, schedule_policy="fcfs").schedule_policy == "fcfs"


def test_a_misspelt_name_is_refused_with_those_that_there_are(file: Path) -> None:
    assert "there is no stack 'fiar' in it; did you mean 'fair'?" in refused(f"{file}#fiar")
    assert "there is no stack 'zzz' in it; it has: fair, two-sinks" in refused(f"{file}#zzz")
    assert "write FILE#NAME, or FILE alone" in refused(f"{file}#")


def test_a_file_of_named_stacks_alone_wants_a_name(tmp_path: Path) -> None:
    file = tmp_path / "stacks.toml"
    file.write_text("[stacks.a]\nport = 1\n[stacks.b]\nport = 2\n")
    assert "it has only named stacks; choose one with" in refused(file)
    assert "a, b" in refused(file)
    assert load(f"{file}#b").port == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("port = 1\n[stacks.a]\nprot = 1", "stack 'a': there is no setting 'prot'; did you mean 'port'"),
        ("port = 1\n[stacks.a.stacks.b]\nport = 1", "stack 'a': there is no setting 'stacks'"),
        ('port = 1\n[stacks.a.stack]\ncahe = "x"', "stack 'a': [stack] has no kind 'cahe'; did you mean 'cache'"),
        ("port = 1\nstacks = 3", "write [stacks.NAME]"),
        ("port = 1\nstacks.a = 3", "write [stacks.NAME]"),
        ("[stack.fair]\nport = 1", "[stack] has no kind 'fair'"),
        ("[stakcs.fair]\nport = 1", "did you mean 'stacks'"),
    ],
)
def test_every_stack_of_a_file_is_looked_at(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "stacks.toml"
    file.write_text(text)
    assert said in refused(file)


def test_a_file_without_named_stacks_and_one_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "plain.toml"
    file.write_bytes(b"\xef\xbb\xbfmax_skips = 3\n")
    assert load_server_args({}, {}, file)[0].max_skips == 3
    assert "there is no stack 'fair' in it; it has none: write [stacks.fair]" in refused(f"{file}#fair")


def test_a_file_may_have_the_separator_in_its_own_name(tmp_path: Path) -> None:
    file = tmp_path / "a#b.toml"
    file.write_text("port = 1\n[stacks.c]\nport = 2\n")
    assert load(str(file)).port == 1
    assert load(f"{file}#c").port == 2


def test_which_options_count_from_the_files_folder(file: Path) -> None:
    """Those that the file gave, and not what a later source put over them."""
    line = {"options": ["cache.radix.deep.a=7"]}
    environ = {"JACKFIELD_OPTIONS": '{"metrics.near" = {port = 9}}'}
    _, provenance = load_server_args(line, environ, f"{file}#fair")
    folder = str(file.parent)
    assert option_folders(provenance, "cache.radix") == {"eviction": folder, "deep.b": folder}
    assert option_folders(provenance, "metrics.near") == {}
