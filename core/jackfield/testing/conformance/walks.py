"""Random requests through a whole scheduler, some of them ended on the way: every answer is checked against the request alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from jackfield.ipc.messages import StopRequest
from jackfield.testing.scheduler_harness import SchedulerHarness


def abort_walk(
    run: SchedulerHarness, turn: Callable[[], Any], *, seed: int, requests: int, stop_ids: tuple[int, ...] = ()
) -> None:
    """Requests over few prompts come while others run; some are aborted, some stopped, some end by a token of `stop_ids`.

    turn   one turn of the loop. Raises AssertionError
    """
    rng = random.Random(seed)
    sent: list[str] = []
    asked: dict[str, int] = {}
    while len(sent) < requests:
        if rng.random() < 0.5:
            prompt = [letter for _ in range(rng.randint(1, 4)) for letter in [rng.randint(1, 2)] * 11]
            count = rng.randint(1, 10)
            rid = run.submit(prompt[: rng.randint(1, len(prompt))], max_new_tokens=count, stop_token_ids=stop_ids)
            sent.append(rid)
            asked[rid] = count
        if sent and rng.random() < 0.1:
            rid = rng.choice(sent[-4:])
            run.inbox.send(StopRequest(rid=rid)) if rng.random() < 0.3 else run.abort(rid)
        turn()
        run.collect()
    finish(run, turn)
    check_answers(run, asked, stop_ids)


def finish(run: SchedulerHarness, turn: Callable[[], Any], turns: int = 5000) -> None:
    """Turn until nothing is open and nothing in flight. AssertionError if it takes more turns than that."""
    for _ in range(turns):
        turn()
        run.collect()
        state = run.scheduler.state()
        if not (state.waiting or state.running or state.in_flight):
            return
    raise AssertionError(f"still not done after {turns} turns: {run.scheduler.state()}")


def check_answers(run: SchedulerHarness, asked: dict[str, int], stop_ids: tuple[int, ...] = ()) -> None:
    """Each answer is that of the request alone, or the beginning of it if somebody ended it; the pool is whole."""
    for rid, count in asked.items():
        answer = run.answers.get(rid)
        assert answer is not None, f"{rid} was never opened"
        assert answer.finish is not None, f"{rid} never ended"
        alone = run.expected(rid, count)
        end = next((i + 1 for i, token in enumerate(alone) if token in stop_ids), count)
        if answer.finish.type == "abort" or (answer.finish.type == "stop" and answer.finish.matched is None):
            assert answer.ids == alone[: len(answer.ids)], f"{rid} has tokens that it would not have alone"
        else:
            assert answer.ids == alone[:end], f"{rid} has tokens that it would not have alone"
    run.assert_at_rest()
