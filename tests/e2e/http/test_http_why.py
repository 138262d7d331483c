"""A request's life over the wire, by every id under which a client may know it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from jackfield.entrypoints.cli import main
from tests.e2e.http.servers import Server


def why(server: Server, name: str) -> Any:
    return server.get(f"/requests/{quote(name, safe='')}/why")


def test_by_the_answers_id_the_rid_and_the_request_id(server: Server) -> None:
    body = {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 3}}
    plain = server.post("/generate", body)
    named = server.post("/generate", {**body, "rid": "mine/1"}, headers={"x-request-id": "call-1"})
    chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2})
    two = server.post("/v1/completions", {"prompt": [[5, 6], [7, 8]], "max_tokens": 2})
    for name, count in [
        (plain.json()["meta_info"]["id"], 1),
        (plain.headers["x-request-id"], 1),
        ("mine/1", 1),
        ("call-1", 1),
        (chat.json()["id"], 1),
        (two.json()["id"], 2),
        (two.json()["id"] + "-1", 1),
        (two.headers["x-request-id"], 2),
    ]:
        told = why(server, name).json()
        assert len(told["requests"]) == count, name
        for life in told["requests"]:
            assert life["state"] == "finished"
            assert [event["event"] for event in life["events"]][0::4] == ["arrived", "ended"]
    assert named.json()["meta_info"]["id"] == "mine/1"
    assert why(server, "call-1").json()["story"][0].startswith("Request mine/1 (number ")


def test_an_unknown_id_is_404_and_says_how_far_the_record_goes(server: Server) -> None:
    server.post("/generate", {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 1}})
    refused = why(server, "nobody")
    assert refused.status_code == 404
    error = refused.json()["error"]
    assert error["code"] == "request_not_known"
    assert "No request 'nobody' is known here. The record holds the last " in error["message"]


def test_the_command(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.post("/generate", {"input_ids": [5, 6, 7], "sampling_params": {"max_new_tokens": 3}, "rid": "told"})
    assert main(["why", "told", "--url", server.url]) == 0
    assert capsys.readouterr().out.startswith("Request told (number ")
    assert main(["why", "nobody", "--url", server.url]) == 1
    assert "No request 'nobody'" in capsys.readouterr().err
