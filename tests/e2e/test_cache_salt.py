"""`cache_salt` through the engine and every route of a server: the same prompt under two salts shares nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from jackfield import Engine
from jackfield.managers.errors import RequestError
from tests.e2e.engines import assert_alive, without_tokenizer
from tests.e2e.http.servers import SIMULATED, Server, serving

PROMPT = list(range(10, 60))
GREEDY = {"max_new_tokens": 3, "temperature": 0, "ignore_eos": True}


def cached(engine: Engine, **fields: Any) -> int:
    answer = engine.generate(input_ids=PROMPT, sampling_params=GREEDY, **fields)
    tokens: int = answer["meta_info"]["cached_tokens"]
    return tokens


@pytest.mark.parametrize("page_size", [1, 16])
def test_two_salts_share_nothing(page_size: int, caplog: pytest.LogCaptureFixture) -> None:
    """The worker checks every slot that a request reads against the request's own tokens."""
    caplog.set_level(logging.DEBUG)
    options = {"worker.simulated": {"verify": "all"}}
    with without_tokenizer(page_size=page_size, options=options) as engine:
        known = 49 // page_size * page_size
        salts = ["hunter2", "hunter3", None]
        assert [cached(engine, cache_salt=salt) for salt in salts] == [0, 0, 0]
        assert [cached(engine, cache_salt=salt) for salt in salts] == [known] * 3
        assert cached(engine) == known
        answers = [engine.generate(input_ids=PROMPT, sampling_params=GREEDY, cache_salt=salt) for salt in salts]
        assert len({tuple(answer["output_ids"]) for answer in answers}) == 1
        assert_alive(engine)
    assert "hunter" not in caplog.text


def test_a_batch_has_one_salt_or_one_for_each() -> None:
    with without_tokenizer() as engine:

        def batch(salt: Any) -> list[int]:
            answers = engine.generate(input_ids=[PROMPT, PROMPT], sampling_params=GREEDY, cache_salt=salt)
            return [answer["meta_info"]["cached_tokens"] for answer in answers]

        assert batch(["a", "b"]) == [0, 0]
        assert batch("a") == [49, 49]
        assert batch(["b", None]) == [49, 0]


def test_twins_under_two_salts_do_not_wait_for_each_other() -> None:
    """Neither is held back for the other's prefill: both are computed in the first step."""
    with without_tokenizer() as engine:
        engine.generate(
            input_ids=[PROMPT, PROMPT], sampling_params={**GREEDY, "max_new_tokens": 1}, cache_salt=["a", "b"]
        )
        assert engine.get_server_info()["scheduler"]["steps"] == 1


async def test_a_bad_salt_is_refused_before_anything_is_sent() -> None:
    with without_tokenizer() as engine:
        with pytest.raises(RequestError, match="1 to 256 characters, not 0"):
            engine.generate(input_ids=PROMPT, cache_salt="")
        with pytest.raises(RequestError, match="3 entries for 1 prompts"):
            await engine.async_generate(input_ids=PROMPT, cache_salt=["a", "b", "c"])
        answer = await engine.async_generate(input_ids=PROMPT, sampling_params=GREEDY, cache_salt="a")
        assert answer["meta_info"]["cached_tokens"] == 0


def ask(server: Server, path: str, salt: str | None) -> int:
    """Cached tokens of the same prompt by this route."""
    more = {} if salt is None else {"cache_salt": salt}
    words = "one two three four five six seven eight nine ten"
    if path == "/generate":
        answer = server.post(path, {"text": words, "sampling_params": GREEDY, **more}).json()
        tokens: int = answer["meta_info"]["cached_tokens"]
        return tokens
    prompt = {"prompt": words} if path == "/v1/completions" else {"messages": [{"role": "user", "content": words}]}
    answer = server.post(path, {**prompt, "max_tokens": 1, "temperature": 0, **more}).json()
    tokens = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


def test_every_route_takes_a_salt() -> None:
    with serving(*SIMULATED, "--topology", "inline", "--log-level", "debug") as server:
        for path in ("/generate", "/v1/completions", "/v1/chat/completions"):
            server.post("/flush_cache", {})
            first = [ask(server, path, salt) for salt in ("hunter2", "hunter3", None)]
            again = [ask(server, path, salt) for salt in ("hunter2", "hunter3", None)]
            assert first == [0, 0, 0], path
            assert min(again) > 0, path
            assert len(set(again)) == 1, path
            bad: Any
            for bad in ("", "hunter2" * 100, 7, {"hunter2": 1}):
                body: dict[str, Any] = {"text" if path == "/generate" else "prompt": "a", "cache_salt": bad}
                if path.endswith("chat/completions"):
                    body = {"messages": [{"role": "user", "content": "a"}], "cache_salt": bad}
                response = server.post(path, body)
                assert response.status_code == 400
                assert response.json()["error"]["param"] == "cache_salt"
                assert "hunter2" not in response.text
        assert "hunter" not in server.log
