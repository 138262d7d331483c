"""`jackfield why`: against a server of one answer, and from a file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jackfield.entrypoints.cli import main
from jackfield.testing.scheduler_harness import SchedulerHarness


def answer(rid: str) -> dict[str, Any]:
    """What a scheduler tells of a finished request of this id."""
    harness = SchedulerHarness()
    harness.submit([1, 2, 3], rid=rid, max_new_tokens=2)
    harness.run()
    return harness.scheduler.why(rid)


class Stub(ThreadingHTTPServer):
    """body, status: what it answers; asked: (path, Authorization) of each request."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body = status, body
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Stub)
        server.asked.append((self.path, self.headers.get("authorization")))
        self.send_response(server.status)
        self.send_header("content-length", str(len(server.body)))
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def stub(request: pytest.FixtureRequest) -> Iterator[Stub]:
    status, body = request.param
    with Stub(status, body if isinstance(body, bytes) else json.dumps(body).encode()) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


FOUND = [(200, {**answer("a/b c"), "story": []})]


@pytest.mark.parametrize("stub", FOUND, indirect=True)
def test_words(stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "a/b c", "--url", stub.url + "/", "--api-key", "sk-1"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Request a/b c (number 1): finished"
    assert "first token, by step 1" in "\n".join(out)
    assert stub.asked == [("/requests/a%2Fb%20c/why", "Bearer sk-1")]


@pytest.mark.parametrize("stub", FOUND, indirect=True)
def test_json(stub: Stub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JACKFIELD_API_KEY", "plain")
    monkeypatch.setenv("JACKFIELD_ADMIN_API_KEY", "admin")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert main(["why", "x", "--url", stub.url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer("a/b c")
    assert stub.asked == [("/requests/x/why", "Bearer admin")]


REFUSALS = [
    ((404, {"error": {"message": "No request 'x' is known here."}}), "No request 'x' is known here."),
    ((403, {"error": {"message": "this key may not use admin routes"}}), "this key may not use admin routes"),
    ((404, b"<html>"), "the server answered 404 Not Found; is it a Jackfield server?"),
]


@pytest.mark.parametrize(("stub", "words"), REFUSALS, indirect=["stub"])
def test_the_servers_words_are_told(stub: Stub, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "x", "--url", stub.url]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"jackfield: {words}\n")


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with Stub(200, b"") as gone:
        url = gone.url
    assert main(["why", "x", "--url", url]) == 1
    assert f"no server answers at {url}" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["localhost:30000", "file:///etc/passwd", ""])
def test_an_address_that_is_none(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "x", "--url", url or "x"]) == 2
    assert "is no address" in capsys.readouterr().err


def test_a_recorded_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lives.jsonl"
    lives = [answer(rid)["requests"][0] for rid in ("a", "b")]
    file.write_text("".join(json.dumps(life) + "\n" for life in lives))
    assert main(["why", "b", "--record", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Request b (number 1): finished\n")
    assert "Request a" not in out
    assert main(["why", "b", "--record", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"requests": [lives[1]]}
    assert main(["why", "c", "--record", str(file)]) == 1
    assert f"no request 'c' is in {file}, which holds 2 that ended" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{}\n", "no json\n", b"\xff\xfe\n", '{"events": 3}\n', "[]\n"])
def test_a_file_that_is_no_record(content: str | bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "lives.jsonl"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["why", "c", "--record", str(file)]) == 2
    assert str(file) in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "c", "--record", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err
