"""The command line: what a typo gets, what --help says, and that every field has a flag that works."""

from __future__ import annotations

import argparse

import pytest

from jackfield.config.errors import ConfigurationError
from jackfield.config.fields import Shape, facts_of
from jackfield.config.flags import ArgumentParser, add_server_args, flags_again, parse_server_args
from jackfield.config.server_args import ServerArgs
from jackfield.config.sources import Provenance


def make_parser() -> ArgumentParser:
    parser = ArgumentParser(prog="jackfield")
    explain = parser.add_subparsers(dest="command").add_parser("explain")
    add_server_args(explain)
    return parser


def parse(*words: str) -> tuple[ServerArgs, Provenance]:
    return parse_server_args(make_parser().parse_args(["explain", *words]), {})


def explain_help(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "1000")
    parser = ArgumentParser(prog="jackfield serve")
    add_server_args(parser)
    return parser.format_help()


def test_an_empty_line_gives_the_defaults() -> None:
    args, provenance = parse()
    assert args == ServerArgs()
    assert set(provenance.values()) == {"default"}


def test_a_long_line() -> None:
    args, provenance = parse(
        *("--model-path", "m", "--page-size=16", "--attention-backend", "torch", "--debug", "--port", "0"),
        *("--metrics", "a", "--metrics", '{plugin = "a", as = "b"}', "--observer", "c,d"),
        *("--option", "attention.torch.x=1", "--option", "cache.radix.y=z", "--plugin-allow", "e"),
    )
    assert (args.model_path, args.page_size, args.attention_backend, args.debug, args.port) == (
        "m",
        16,
        "torch",
        True,
        0,
    )
    assert [use.instance for use in args.metrics] == ["a", "b"]
    assert [use.instance for use in args.observer] == ["c", "d"]
    assert args.options == {"attention.torch": {"x": 1}, "cache.radix": {"y": "z"}}
    assert args.plugin_allow == ("e",)
    assert provenance["page_size"] == "--page-size"
    assert provenance["options.cache.radix.y"] == "--option"


@pytest.mark.parametrize("flag", ["--tp", "--tp-size", "--tensor-parallel-size"])
def test_sglang_spellings(flag: str) -> None:
    args, provenance = parse(flag, "1")
    assert args.tp_size == 1
    assert provenance["tp_size"] == "--tp-size"


def test_a_switch_can_be_turned_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = make_parser().parse_args(["explain", "--no-skip-tokenizer-init"])
    args, provenance = parse_server_args(namespace, {"JACKFIELD_SKIP_TOKENIZER_INIT": "true"})
    assert args.skip_tokenizer_init is False
    assert provenance["skip_tokenizer_init"] == "--skip-tokenizer-init"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--page-siz", "3"], "unknown flag --page-siz; did you mean '--page-size'?"),
        (["--page-siz=3"], "unknown flag --page-siz; did you mean '--page-size'?"),
        (["--plugin", ""], "--plugin: '' holds an empty path"),
        (["--page_size", "3"], "unknown flag --page_size; did you mean '--page-size'?"),
        (["--model-p", "3"], "unknown flag --model-p; did you mean"),
        (["--zzz"], "unknown flag --zzz; --help lists all"),
        (["stray"], "unexpected argument 'stray'"),
        (["--port"], "--port"),
        (["--page-size", "0"], "--page-size: 0 is not valid: it must be greater than or equal to 1"),
        (["--max-total-tokens", "-5"], "--max-total-tokens: -5 is not valid"),
    ],
)
def test_a_typo_is_refused_with_the_nearest_flag(words: list[str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(*words)
    assert said in caught.value.message


def test_all_unknown_flags_are_named_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse("--page-siz", "3", "--prot", "4")
    assert "'--page-size'" in caught.value.message
    assert "'--port'" in caught.value.message


def test_a_misspelt_subcommand_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match="'explian' is not known; did you mean 'explain'"):
        make_parser().parse_args(["explian"])


@pytest.mark.parametrize("name", ServerArgs.model_fields)
def test_every_field_has_a_flag_with_its_default_in_the_help(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(ServerArgs)[name]
    text = explain_help(monkeypatch)
    assert facts.flag in text
    if facts.shape is Shape.SWITCH:
        assert "--no-" + facts.flag.removeprefix("--") in text
    # argparse breaks the lines behind a long flag.
    words = " ".join(text.split("\nModel:", 1)[1].split())
    _, _, behind = words.replace(",", "").partition(f"{facts.flag} ")
    shown = f"{facts.description} (default: {facts.default_text})" if facts.default_text else facts.description
    assert shown.replace(",", "") in behind


def test_the_help_is_grouped_and_says_what_is_not_a_field(monkeypatch: pytest.MonkeyPatch) -> None:
    text = explain_help(monkeypatch)
    headings = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings == [
        "options:",
        "Model:",
        "Serving:",
        "Keys:",
        "Scheduling and memory:",
        "Parallelism:",
        "Plugin stack:",
        "Constrained output:",
        "Observability:",
        "Faults and checks:",
        "Limits of a request:",
    ]
    assert "--stack FILE" in text
    assert "--option KIND.INSTANCE.FIELD=VALUE" in text
    assert "--topology {processes,inline}" in text
    assert "(default: 30000)" in text


def test_another_parser_may_carry_the_flags_too() -> None:
    # A tool that has its own argparse parser (a benchmark, say) gets the flags without our class.
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--rate")
    add_server_args(parser)
    args, _ = parse_server_args(parser.parse_args(["--rate", "3", "--page-size", "4"]), {})
    assert args.page_size == 4


@pytest.mark.parametrize(
    "words",
    [
        ("1", "2", "8"),
        ("1,2,8",),
        ("1,", "2,", "8"),
        ("1 2,8",),
        ("1", "--cuda-graph-bs", "2", "8"),
        ("1", "--cuda-graph-bs=2,8,"),
    ],
)
def test_a_list_of_numbers_is_written_with_spaces_or_commas(words: tuple[str, ...]) -> None:
    line = ["explain", "--cuda-graph-bs", *words, "--page-size", "4"]
    namespace = make_parser().parse_args(line)
    args, _ = parse_server_args(namespace, {})
    assert (args.cuda_graph_bs, args.page_size) == ((1, 2, 8), 4)
    assert parse(*flags_again(namespace))[0] == args


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("1", "0"), "--cuda-graph-bs[1]: 0 is not valid: it must be greater than or equal to 1"),
        (("-1",), "--cuda-graph-bs[0]: -1 is not valid: it must be greater than or equal to 1"),
        (("1", "two"), "--cuda-graph-bs[1]: 'two' is not valid: it must be a whole number"),
        (("1,,2",), "--cuda-graph-bs[1]: '' is not valid: it must be a whole number"),
        ((), "--cuda-graph-bs: expected at least one argument"),
        (("1", "--mem-fraction-static", "50%"), "--mem-fraction-static: '50%' is not a number; for a share write 0.5"),
        (("1", "--mem-fraction-static", "nan"), "--mem-fraction-static: nan is no share of the memory"),
        (("1", "--kv-cache-dtype", "fp8"), "did you mean 'fp8_e4m3' or 'fp8_e5m2'?"),
    ],
)
def test_a_number_that_is_none_is_named_with_its_place(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse("--cuda-graph-bs", *words)
    assert said in str(caught.value)
