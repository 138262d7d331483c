"""`jackfield bench serve` against a scripted server, whose clock makes the figures exact, and against one of our own."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jackfield.entrypoints.bench import client, serving
from jackfield.entrypoints.cli import main
from tests.e2e.scripted_endpoint import DONE, Answer, Clock, Endpoint, answered, chunk

ONE_ROUND = ("--wait", "0", "--repeat", "1", "--requests", "4", "--prompt-tokens", "6", "--new-tokens", "4")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(client, "time", SimpleNamespace(perf_counter=clock))
    return clock


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["bench", "serve", *words, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def only(found: dict[str, Any]) -> dict[str, Any]:
    """The only round of the only load."""
    ((number,),) = [point["rounds"] for point in found["loads"]]
    one: dict[str, Any] = number
    return one


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["bench", "serve", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


def test_the_figures_are_exact(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """A first token after 500 ms, two together after 200 ms more, one after 300 ms, the end of the stream 250 ms later."""
    script = Answer(
        (0.5, chunk("a", 1)),
        (0.2, chunk("b", 2) + chunk("c", 3)),
        (0.3, chunk("d", 4, "length")),
        (0.0, DONE),
        end=0.25,
    )
    with Endpoint(clock, lambda number, body: script, {}) as server:
        found = told(
            capsys, "--base-url", server.url + "/v1", *ONE_ROUND, "--max-e2e-ms", "1250.001", "--max-tpot-ms", "200"
        )
        bodies = [body for path, body in server.asked if path == "/v1/completions"]
        assert len(bodies) == len(server.asked) == 4 + 4
    one = only(found)
    assert (one["requests"], one["completed"], one["failures"], one["short_answers"]) == (4, 4, {}, 0)
    assert one["seconds"] == pytest.approx(4 * 1.25)
    assert (one["output_tokens"], one["prompt_tokens"]) == (16, 20)
    assert one["output_tokens_per_s"] == pytest.approx(16 / 5)
    assert one["total_tokens_per_s"] == pytest.approx(36 / 5)
    for percentile in ("p50", "p90", "p99"):
        assert one["ttft_ms"][percentile] == pytest.approx(500)
        assert one["tpot_ms"][percentile] == pytest.approx(500 / 3)
        assert one["e2e_ms"][percentile] == pytest.approx(1250)
    assert (one["itl_ms"]["p50"], one["itl_ms"]["p99"]) == (pytest.approx(100), pytest.approx(300))
    assert (one["gap_ms"]["p50"], one["gap_ms"]["p99"]) == (pytest.approx(200), pytest.approx(300))
    assert one["tokens_per_arrival"] == pytest.approx(4 / 3)
    assert one["counted_by"] == {"usage of each chunk": 4}
    assert one["goodput_per_s"] == pytest.approx(4 / 5)
    assert one["client_cpu_share"] > 0
    assert found["loads"][0]["results"]["itl_ms_p50"]["rounds"] == [pytest.approx(100)]
    assert (found["stack"], found["args"], found["model"], found["api"]) == (
        None,
        None,
        "scripted",
        "openai-completions",
    )
    # What was asked: ids, others for each request, those of the warm-up too.
    assert {len(body["prompt"]) for body in bodies} == {6}
    assert len({tuple(body["prompt"]) for body in bodies}) == 8
    same = {"model": "scripted", "max_tokens": 4, "temperature": 0, "stream": True, "ignore_eos": True}
    assert same.items() <= bodies[-1].items()
    assert bodies[-1]["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_times_count_from_when_a_request_was_due(
    clock: Clock, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Three are due at once, and the server answers one after the other."""
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"arrival_s": 0, "prompt": [5], "new_tokens": 1}\n' * 3)
    lock = threading.Lock()

    class OneByOne(Endpoint):
        def _send(self, *words: Any) -> None:
            with lock:
                super()._send(*words)

    with OneByOne(clock, lambda number, body: answered([0.5]), {}) as server:
        one = only(told(capsys, "--base-url", server.url, "--wait", "0", "--repeat", "1", "--trace", str(trace)))
    assert one["completed"] == 3
    assert one["ttft_ms"]["max"] == pytest.approx(1500)
    assert one["seconds"] == pytest.approx(1.5)


def test_many_streams_and_several_loads(capsys: pytest.CaptureFixture[str]) -> None:
    with Endpoint(None, lambda number, body: answered([0.0] * body["max_tokens"]), {}) as server:
        words = [
            "--base-url",
            server.url,
            *ONE_ROUND,
            "--new-tokens",
            "2:5",
            "--concurrency",
            "2,16",
            "--requests",
            "24",
        ]
        found = told(capsys, *words)
        bodies = [body for _, body in server.asked]
    assert [point["load"] for point in found["loads"]] == [
        {"mode": "closed", "value": 2},
        {"mode": "closed", "value": 16},
    ]
    for point in found["loads"]:
        (one,) = point["rounds"]
        assert (one["completed"], one["failures"], one["short_answers"]) == (24, {}, 0)
    assert found["loads"][0]["rounds"][0]["output_tokens"] == sum(body["max_tokens"] for body in bodies[8:32])
    assert {body["max_tokens"] for body in bodies} == {2, 3, 4, 5}


def test_failures_are_counted_by_kind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    error = b'data: {"error": {"message": "out of memory"}}\n\n'
    script = {
        0: answered([0.0] * 4),
        1: Answer((0.0, b'{"error": {"message": "too many requests"}}'), status=429),
        2: Answer((0.0, chunk("a", 1)), (0.0, error)),
        3: Answer((0.0, chunk("a", 1)), reset=True),
        4: Answer((0.0, b'{"detail": "overloaded"}'), status=503),
        5: Answer((0.0, b'{"detail": "overloaded again"}'), status=503),
        6: answered([0.0] * 3),
    }
    with Endpoint(None, lambda number, body: script[number % 7], {}) as server:
        words = ["--base-url", server.url, *ONE_ROUND, "--requests", "7"]
        assert main(["bench", "serve", *words, "--json", str(tmp_path / "told.json")]) == 0
    shown = capsys.readouterr().out
    one = only(json.loads((tmp_path / "told.json").read_text()))
    assert {kind: failure["count"] for kind, failure in one["failures"].items()} == {
        "HTTP 429": 1,
        "HTTP 503": 2,
        "error in the stream": 1,
        "broken off": 1,
    }
    assert one["failures"]["HTTP 503"]["first"] == "overloaded"
    assert (one["completed"], one["short_answers"], one["output_tokens"]) == (2, 1, 7)
    assert "out of memory" in shown
    assert "2/7" in shown


def test_silence_is_a_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    with Endpoint(None, lambda number, body: Answer(silent=True), {}) as server:
        words = ["--requests", "2", "--concurrency", "2", "--timeout", "0.05"]
        found = told(capsys, "--base-url", server.url, *ONE_ROUND, *words, code=1)
    assert only(found)["failures"]["timeout"]["count"] == 2


def test_nothing_but_failures_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    with Endpoint(None, lambda number, body: Answer(status=500), {}) as server:
        found = told(capsys, "--base-url", server.url, *ONE_ROUND, code=1)
    assert only(found)["failures"]["HTTP 500"]["count"] == 4


def test_texts_come_from_the_servers_tokenizer(capsys: pytest.CaptureFixture[str]) -> None:
    """A tokenizer by which the text of a large id is that of two small ones: it is cut to the wanted number."""

    def ids(body: Any) -> dict[str, Any]:
        words = [int(word) for word in body["prompt"].split()]
        return {"tokens": [part for word in words for part in ((word // 2, word // 2) if word > 22500 else (word,))]}

    others = {"/tokenize": ids, "/detokenize": lambda body: {"prompt": " ".join(map(str, body["tokens"]))}}
    with Endpoint(None, lambda number, body: Answer((0.0, DONE)), others) as server:
        told(capsys, "--base-url", server.url, *ONE_ROUND, "--api", "openai-chat", "--vocab-size", "8", code=1)
        told(capsys, "--base-url", server.url, *ONE_ROUND, "--send", "text", "--requests", "1", code=1)
        asked = server.asked
    path, body = asked[0]
    assert path == "/v1/chat/completions"
    (message,) = body["messages"]
    assert message["role"] == "user"
    assert len(message["content"].split()) == 6
    path, body = asked[-1]
    assert path == "/v1/completions"
    assert isinstance(body["prompt"], str)
    assert len(body["prompt"].split()) == 6
    assert max(map(int, body["prompt"].split())) <= 22500


def test_a_server_says_what_it_is_as_far_as_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    named = {"/v1/models": {"data": [{"id": "m", "owned_by": "other"}]}, "/version": {"version": "1.2"}}
    for others, name in ((named, "other 1.2"), ({"/version": "?", "/server_info": {"version": "3"}}, "BaseHTTP")):
        with Endpoint(None, lambda number, body: answered([0.0]), others) as server:
            found = told(capsys, "--base-url", server.url, *ONE_ROUND, "--requests", "1")
        assert found["server"].startswith(name)
        assert found["stack"] is None


def test_a_server_without_a_tokenizer_route_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with Endpoint(None, lambda number, body: answered([0.0]), {"/detokenize": None}) as server:
        text = refusal(capsys, "--base-url", server.url, *ONE_ROUND, "--api", "openai-chat")
    assert "makes no texts of token ids: /detokenize answers 404" in text
    assert "--dataset FILE" in text


def test_a_dataset_more_fields_and_a_key(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dataset = tmp_path / "asks.jsonl"
    dataset.write_text('{"prompt": "Hello", "new_tokens": 2}\n{"prompt": "There"}\n')
    words = ["--wait", "0", "--repeat", "1", "--dataset", str(dataset), "--api-key", "secret", "--no-ignore-eos"]
    words += [
        "--extra-body",
        '{"temperature": 0.5, "stream_options": {"continuous_usage_stats": false}, "model": null}',
    ]
    flushed: list[Any] = []
    others = {"/flush_cache": lambda body: flushed.append(body) or {}}
    with Endpoint(None, lambda number, body: answered([0.0] * body["max_tokens"]), others) as server:
        found = told(capsys, "--base-url", server.url, *words, "--flush-cache")
        assert {head["authorization"] for head in server.headers} == {"Bearer secret"}
        body = server.asked[-1][1]
        assert "--requests is 3" in refusal(capsys, "--base-url", server.url, *words, "--requests", "3")
    assert (only(found)["requests"], only(found)["output_tokens"]) == (2, 2 + 128)
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": False}
    assert (body["temperature"], body["prompt"]) == (0.5, "There")
    assert not {"ignore_eos", "model"} & set(body)
    assert len(flushed) == 1
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "give --base-url URL for a server that runs, or --start"),
        (["--start", "--base-url", "http://x"], "give --base-url URL for a server that runs, or --start"),
        (["--base-url", "http://x", "--dtype", "bfloat16"], "--dtype is a setting of a server"),
        (["--base-url", "http://x", "--stack", "s.toml"], "--stack is a setting of a server"),
        (["--base-url", "127.0.0.1:1"], "is no address such as"),
        (["--base-url", "http://x", "--concurrency", "0"], "0 is less than 1"),
        (["--base-url", "http://x", "--concurrency", "2", "--request-rate", "2"], "not allowed with"),
        (["--base-url", "http://x", "--request-rate", "0"], "0 is not above 0"),
        (["--base-url", "http://x", "--bursts", "3"], "is not of the form N@S"),
        (["--base-url", "http://x", "--trace-speed", "3"], "--trace-speed goes with --trace"),
        (["--base-url", "http://x", "--trace", "a", "--dataset", "b"], "leave --dataset out"),
        (["--base-url", "http://x", "--api", "openai-chat", "--send", "ids"], "openai-chat takes texts"),
        (["--base-url", "http://x", "--prompt-tokens", "3:1"], "nor a range LOW:HIGH"),
        (["--base-url", "http://x", "--extra-body", "[]"], "--extra-body is no JSON object"),
        (["--base-url", "http://x", "--extra-body", "{"], "--extra-body is no JSON"),
        (["--base-url", "http://x", "--json", "/no/such/folder/x"], "cannot be written"),
        # Before a server is started for it.
        (["--start", "--trace", "/no/such/trace"], "bench: /no/such/trace cannot be read"),
        (["--base-url", "http://x", "--dataset", "/dev/null"], "bench: /dev/null has no requests"),
        (["--base-url", "http://x", "--plot", "x.jpg"], "ends with neither .png nor .svg"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    assert text in refusal(capsys, *words)


def test_the_clients_share_of_a_core_is_that_of_sending(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making a client, which takes longer than a round that fails at once, is not in it."""
    spent, made = [0.0], client.new_http

    def dear(*words: Any) -> Any:
        spent[0] += 100.0
        return made(*words)

    monkeypatch.setattr(serving, "new_http", dear)
    monkeypatch.setattr(serving, "time", SimpleNamespace(process_time=lambda: spent[0]))
    with Endpoint(None, lambda number, body: answered([0.0] * 4), {}) as server:
        assert only(told(capsys, "--base-url", server.url, *ONE_ROUND))["client_cpu_share"] == 0
    assert spent[0] == 200.0


def test_what_was_measured_is_told_where_it_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    with Endpoint(None, lambda number, body: answered([0.0] * 4), {}) as server:
        assert main(["bench", "serve", "--base-url", server.url, *ONE_ROUND, "--json", "/dev/full"]) == 2
    shown = capsys.readouterr()
    assert "bench: /dev/full cannot be written: No space left on device" in shown.err
    assert "4/4" in shown.out


def test_no_server_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert f"no server answers at http://127.0.0.1:{port}" in refusal(capsys, "--base-url", f"http://127.0.0.1:{port}")


def test_prompts_that_a_protocol_has_no_place_for(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    dataset = tmp_path / "asks.jsonl"
    dataset.write_text('{"messages": [{"role": "user", "content": "Hello"}]}\n')
    with Endpoint(None, lambda number, body: answered([0.0]), {}) as server:
        text = refusal(capsys, "--base-url", server.url, *ONE_ROUND, "--requests", "1", "--dataset", str(dataset))
    assert "a prompt is messages, and /v1/completions takes a text or token ids" in text


def test_a_server_of_our_own_is_started_measured_and_ended(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "told.json"
    words = [
        "--worker",
        "simulated",
        "--skip-server-warmup",
        "--api-key",
        "secret",
        "--worker.simulated.decode-us-per-row",
        "1",
    ]
    code = main(["bench", "serve", "--start", *words, *ONE_ROUND, "--concurrency", "2", "--json", str(file)])
    shown = capfd.readouterr()
    assert code == 0, shown.err
    found = json.loads(file.read_text())
    one = only(found)
    assert (one["completed"], one["output_tokens"], one["counted_by"]) == (4, 16, {"usage of each chunk": 4})
    assert found["stack"]["plugins"]["worker.simulated"]["options"] == {"decode_us_per_row": 1.0}
    assert found["stack"]["hash"] in shown.out
    assert found["server"].startswith("jackfield ")
    assert found["base_url"] is None
    assert len(found["peak_rss_mib"]["living_children"]) >= 1
    assert one["server_cpu_seconds"] >= 0
    assert "secret" not in json.dumps(found)


def test_a_server_of_our_own_that_does_not_come_up(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "serve", "--start", "--worker", "zzz", *ONE_ROUND]) == 1
    shown = capfd.readouterr().err
    assert "no worker plugin 'zzz'" in shown
    assert "the server did not come up (exit code 2)" in shown
