"""`jackfield chat` without a model: messages out of lines, blocks of Markdown, parameters, commands, a terminal."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from jackfield.config.errors import ConfigurationError
from jackfield.entrypoints.cli.chat_backend import End, Piece
from jackfield.entrypoints.cli.chat_commands import COMMANDS, Chat, Numbers
from jackfield.entrypoints.cli.chat_conversation import Conversation
from jackfield.entrypoints.cli.chat_lines import Blocks, harmless, read_message
from jackfield.entrypoints.cli.chat_params import DEFAULTS, Params
from jackfield.entrypoints.cli.chat_pipe import through_a_pipe
from jackfield.entrypoints.cli.chat_terminal import on_a_terminal
from jackfield.managers.errors import RequestError


class Scripted:
    """Answers one script after the other: texts, pieces, and exceptions that are raised in between."""

    model = "scripted"

    def __init__(self, *scripts: Sequence[Any]) -> None:
        self._scripts = iter(scripts)
        self.asked: list[list[dict[str, Any]]] = []
        self.params: list[Mapping[str, Any]] = []
        self.closed = 0

    def ask(self, messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Iterator[Piece | End]:
        self.asked.append([dict(message) for message in messages])
        self.params.append(params)
        try:
            for step in next(self._scripts):
                if isinstance(step, BaseException):
                    raise step
                yield Piece(step) if isinstance(step, str) else step
            yield End(finish="stop", prompt_tokens=10, cached_tokens=4, completion_tokens=3)
        finally:
            self.closed += 1

    def stack(self) -> list[tuple[str, str]]:
        return [("worker", "scripted")]

    def close(self) -> None: ...


def chat(*scripts: Sequence[Any]) -> tuple[Chat, Scripted]:
    backend = Scripted(*scripts)
    ticks = iter(range(10_000))
    return Chat(backend, Conversation(), Params(remote=False), clock=lambda: float(next(ticks))), backend


def talk(one: Chat, *typed: Any, plain: bool = False, quiet: bool = False) -> str:
    """What a terminal shows when this is typed; an exception is raised at the prompt."""
    lines = iter(typed)

    def read(prompt: str) -> str:
        line = next(lines, EOFError())
        if isinstance(line, BaseException):
            raise line
        return str(line)

    out = io.StringIO()
    console = Console(
        file=out, force_terminal=True, width=100, height=20, color_system=None, markup=False, highlight=False
    )
    assert on_a_terminal(one, plain=plain, quiet=quiet, history=None, read=read, console=console) == 0
    return out.getvalue()


# Lines and blocks


def messages_of(*lines: str) -> list[str]:
    rest = iter(lines)

    def line(more: bool) -> str:
        try:
            return next(rest)
        except StopIteration:
            raise EOFError from None

    found = []
    while True:
        try:
            found.append(read_message(line))
        except EOFError:
            return found


@pytest.mark.parametrize(
    ("lines", "messages"),
    [
        (["one", "two"], ["one", "two"]),
        (["one\\", "two\\", "three", "four"], ["one\ntwo\nthree", "four"]),
        (["one\\"], ["one"]),
        (['"""', "a", "", "b", '"""', "c"], ["a\n\nb", "c"]),
        (['"""a', 'b"""', "c"], ["a\nb", "c"]),
        (['"""a"""'], ["a"]),
        (['"""', "a"], ["a"]),
        ([""], [""]),
    ],
)
def test_a_message_may_have_several_lines(lines: list[str], messages: list[str]) -> None:
    assert messages_of(*lines) == messages


MARKDOWN = """# Title

A paragraph
of two lines.

- one

  below one

- two

1. first

2. second

```python
x = 1

y = 2
```

~~~~
``` inside

~~~
still
~~~~

The end."""


def test_blocks_end_where_markdown_may_be_cut() -> None:
    blocks = Blocks()
    done = blocks.feed(MARKDOWN + "\n")
    starts = [block.split("\n")[0] for block in [*done, blocks.rest]]
    assert starts == ["# Title", "A paragraph", "```python", "~~~~", "The end."]
    assert "y = 2" in done[2]
    assert "still" in done[3]
    assert "- two" in done[1] and "2. second" in done[1]  # noqa: PT018 - the lists go on


@given(text=st.text(alphabet="ab`~- \n1.", max_size=120) | st.just(MARKDOWN), data=st.data())
def test_blocks_do_not_depend_on_how_the_text_comes(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    whole, parts = Blocks(), Blocks()
    expected = whole.feed(text)
    found = [
        block
        for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)
        for block in parts.feed(text[begin:end])
    ]
    assert (found, parts.rest) == (expected, whole.rest)
    # Nothing is lost but empty lines in front.
    assert "\n".join([*found, parts.rest]).strip("\n") == text.strip("\n") or not text.strip()


def test_a_model_cannot_speak_to_the_terminal() -> None:
    assert harmless("a\x1b[2J\x07b\r\x9b31mc\td\n\u2028é") == "a[2Jb31mc\td\n\u2028é"


# Parameters and files


def test_parameters_are_checked_when_they_are_set() -> None:
    params = Params(remote=False)
    for written in ("temperature=0.5", "stop=END", 'stop=["a","b"]', "top-p = 0.9", "seed=7"):
        params.set(written)
    assert params.values == {**DEFAULTS, "temperature": 0.5, "stop": ["a", "b"], "top_p": 0.9, "seed": 7}
    again = Params(remote=False)
    for written in params.written():
        again.set(written)
    assert again.values == params.values
    params.set("temperature=")
    assert "temperature" not in params.values
    for bad, said in (
        ("temperature=hot", "temperature must be"),
        ("max_tokens=-1", "max_tokens must be"),
        ("temprature=1", "did you mean"),
        ("n=2", "there is no parameter 'n'"),
        ("temperature", "NAME=VALUE"),
        ("reasoning_effort=low", "there is no parameter"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            params.set(bad)
    assert Params.native({"max_tokens": 3, "top_k": 1}) == {"max_new_tokens": 3, "top_k": 1}
    Params(remote=True).set("reasoning_effort=low")


def test_a_conversation_is_saved_and_loaded(tmp_path: Path) -> None:
    one, _ = chat(["Hi"])
    talk(one, "/system Be brief.", "hello", "/params temperature=0", f"/save {tmp_path / 'c.json'}")
    other, backend = chat(["again"])
    shown = talk(other, f"/load {tmp_path / 'c.json'}", "and now?")
    assert "2 messages loaded" in shown
    assert backend.asked == [
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "and now?"},
        ]
    ]
    assert backend.params == [{**DEFAULTS, "temperature": 0}]


F = '{"format": "jackfield-chat-1"'


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        F + "}",
        F + ', "messages": [{"role": "system"}]}',
        F + ', "messages": [], "params": [1]}',
        F + ', "messages": [], "system": 5}',
    ],
)
def test_what_is_no_conversation_changes_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text(content)
    conversation = Conversation()
    conversation.ask("kept")
    with pytest.raises(ConfigurationError, match=r"c\.json"):
        conversation.load(tmp_path / "c.json")
    with pytest.raises(ConfigurationError, match=r"nope\.json"):
        conversation.load(tmp_path / "nope.json")
    assert conversation.turns == [{"role": "user", "content": "kept"}]
    with pytest.raises(ConfigurationError, match="cannot be written"):
        conversation.save(tmp_path / "no" / "c.json", model="m", params=[])


# Commands and answers


def test_turns_are_sent_back() -> None:
    one, backend = chat(["An", "swer"], ["Two"])
    shown = talk(one, "first", "//second", "", "   ", "/quit", "never read")
    assert [message["content"] for message in backend.asked[1]] == ["first", "Answer", "/second"]
    assert "Answer" in shown
    assert "3 tokens" in shown
    assert "10 prompt tokens (4 cached)" in shown


def test_regenerate_undo_and_clear() -> None:
    one, backend = chat(["A"], ["B"], ["C"], ["D"])
    shown = talk(one, "/regenerate", "/undo", "q1", "/regenerate", "q2", "/undo", "q3", "/clear")
    assert [[message["content"] for message in asked] for asked in backend.asked] == [
        ["q1"],
        ["q1"],
        ["q1", "B", "q2"],
        ["q1", "B", "q3"],
    ]
    assert "there is no question to answer again" in shown
    assert "there is nothing to take back" in shown
    assert "taken back: q2" in shown
    assert one.conversation.turns == []


def test_every_command_is_in_the_help_and_a_misspelt_one_is_named() -> None:
    one, _ = chat(["hi"])
    shown = talk(one, "/help", "/hlep", "/stats", "/stack", "/params", "/load", "q", "/stats")
    for name in COMMANDS:
        assert f"/{name}" in shown
    assert "did you mean" in shown
    assert "not told" in shown
    assert "worker  scripted" in shown
    assert "/load needs the name of a file" in shown
    assert "completion tokens  3" in shown


def test_ctrl_c_stops_the_answer_and_keeps_what_came() -> None:
    one, backend = chat(["A part", KeyboardInterrupt()], [KeyboardInterrupt()], ["All"])
    shown = talk(one, "q1", KeyboardInterrupt(), "q2", "/regenerate")
    assert one.conversation.turns[1] == {"role": "assistant", "content": "A part"}
    assert "stopped" in shown
    assert "stopped before it began" in shown
    assert [message["content"] for message in backend.asked[2]] == ["q1", "A part", "q2"]
    assert backend.closed == 3


def test_a_failure_leaves_the_question() -> None:
    one, backend = chat([RequestError("too long")], ["fine"], ["part", RequestError("lost")])
    shown = talk(one, "q1", "q2", "q3")
    assert "too long" in shown and "lost" in shown and "part" in shown  # noqa: PT018
    assert [message["content"] for message in backend.asked[1]] == ["q2"], "q2 takes the place of what was not answered"
    assert one.conversation.turns[-1] == {"role": "assistant", "content": "part"}


def test_markdown_is_rendered_and_reasoning_kept_apart() -> None:
    one, _ = chat(
        [Piece("I wonder", reasoning=True), "# Head\n\n*slanted* and `code`\n\n", "| a |\n|---|\n| 7 |\n", "\x1b[2Jx"]
    )
    shown = talk(one, "q")
    assert "I wonder" in shown
    assert "*slanted*" not in shown.split("\r")[-1]
    assert "slanted and code" in shown
    assert "\x1b[2Jx" not in shown
    assert "I wonder" not in one.conversation.turns[-1]["content"]
    assert one.conversation.turns[-1]["content"].startswith("# Head")


def test_plain_shows_the_text_as_it_is() -> None:
    one, _ = chat(["**bold** ", "\x1b[31mred"])
    shown = talk(one, "q", plain=True, quiet=True)
    assert "**bold** [31mred\n" in shown
    assert "\x1b" not in shown
    assert "prompt tokens" not in shown


def test_the_numbers_of_an_answer() -> None:
    numbers = Numbers(first_s=0.5, total_s=2.5, end=End(finish="length", prompt_tokens=1, completion_tokens=9))
    assert numbers.tokens_per_s == 4.0
    assert numbers.line() == "9 tokens | 4.0 tokens/s | first after 0.50 s | 1 prompt token | ended by length"
    assert Numbers(total_s=1.0).line() == "stopped"
    assert Numbers(first_s=1.0, total_s=1.0, end=End(finish="stop", completion_tokens=1)).tokens_per_s is None


def test_a_pipe_has_one_question_a_line_and_plain_answers(capsys: pytest.CaptureFixture[str]) -> None:
    one, backend = chat(["**A**"], [Piece("hm", reasoning=True), "B"])
    out = io.StringIO()
    asked = io.StringIO('q1\n\n/params top_k=5\n"""\nq2\nmore\n"""\n')
    assert through_a_pipe(one, asked, out, quiet=False) == 0
    assert out.getvalue() == "**A**\nmax_tokens=1024\ntop_k=5\nB\n"
    assert [message["content"] for message in backend.asked[1]] == ["q1", "**A**", "q2\nmore"]
    assert capsys.readouterr().err.count("10 prompt tokens") == 2


def test_a_pipe_ends_with_the_first_failure() -> None:
    one, backend = chat([RequestError("no")], ["never"])
    with pytest.raises(RequestError):
        through_a_pipe(one, io.StringIO("q1\nq2\n"), io.StringIO(), quiet=True)
    with pytest.raises(ConfigurationError):
        through_a_pipe(one, io.StringIO("/nope\nq2\n"), io.StringIO(), quiet=True)
    assert len(backend.asked) == 1


def test_a_pipe_may_end_the_chat() -> None:
    one, backend = chat(["never"])
    assert through_a_pipe(one, io.StringIO("/quit\nq\n"), io.StringIO(), quiet=True) == 0
    assert backend.asked == []


def test_the_saved_file_is_json(tmp_path: Path) -> None:
    conversation = Conversation()
    conversation.ask("é")
    conversation.save(tmp_path / "c", model="m", params=["top_k=1"])
    assert json.loads((tmp_path / "c").read_text()) == {
        "format": "jackfield-chat-1",
        "model": "m",
        "system": None,
        "params": ["top_k=1"],
        "messages": [{"role": "user", "content": "é"}],
    }
