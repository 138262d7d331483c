"""`priority`, `tenant` and `deadline_s` from every way in to the policy that looks at them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jackfield import Engine
from jackfield.managers.errors import RequestError
from tests.e2e.engines import assert_alive, without_tokenizer
from tests.e2e.http.servers import LONG, SIMULATED, SLOW, serving, until

ONE = {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}
PROMPTS = [[10 * i + j for j in range(5)] for i in range(1, 7)]
ROUTES = ("/generate", "/v1/completions", "/v1/chat/completions")


def engine_with(policy: str, **args: Any) -> Engine:
    return without_tokenizer(schedule_policy=policy, max_running_requests=1, **args)


def served(engine: Engine, **fields: Any) -> list[int]:
    """The prompts of one call in the order in which they ran: one at a time, so each waits longer than the one before."""
    answers = engine.generate(input_ids=PROMPTS, sampling_params=ONE, **fields)
    waits = [answer["meta_info"]["stage_times"]["queue"] for answer in answers]
    assert len(set(waits)) == len(waits)
    return sorted(range(len(PROMPTS)), key=waits.__getitem__)


@pytest.mark.parametrize(
    ("policy", "fields", "order"),
    [
        ("priority", {"priority": [0, 3, None, -(2**31), 2**31 - 1, 3]}, [4, 1, 5, 0, 2, 3]),
        ("priority", {"priority": 7}, [0, 1, 2, 3, 4, 5]),
        ("edf", {"deadline_s": [None, 30, 10.5, 1e9, 0.25, None]}, [4, 2, 1, 3, 0, 5]),
        ("fair-share", {"tenant": ["a", "a", "a", "b", "b", "c"]}, [0, 3, 5, 1, 4, 2]),
        ("fair-share", {"tenant": [None, None, None, None, "b", "c"]}, [0, 4, 5, 1, 2, 3]),
        ("fcfs", {"priority": [0, 1, 2, 3, 4, 5], "tenant": "a", "deadline_s": 1}, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_policy_sees_the_fields(policy: str, fields: dict[str, Any], order: list[int]) -> None:
    with engine_with(policy) as engine:
        assert served(engine, **fields) == order
        assert_alive(engine)


def test_the_same_between_processes() -> None:
    slow = {"worker.simulated": {"realtime": True, "base_us": 5000}}
    with engine_with("edf", topology="processes", options=slow) as engine, ThreadPoolExecutor(1) as pool:
        blocker = engine.generate(input_ids=[1, 2, 3], sampling_params=LONG, stream=True)
        next(blocker)
        order = pool.submit(served, engine, deadline_s=[None, 3000, 1000, 9000, 2000, None])
        until(lambda: engine.get_server_info()["scheduler"]["waiting"] == len(PROMPTS))
        blocker.close()
        assert order.result() == [2, 4, 1, 3, 0, 5]


def test_a_deadline_that_passes_ends_nothing() -> None:
    with engine_with("edf") as engine:
        answer = engine.generate(input_ids=[1, 2, 3], sampling_params={**ONE, "max_new_tokens": 50}, deadline_s=1e-9)
        assert len(answer["output_ids"]) == 50
        assert answer["meta_info"]["finish_reason"]["type"] == "length"


async def test_bad_fields_are_refused_before_anything_is_sent() -> None:
    with engine_with("priority") as engine:
        with pytest.raises(RequestError, match="priority must be a whole number"):
            engine.generate(input_ids=[[1], [2]], priority=[1, 2**31])
        with pytest.raises(RequestError, match="deadline_s must be"):
            await engine.async_generate(input_ids=[1], deadline_s=0)
        with pytest.raises(RequestError, match="tenant has 3 entries for 1 prompts"):
            engine.generate(input_ids=[1], stream=True, tenant=["a", "b", "c"])
        answer = await engine.async_generate(input_ids=[1], sampling_params=ONE, priority=-1, tenant="a", deadline_s=2)
        assert len(answer["output_ids"]) == 1
        assert engine.get_server_info()["scheduler"]["steps"] == 1


def body_of(route: str, **fields: Any) -> dict[str, Any]:
    if route == "/generate":
        return {"text": "a", "sampling_params": ONE, **fields}
    prompt = {"prompt": "a"} if route == "/v1/completions" else {"messages": [{"role": "user", "content": "a"}]}
    return {**prompt, "max_tokens": 1, "temperature": 0, **fields}


def test_every_route_passes_them_on() -> None:
    with (
        serving(
            *SIMULATED, *SLOW, "--topology", "inline", "--schedule-policy", "priority", "--max-running-requests", "1"
        ) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        ended: list[int] = []
        blocker = pool.submit(server.post, "/generate", {"text": "z", "sampling_params": LONG, "rid": "blocker"})
        until(lambda: server.scheduler() == (1, 0))
        futures = []
        for priority, route in enumerate(ROUTES):  # the last to come is the most urgent
            future = pool.submit(server.post, route, body_of(route, priority=priority, tenant="acme", deadline_s=60))
            future.add_done_callback(lambda _, priority=priority: ended.append(priority))
            futures.append(future)
            until(lambda priority=priority: server.scheduler() == (1, priority + 1))
        server.post("/abort_request", {"rid": "blocker"})
        answers = [future.result() for future in futures]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert ended == [2, 1, 0]
        assert blocker.result().status_code == 200


def test_every_route_refuses_bad_ones_by_name() -> None:
    with serving(*SIMULATED, "--topology", "inline") as server:
        for route in ROUTES:
            for name, value in [
                ("priority", 2**31),
                ("priority", "high"),
                ("priority", 1.5),
                ("tenant", ""),
                ("tenant", "x" * 257),
                ("tenant", 7),
                ("deadline_s", 0),
                ("deadline_s", -1),
                ("deadline_s", "soon"),
            ]:
                response = server.post(route, body_of(route, **{name: value}))
                assert response.status_code == 400, (route, name, value)
                assert response.json()["error"]["param"] == name
            assert server.post(route, body_of(route, priority=None, tenant=None, deadline_s=None)).status_code == 200
