"""HTTP itself at its edges, on a real socket: methods, types, sizes, and what is no HTTP (B20 B85)."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.http.servers import DEADLINE, Server

ROUTES = ["/generate", "/v1/completions", "/v1/chat/completions"]


def error(response: Any, status: int) -> Any:
    assert response.status_code == status, response.text
    told = response.json()["error"]
    assert set(told) == {"message", "type", "param", "code"}
    return told


def raw(server: Server, data: bytes) -> bytes:
    """Everything that comes back on a connection of its own."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), DEADLINE) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


@pytest.mark.parametrize("route", ROUTES)
def test_b20_bodies_that_are_no_request(server: Server, route: str) -> None:
    with server.client() as client:
        for body in (b"", b"{", b"[]", b"null", b'{"a": "\xff"}', b"\x80\x04pickle"):
            told = error(client.post(route, content=body, headers={"content-type": "application/json"}), 400)
            assert told["code"] == "invalid_json"
        told = error(client.post(route, content=b"{}", headers={"content-type": "text/plain"}), 400)
        assert told["code"] == "unsupported_media_type"
        error(client.post(route, data={"prompt": "a"}), 400)
        deep = b'{"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
        told = error(client.post(route, content=deep, headers={"content-type": "application/json"}), 400)
        assert told["code"] == "json_too_deep"
        error(client.get(route), 405)
        error(client.delete(route), 405)
    server.assert_alive()


def test_b20_unknown_routes_and_methods(server: Server) -> None:
    with server.client() as client:
        assert error(client.get("/v1/no-such"), 404)["code"] == "unknown_route"
        refused = client.request("PATCH", "/v1/completions")
        assert error(refused, 405)["code"] == "method_not_allowed"
        assert refused.headers["allow"] == "POST"
        assert client.head("/health").status_code == 200


def test_b85_a_long_body_is_refused(server: Server) -> None:
    body = json.dumps({"text": "x" * 9_000_000}).encode()

    def chunks() -> Any:
        for start in range(0, len(body), 65536):
            yield body[start : start + 65536]

    with server.client() as client:
        stated = client.post("/generate", content=body, headers={"content-type": "application/json"})
        assert error(stated, 413)["code"] == "request_too_large"
        chunked = client.post("/generate", content=chunks(), headers={"content-type": "application/json"})
        assert error(chunked, 413)["code"] == "request_too_large"
    server.assert_alive()


def test_b85_a_long_head_is_refused(server: Server) -> None:
    # Not much longer than the limit, so that the server has read all of it when it closes.
    answer = raw(server, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Pad: " + b"y" * 65_500)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"
    server.assert_alive()


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x95\x00\x00pickle\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",  # no Host
        b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    ],
)
def test_what_is_no_http_is_a_400(server: Server, data: bytes) -> None:
    answer = raw(server, data)
    assert answer.startswith(b"HTTP/1.1 400 ") or answer == b""
    server.assert_alive()


def test_an_absolute_target_or_a_strange_host_opens_nothing(server: Server) -> None:
    for head, status in (
        (b"GET http://x/health HTTP/1.1\r\nHost: localhost", 404),
        (b"GET /health HTTP/1.1\r\nHost: x", 400),
    ):
        answer = raw(server, head + b"\r\nConnection: close\r\n\r\n")
        assert answer.startswith(f"HTTP/1.1 {status} ".encode())


def test_a_query_without_end_is_refused(server: Server) -> None:
    assert error(server.get(f"/health?{'a=1&' * 200}"), 400)["code"] == "invalid_value"
    assert server.get("/health?a=%ff&b&&=").status_code == 200


def test_b85_messages_are_counted_before_anything_is_made_of_them(server: Server) -> None:
    # Each of them is wrong as well; had one been looked at, the error would name it.
    body = json.dumps({"messages": [{"role": 1}] * 300_000}).encode()
    with server.client() as client:
        refused = client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert error(refused, 400)["param"] == "messages"
    server.assert_alive()


def test_a_body_of_which_the_client_sends_only_half(server: Server) -> None:
    raw(server, b"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    server.assert_alive()


def test_an_upgrade_is_ignored(server: Server) -> None:
    headers = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "eA==",
    }
    assert server.get("/health", headers=headers).status_code == 200


def test_b46_a_repeated_request_id_is_only_a_label(server: Server, text: str) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}
    answers = [server.post("/v1/chat/completions", body, headers={"x-request-id": "same"}) for _ in range(2)]
    assert {answer.headers["x-request-id"] for answer in answers} == {"same"}
    assert len({answer.json()["id"] for answer in answers}) == 2


def test_plugins_and_server_info(server: Server) -> None:
    told = server.get("/plugins").json()
    info = server.state()
    assert told["stack"] == info["stack"]
    assert f"(stack {told['stack']['hash'][:12]})" in server.line
    assert {plugin["kind"] for plugin in told["stack"]["plugins"]} >= {
        "worker",
        "cache",
        "schedule_policy",
        "event_loop",
    }
    assert told["faults"] == {}
    roles = [process["role"] for process in info["processes"]]
    assert roles == ["main", "scheduler", "detokenizer"]
    assert server.get("/model_info").json()["context_length"] == 8192


def test_metrics_name_the_flag_that_is_missing(server: Server) -> None:
    assert "--metrics" in error(server.get("/metrics"), 404)["message"]
