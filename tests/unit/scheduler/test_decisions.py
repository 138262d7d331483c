"""The record of decisions and the lives that come of it, on the whole scheduler over fakes."""

from __future__ import annotations

from typing import Any

import pytest

from jackfield.managers.scheduler.lives import MAX_EVENTS, Life
from jackfield.managers.story import story
from jackfield.testing.scheduler_harness import SchedulerHarness


def life(harness: SchedulerHarness, name: str) -> dict[str, Any]:
    (only,) = harness.scheduler.why(name)["requests"]
    return dict(only)


def events(harness: SchedulerHarness, name: str) -> list[str]:
    return [event["event"] for event in life(harness, name)["events"]]


def event(harness: SchedulerHarness, name: str, kind: str) -> dict[str, Any]:
    (only,) = [one for one in life(harness, name)["events"] if one["event"] == kind]
    return dict(only)


def test_a_life_from_arrival_to_its_end() -> None:
    harness = SchedulerHarness()
    harness.submit([1, 2, 3, 4, 5], rid="a", max_new_tokens=3)
    harness.run()
    assert events(harness, "a") == ["arrived", "admitted", "prefill", "first_token", "ended"]
    assert life(harness, "a")["state"] == "finished"
    assert (event(harness, "a", "prefill")["tokens"], event(harness, "a", "prefill")["chunks"]) == (5, 1)
    admitted, first, ended = (event(harness, "a", kind) for kind in ("admitted", "first_token", "ended"))
    assert (admitted["step"], admitted["cached"], admitted["known"], admitted["rounds"]) == (1, 0, 5, {})
    assert (first["step"], first["at"]) == (1, 1.0)  # a turn of the harness takes a second
    assert (ended["step"], ended["at"], ended["type"], ended["outputs"]) == (3, 3.0, "length", 3)


def test_what_the_cache_gave_is_told() -> None:
    harness = SchedulerHarness(page_size=4)
    prompt = list(range(1, 15))
    for rid in ("a", "b"):
        harness.submit(prompt, rid=rid, max_new_tokens=1)
        harness.run()
    assert event(harness, "a", "admitted")["cached"] == 0
    assert event(harness, "b", "admitted")["cached"] == 12
    assert event(harness, "b", "prefill")["tokens"] == 2


def test_chunks_in_a_row_are_one_event() -> None:
    harness = SchedulerHarness(max_prefill_tokens=10)
    harness.submit(list(range(1, 36)), rid="a", max_new_tokens=1)
    harness.run()
    prefill = event(harness, "a", "prefill")
    assert (prefill["chunks"], prefill["tokens"], prefill["step"], prefill["last_step"]) == (4, 35, 1, 4)
    assert event(harness, "a", "first_token")["step"] == 4


def test_a_single_token_is_first_and_last() -> None:
    harness = SchedulerHarness()
    harness.submit([1], rid="a", max_new_tokens=1)
    harness.run()
    assert events(harness, "a")[-2:] == ["first_token", "ended"]


def test_no_token_at_all() -> None:
    harness = SchedulerHarness()
    harness.submit([1, 2], rid="a", max_new_tokens=0)
    harness.run()
    assert events(harness, "a") == ["arrived", "admitted", "prefill", "ended"]


def test_aborted_while_waiting_and_while_running() -> None:
    harness = SchedulerHarness(max_running_requests=1)
    harness.submit([1, 2], rid="runs", max_new_tokens=50)
    harness.submit([3, 4], rid="waits", max_new_tokens=50)
    harness.turn()
    assert (life(harness, "runs")["state"], life(harness, "waits")["state"]) == ("running", "waiting")
    harness.abort("runs")
    harness.abort("waits")
    harness.turn()
    for rid in ("runs", "waits"):
        assert event(harness, rid, "ended")["type"] == "abort"
    assert "admitted" not in events(harness, "waits")


def test_who_ended_while_waiting_is_told_what_was_missing() -> None:
    """With the numbers of the last round, as who got in is told them."""
    harness = SchedulerHarness(max_running_requests=1)
    harness.submit([1, 2], rid="runs", max_new_tokens=50)
    harness.submit([3, 4], rid="waits", max_new_tokens=50)
    harness.turn()
    harness.turn()
    harness.abort("waits")
    harness.turn()
    ended = event(harness, "waits", "ended")
    assert ended["rounds"] == {"places": 2}
    assert ended["last_round"] == {"reason": "places", "uid": 0, "running": 1, "most": 1}
    told = story(harness.scheduler.why("waits"), "waits")
    assert any("in the last of them, 1 of 1 places were taken" in line for line in told)
    harness.abort("runs")
    harness.turn()
    assert "last_round" not in event(harness, "runs", "ended")  # it waited for nothing


def test_a_row_that_fails_ends_with_its_status() -> None:
    harness = SchedulerHarness()
    harness.submit([1, 2], rid="a", max_new_tokens=5)
    harness.worker.failing.add(1)
    harness.run()
    assert event(harness, "a", "ended")["status_code"] == 500
    assert "first_token" not in events(harness, "a")


def test_a_refused_request_has_a_life_too() -> None:
    harness = SchedulerHarness(max_running_requests=1, max_queued_requests=1)
    for rid in ("runs", "waits", "refused"):
        harness.submit([1, 2], rid=rid, max_new_tokens=5)
        harness.scheduler.ingest()
        if rid == "runs":
            harness.turn()
    harness.run()
    refused = event(harness, "refused", "refused")
    assert refused["status_code"] == 503
    assert life(harness, "refused")["uid"] == 0


def test_an_id_used_again_tells_both_lives_oldest_first() -> None:
    harness = SchedulerHarness()
    for tokens in (1, 2):
        harness.submit([1, 2], rid="a", max_new_tokens=tokens)
        harness.run()
        harness.answers.clear()
    lives = harness.scheduler.why("a")["requests"]
    assert [one["max_new_tokens"] for one in lives] == [1, 2]


def test_prompts_of_one_call_are_found_by_the_calls_id() -> None:
    harness = SchedulerHarness()
    for i in range(3):
        harness.submit([1, 2], rid=f"cmpl-7-{i}", max_new_tokens=1)
    harness.run()
    assert [one["id"] for one in harness.scheduler.why("cmpl-7")["requests"]] == [f"cmpl-7-{i}" for i in range(3)]
    assert harness.scheduler.why("cmpl")["requests"] == []


def test_only_the_last_that_ended_are_kept_and_the_ring_says_how_far_it_goes() -> None:
    harness = SchedulerHarness(ended_lives=2, decision_steps=3)
    for i in range(4):
        harness.submit([1, 2], rid=f"r{i}", max_new_tokens=2)
        harness.run()
    answer = harness.scheduler.why("r1")
    assert answer["requests"] == []
    assert answer["ring"] == {"steps": 3, "first": 6, "last": 8}
    (told,) = story(answer, "r1")
    assert "No request 'r1' is known here" in told
    assert "the last 3 steps (6 to 8)" in told
    assert "last 2 that ended" in told
    assert life(harness, "r2")["state"] == "finished"


def test_without_a_record_nothing_is_known_and_everything_runs() -> None:
    harness = SchedulerHarness(decision_steps=0)
    rid = harness.submit([1, 2], max_new_tokens=4)
    harness.run()
    assert harness.answers[rid].ids == harness.expected(rid, 4)
    assert harness.scheduler.why(rid) == {
        "requests": [],
        "ring": {"steps": 0, "first": 0, "last": 0},
        "ended_kept": 1024,
        "epoch": 0,
        "swaps": [],
    }


def test_a_life_that_never_ends_does_not_grow_for_ever() -> None:
    harness = SchedulerHarness()
    harness.submit([1, 2], rid="a")
    harness.scheduler.ingest()
    record = harness.scheduler.why("a")["requests"][0]
    assert record["events_forgotten"] == 0
    from jackfield.ipc.messages import SamplingParams, TokenizedGenerateRequest

    message = TokenizedGenerateRequest(rid="a", input_ids=[1], sampling=SamplingParams())
    one = Life(message, uid=1, max_new_tokens=5, arrived=0.0)
    for step in range(10 * MAX_EVENTS):
        one.tell("retracted", step, float(step), for_uid=0, outputs=step)
    told = one.as_data([0] * len(one.waits))
    assert len(told["events"]) == MAX_EVENTS
    assert told["events_forgotten"] == 9 * MAX_EVENTS
    assert (told["events"][0]["step"], told["events"][-1]["step"]) == (0, 10 * MAX_EVENTS - 1)


@pytest.mark.parametrize("state", ["waiting", "running", "finished"])
def test_a_story_names_the_request_and_its_state(state: str) -> None:
    harness = SchedulerHarness(max_running_requests=1)
    harness.submit([1, 2], rid="finished", max_new_tokens=1)
    harness.run()
    harness.submit([1, 2], rid="running", max_new_tokens=9)
    harness.submit([3, 4], rid="waiting", max_new_tokens=9)
    harness.turn()
    lines = story(harness.scheduler.why(state), state)
    assert lines[0] == f"Request {state} (number {('finished', 'running', 'waiting').index(state) + 1}): {state}"
    assert "arrived after step" in lines[1]


class Listener:
    """Hears some hooks."""

    def __init__(self, *hooks: str) -> None:
        self.hooks = hooks
        self.heard: list[tuple[str, Any]] = []

    def listens(self, hook_name: str) -> bool:
        return hook_name in self.hooks

    def notify(self, hook_name: str, **arguments: Any) -> None:
        (value,) = arguments.values()
        self.heard.append((hook_name, value))


def test_whole_decisions_go_to_whoever_listens() -> None:
    listener = Listener("jackfield_step_decided")
    harness = SchedulerHarness(observers=listener, max_running_requests=2)
    for i in range(3):
        harness.submit([i, 2, 3], max_new_tokens=2)
    harness.turn()
    harness.turn()
    first, second = (decision for _, decision in listener.heard)
    assert [(one.uid, one.tokens, one.cached) for one in first.chosen] == [(1, 3, 0), (2, 3, 0)]
    assert (first.step, first.waiting, first.running, first.decodes) == (1, 1, 2, 0)
    assert (second.step, second.chosen, second.decodes) == (2, (), 2)
    assert first.total_s == 1.0
    assert (first.free, second.free) == (256, 250)


def test_lives_go_to_whoever_listens_once_and_whole() -> None:
    listener = Listener("jackfield_requests_explained")
    harness = SchedulerHarness(observers=listener, max_running_requests=1)
    harness.submit([1, 2, 3], rid="ends", max_new_tokens=2)
    harness.submit([1, 2, 3], rid="aborted", max_new_tokens=2)
    harness.turn()
    harness.turn()
    assert [[life["id"] for life in lives] for _, lives in listener.heard] == [["ends"]]
    harness.abort("aborted")
    harness.turn()  # nothing to run: it is told without a step
    assert [[life["id"] for life in lives] for _, lives in listener.heard] == [["ends"], ["aborted"]]
    assert listener.heard[0][1][0]["state"] == "finished"
