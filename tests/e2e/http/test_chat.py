"""`jackfield chat` with an engine in this process, with a server, and on a real terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from jackfield.entrypoints.cli import main
from jackfield.entrypoints.cli.chat_backend import End, Piece
from jackfield.entrypoints.cli.chat_remote import RemoteBackend, _events
from jackfield.managers.errors import RequestError
from tests.e2e.http.servers import DEADLINE, SIMULATED, SLOW, Server, script, serving

KEY = "sk-for-the-chat"
ANSWER = "The sea is blue."


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    flags = ("--topology", "inline", "--api-key", KEY, "--admin-api-key", "sk-for-admins", "--max-total-tokens", "4000")
    with serving(*SIMULATED, *script(ANSWER), *flags, check=False) as up:
        yield up


def piped(monkeypatch: pytest.MonkeyPatch, lines: str, *flags: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    return main(["chat", *flags])


LOCAL = ("--worker", "simulated", *script(ANSWER, "It is wide."))


def test_piped_questions_are_answered_in_this_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "What colour?\nAnd how wide?\n/stack\n"
    assert piped(monkeypatch, lines, *LOCAL, "--param", "temperature=0", "--system", "Be brief.") == 0
    shown = capsys.readouterr()
    first, second, *stack = shown.out.splitlines()
    assert (first, second) == (ANSWER, "It is wide.")
    assert any(re.match(r"worker +simulated \(jackfield-worker-simulated", row) for row in stack)
    numbers = [re.search(r"(\d+) prompt tokens \((\d+) cached\)", line) for line in shown.err.splitlines()]
    told = [tuple(map(int, found.groups())) for found in numbers if found is not None]
    assert len(told) == 2
    assert told[1][1] >= told[0][0] - 1, "the second turn's prompt begins with the first turn, which is cached"


def test_what_the_model_thinks_is_no_part_of_the_conversation_in_this_process_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--worker", "simulated", *script("<think>Hm.</think>" + ANSWER), "--reasoning-parser", "think")
    assert piped(monkeypatch, "What colour?\n", *flags) == 0
    assert capsys.readouterr().out == ANSWER + "\n"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--worker", "nope"), "nope"),
        (("--skip-tokenizer-init",), "needs the model's tokenizer"),
        (("--param", "temperature=hot"), "temperature must be"),
        (("--url", "http://127.0.0.1:1", "--worker", "simulated"), "leave out --worker"),
        (("--url", "127.0.0.1:1"), "is no address"),
        (("--load", "nope.json"), "nope.json"),
    ],
)
def test_what_cannot_be_is_told_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    assert piped(monkeypatch, "hello\n", *flags) == 2
    assert said in capsys.readouterr().err


def test_a_prompt_that_does_not_fit_ends_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert piped(monkeypatch, "word " * 9000 + "\nnext\n", *LOCAL) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "context length" in shown.err


# With a server


def test_piped_questions_are_answered_by_a_server(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert piped(monkeypatch, "What colour?\n/stack\n", "--url", server.url, "--api-key", KEY) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == ANSWER
    assert "jackfield-worker-simulated" in shown.out
    assert re.search(r"\d+ tokens \| .* prompt tokens \(\d+ cached\)", shown.err)
    monkeypatch.setenv("JACKFIELD_API_KEY", KEY)
    assert piped(monkeypatch, "Again?\n", "--url", f"{server.url}/v1/", "--quiet") == 0
    assert capsys.readouterr().out == ANSWER + "\n"


def test_a_server_that_refuses_is_told_in_its_own_words(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for flags, said in (
        ((), "a valid key is needed"),
        (("--api-key", KEY, "--served-model-name", "other"), "is not served here"),
        (("--api-key", KEY, "--param", "temperature=0", "--param", "logit_bias={}"), ANSWER),
    ):
        code = piped(monkeypatch, "hello\n", "--url", server.url, *flags)
        shown = capsys.readouterr()
        assert said in shown.err + shown.out
        assert (code == 0) is (said == ANSWER)


def test_no_server(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert piped(monkeypatch, "hello\n", "--url", "http://127.0.0.1:9") == 1
    assert "no server answers at http://127.0.0.1:9" in capsys.readouterr().err


def test_an_answer_that_is_closed_ends_the_request(server: Server) -> None:
    backend = RemoteBackend(server.url, KEY, None)
    assert backend.model == "SmolLM2-135M-Instruct"
    answer = backend.ask([{"role": "user", "content": "hello"}], {"max_tokens": 50})
    assert isinstance(next(answer), Piece)
    answer.close()  # type: ignore[attr-defined]
    *_, end = backend.ask([{"role": "user", "content": "hello"}], {"max_tokens": 2})
    assert isinstance(end, End)
    assert (end.finish, end.completion_tokens) == ("length", 2)
    with pytest.raises(RequestError, match="max_tokens") as refused:
        list(backend.ask([{"role": "user", "content": "hello"}], {"max_tokens": -1}))
    assert refused.value.status_code == 400
    backend.close()


class Other:
    """A server of another make, or a broken one."""

    def __init__(self, *chunks: str, status: int = 200) -> None:
        self._chunks, self._status = chunks, status

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "theirs"}]})
        return httpx.Response(self._status, content=(chunk.encode() for chunk in self._chunks))


def answers(monkeypatch: pytest.MonkeyPatch, server: Other) -> list[Piece | End]:
    make = httpx.Client
    transport = httpx.MockTransport(server)
    monkeypatch.setattr(httpx, "Client", lambda **options: make(**options, transport=transport))
    backend = RemoteBackend("http://other", None, None)
    assert backend.model == "theirs"
    return list(backend.ask([], {}))


def data(**delta: Any) -> str:
    return "data: " + json.dumps({"choices": [{"delta": delta}]}, ensure_ascii=False) + "\n\n"


def test_other_servers_need_not_tell_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = (
        ": a comment\r\n\r\n"
        + data(role="assistant", content=None)
        + data(reasoning_content="hm")
        + data(content="é😀\u2028")
        + 'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\ndata: {"choices": []}\n\ndata: [DONE]\n\n'
    )
    expected = [Piece("hm", reasoning=True), Piece("é😀\u2028"), End(finish="stop")]
    assert answers(monkeypatch, Other(whole)) == expected
    for size in (1, 2, 7):
        events = list(_events(whole[i : i + size] for i in range(0, len(whole), size)))
        assert events == list(_events(iter([whole])))


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (Other("data: {nonsense}\n\n"), "no event"),
        (Other('data: {"error": {"message": "it broke"}}\n\n'), "it broke"),
        (Other('{"error": "plain words"}', status=400), "plain words"),
        (Other("<html>", status=502), "502 Bad Gateway"),
        (Other("data: " + "x" * (9 * 2**20)), "without an end"),
    ],
)
def test_what_a_server_does_wrong_is_told(monkeypatch: pytest.MonkeyPatch, server: Other, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        answers(monkeypatch, server)


# On a terminal


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, *command: str) -> None:
        self._end, inner = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=lambda: _own(inner),
            env={
                **os.environ,
                "TERM": "xterm",
                "OMP_NUM_THREADS": "1",
                "COLUMNS": "100",
                "LINES": "30",
            },
        )
        os.close(inner)

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def wait_for(self, pattern: str) -> str:
        """What is shown until the pattern is, colours left out; it is not looked at again."""
        deadline = time.monotonic() + DEADLINE
        while True:
            plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown)
            if (found := re.search(pattern, plain)) is not None:
                self.shown = plain[found.end() :]
                return plain[: found.end()]
            assert time.monotonic() < deadline, self.shown
            ready, _, _ = select.select([self._end], [], [], 1.0)
            if ready:
                self.shown += os.read(self._end, 65536).decode("utf-8", "replace")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)
        os.close(self._end)


def _own(inner: int) -> None:
    """The terminal is the program's own, so that Ctrl-C reaches it."""
    import fcntl
    import termios

    fcntl.ioctl(inner, termios.TIOCSCTTY, 0)


def test_a_talk_on_a_terminal(tmp_path: Path) -> None:
    long = "word " * 400
    history = tmp_path / "new" / "history"
    terminal = Terminal(
        sys.executable, "-m", "jackfield", "chat", *SIMULATED, *SLOW,
        *script("**Short** answer", long, "after that"), "--history", str(history),
    )  # fmt: skip
    try:
        terminal.wait_for(r"SmolLM2-135M-Instruct \| /help[^>]*> ")
        terminal.type("hello\n")
        shown = terminal.wait_for(r"(?s)Short answer.*tokens/s \| first after .*\(\d+ cached\)[^>]*> ")
        assert "**Short**" not in shown
        terminal.type("a long one\n")
        terminal.wait_for("word word")
        terminal.type("\x03")
        terminal.wait_for(r"(?s)stopped[^>]*> ")
        terminal.type("half a line")
        terminal.wait_for("half a line")
        terminal.type("\x03")  # at the prompt it drops the line
        terminal.wait_for(r"\n[^>]*> ")  # a prompt of its own: what is typed before it would be dropped too
        terminal.type("go on\n")
        terminal.wait_for(r"(?s)after that.*cached\)[^>]*> ")
        terminal.type("/stats\n")
        terminal.wait_for(r"(?s)answers +3.*last answer[^>]*> ")
        terminal.type("\x04")
        assert terminal.process.wait(DEADLINE) == 0
    finally:
        terminal.close()
    if history.exists():  # a Python without readline keeps none
        assert "a long one" in history.read_text()
        assert history.stat().st_mode & 0o077 == 0
