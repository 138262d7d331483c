"""A long random mix on one engine whose memory is too small: requests of all sizes and urgencies, shared prefixes, several
choices, log-probabilities, streams dropped at any point, refused requests, flushes. Every answer is checked against the same
request alone, every slot against the simulated worker's own books."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from jackfield.managers.errors import RequestError
from tests.e2e.engines import assert_alive, without_tokenizer

pytestmark = pytest.mark.soak

REQUESTS = 200
BAD = [
    {"input_ids": []},
    {"input_ids": [10**9]},
    {"input_ids": [3] * 300},
    {"input_ids": [3], "sampling_params": {"n": 0}},
    {"input_ids": [3], "return_logprob": True, "logprob_start_len": 9},
    {"input_ids": [3], "session_params": {"id": "nobody's"}},
]


@pytest.mark.parametrize("cache_policy", ["radix", "chunk"])
@pytest.mark.parametrize("page_size", [1, 16])
def test_random_requests_with_aborts_leave_nothing_behind(cache_policy: str, page_size: int, soak_factor: int) -> None:
    dice = random.Random(f"{cache_policy}-{page_size}")
    with without_tokenizer(
        cache_policy=cache_policy,
        page_size=page_size,
        context_length=256,
        max_total_tokens=512,
        max_running_requests=6,
        max_prefill_tokens=48,
        schedule_conservativeness=0.01,
        schedule_policy="priority",
        options={"schedule_policy.priority": {"preempt_difference": 2}},
    ) as engine:
        live: list[tuple[dict[str, Any], Any, list[dict[str, Any]]]] = []
        done: list[tuple[dict[str, Any], list[list[int]]]] = []
        started = dropped = refused = 0
        while started < REQUESTS // 2 * soak_factor or live:
            act = dice.random()
            if act < 0.25 and len(live) < 24 and started < REQUESTS // 2 * soak_factor:
                request = random_request(dice)
                live.append((request, engine.generate(**request, stream=True), []))
                started += 1
            elif act < 0.30:
                with pytest.raises(RequestError):
                    engine.generate(**dice.choice(BAD))
                refused += 1
            elif act < 0.33 and live:
                _, stream, _ = live.pop(dice.randrange(len(live)))
                stream.close()
                dropped += 1
            elif act < 0.34:
                with contextlib.ExitStack() as refusal:
                    # Streams that were told their end are gone from the scheduler; the others forbid a flush.
                    if engine.get_server_info()["scheduler"]["running"]:
                        refusal.enter_context(pytest.raises(RuntimeError))
                    elif live:
                        refusal.enter_context(contextlib.suppress(RuntimeError))
                    engine.flush_cache()
            elif live:
                at = dice.randrange(len(live))
                request, stream, parts = live[at]
                part = next(stream, None)
                if part is not None:
                    parts.append(part)
                else:
                    live.pop(at)
                    done.append((request, said(parts)))
        assert_alive(engine)
        assert dropped
        assert refused
        assert done
        assert engine.get_server_info()["scheduler"]["retractions"]
        for request, outputs in dice.sample(done, min(25, len(done))):
            assert said(list(engine.generate(**request, stream=True))) == outputs
        assert_alive(engine)


def random_request(dice: random.Random) -> dict[str, Any]:
    family = dice.randrange(4)
    shared = [(family * 31 + i * 7) % 900 + 3 for i in range(dice.choice([0, 5, 16, 33, 90]))]
    own = [dice.randrange(3, 1000) for _ in range(dice.choice([1, 2, 15, 16, 17, 60]))]
    new = dice.choice([0, 1, 2, 7, 30, 80])
    return {
        "input_ids": shared + own,
        "sampling_params": {
            "max_new_tokens": new,
            "ignore_eos": dice.random() < 0.8,
            "temperature": 0,
            "stream_interval": dice.choice([1, 1, 3]),
            "min_new_tokens": min(new, dice.choice([0, 0, 5])),
            "n": dice.choice([1, 1, 1, 3]),
        },
        "priority": dice.choice([0, 0, -9, 9]),
        **({"return_logprob": True, "logprob_start_len": dice.choice([-1, 0])} if dice.random() < 0.3 else {}),
    }


def said(parts: list[dict[str, Any]]) -> list[list[int]]:
    """What each choice has said in the end; each token with its log-probability, if they were asked for."""
    last = {part.get("index", 0): part for part in parts}
    for part in last.values():
        entries = part["meta_info"].get("output_token_logprobs")
        assert entries is None or [entry[1] for entry in entries] == part["output_ids"]
    return [last[index]["output_ids"] for index in sorted(last)]
