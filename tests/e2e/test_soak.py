"""A long random mix on one engine: requests of all sizes, shared prefixes, streams dropped at any point, refused requests,
flushes. Every answer is checked against the same request alone, every slot against the simulated worker's own books."""

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
    {"input_ids": [3], "sampling_params": {"n": 7}},
]


@pytest.mark.parametrize("cache_policy", ["radix", "chunk"])
@pytest.mark.parametrize("page_size", [1, 16])
def test_random_requests_with_aborts_leave_nothing_behind(cache_policy: str, page_size: int, soak_factor: int) -> None:
    dice = random.Random(f"{cache_policy}-{page_size}")
    with without_tokenizer(
        cache_policy=cache_policy,
        page_size=page_size,
        context_length=256,
        max_total_tokens=1024,
        max_running_requests=6,
        max_prefill_tokens=48,
    ) as engine:
        live: list[tuple[dict[str, Any], Any, list[dict[str, Any]]]] = []
        done: list[tuple[dict[str, Any], list[int]]] = []
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
                    done.append((request, parts[-1]["output_ids"]))
        assert_alive(engine)
        assert dropped
        assert refused
        assert done
        for request, output in dice.sample(done, min(25, len(done))):
            assert engine.generate(**request)["output_ids"] == output
        assert_alive(engine)


def random_request(dice: random.Random) -> dict[str, Any]:
    family = dice.randrange(4)
    shared = [(family * 31 + i * 7) % 900 + 3 for i in range(dice.choice([0, 5, 16, 33, 90]))]
    own = [dice.randrange(3, 1000) for _ in range(dice.choice([1, 2, 15, 16, 17, 60]))]
    return {
        "input_ids": shared + own,
        "sampling_params": {
            "max_new_tokens": dice.choice([0, 1, 2, 7, 30, 80]),
            "ignore_eos": dice.random() < 0.8,
            "temperature": 0,
            "stream_interval": dice.choice([1, 1, 3]),
        },
    }
