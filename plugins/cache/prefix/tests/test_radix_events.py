"""Cache events from the radix cache through the scheduler to an observer: in order, complete, and told without a step too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from jackfield.hookspecs import CacheEvent
from jackfield.ipc.messages import FlushCacheRequest, SamplingParams, TokenizedGenerateRequest, WarmUpRequest
from jackfield.testing.scheduler_harness import SchedulerHarness
from jackfield_cache_prefix.radix_cache import RadixCache


class Router:
    """Keeps what a router keeps: which prefixes this replica holds, by the events alone."""

    def __init__(self) -> None:
        self.deaf = False
        self.calls: list[Sequence[CacheEvent]] = []
        self.held: dict[bytes, set[tuple[int, ...]]] = {}

    def listens(self, hook_name: str) -> bool:
        return hook_name == "jackfield_cache_events" and not self.deaf

    def notify(self, hook_name: str, **arguments: Any) -> None:
        events: Sequence[CacheEvent] = arguments["events"]
        assert events
        self.calls.append(events)
        for event in events:
            prefixes = {
                event.tokens[:end] for end in range(len(event.tokens) - event.length + 1, len(event.tokens) + 1)
            }
            if event.action == "stored":
                assert not prefixes & self.held.setdefault(event.namespace, set())
                self.held[event.namespace] |= prefixes
            elif event.action == "removed":
                assert prefixes <= self.held[event.namespace]
                self.held[event.namespace] -= prefixes
            else:
                assert event.action == "cleared"
                self.held.clear()

    @property
    def actions(self) -> list[list[str]]:
        return [[event.action for event in events] for events in self.calls]


@pytest.fixture
def router() -> Router:
    return Router()


def run_with(router: Router, **config: Any) -> tuple[SchedulerHarness, RadixCache]:
    cache = RadixCache(1, events=True)
    return SchedulerHarness(cache=cache, observers=router, **config), cache


def assert_told_all(router: Router, cache: RadixCache) -> None:
    """The router knows exactly what the tree holds."""
    assert cache.take_events() == []
    tree: dict[bytes, set[tuple[int, ...]]] = {}
    for node in cache.tree.nodes():
        tokens = tuple(cache.tree.prefix(node).tolist())
        ends = range(len(tokens) - node.length + 1, len(tokens) + 1)
        tree.setdefault(node.namespace, set()).update(tokens[:end] for end in ends)
    assert {name: held for name, held in router.held.items() if held} == tree


def test_what_a_request_stores_is_told_with_its_step(router: Router) -> None:
    run, cache = run_with(router)
    run.submit([1, 2, 3], max_new_tokens=2)
    run.turn()
    assert router.actions == [["stored"]]
    run.run()
    assert router.actions == [["stored"], ["stored"]]
    assert_told_all(router, cache)


def test_a_flush_is_told_in_its_own_turn_without_any_step(router: Router) -> None:
    run, cache = run_with(router)
    run.submit([1, 2, 3], max_new_tokens=1)
    run.run()
    run.inbox.send(FlushCacheRequest(control_id=1))
    run.turn()
    assert run.replies[-1].ok
    assert router.actions[-1] == ["cleared"]
    assert_told_all(router, cache)
    told = len(router.calls)
    run.turn()
    run.turn()
    assert len(router.calls) == told


def test_what_an_abort_stores_is_told_though_nothing_runs_any_more(router: Router) -> None:
    run, cache = run_with(router)
    rid = run.submit([1, 2, 3], max_new_tokens=9)
    for _ in range(3):
        run.turn()
    before = len(router.calls)
    run.abort(rid)
    run.turn()
    assert router.actions[before:] == [["stored"]]
    assert_told_all(router, cache)


def test_evictions_are_told_and_the_router_always_knows_the_tree(router: Router) -> None:
    run, cache = run_with(router, total_slots=64)
    for number in range(12):
        run.submit([number % 5, 7, number % 3] * 4 + [number], max_new_tokens=5)
        run.run()
        assert_told_all(router, cache)
    assert any("removed" in actions for actions in router.actions)


def test_the_warm_up_is_not_told_but_what_came_before_is(router: Router) -> None:
    run, cache = run_with(router)
    run.submit([1, 2, 3], max_new_tokens=1)
    run.run()
    run.inbox.send(FlushCacheRequest(control_id=1))
    run.inbox.send(WarmUpRequest(control_id=2, begin=True))
    run.submit([4, 5, 6], max_new_tokens=3)
    run.run()
    assert router.actions[-1] == ["cleared"]
    assert router.held == {}
    run.inbox.send(WarmUpRequest(control_id=3, begin=False))
    run.turn()
    assert router.actions[-1] == ["cleared"]
    assert_told_all(router, cache)


def test_events_do_not_pile_up_when_the_only_listener_is_quarantined(router: Router) -> None:
    run, cache = run_with(router)
    router.deaf = True
    for number in range(3):
        run.submit([number, 2, 3], max_new_tokens=2)
        run.run()
    assert router.calls == []
    assert cache.take_events() == []


def test_the_salt_is_not_in_the_namespace_that_is_told(router: Router) -> None:
    run, _ = run_with(router)
    for salt in ("hunter2", "hunter3", None):
        rid = f"salted with {salt}"
        sampling = SamplingParams(max_new_tokens=1, temperature=0)
        run.inbox.send(TokenizedGenerateRequest(rid=rid, input_ids=[1, 2, 3], sampling=sampling, cache_salt=salt))
        run.run()
        assert run.answers[rid].last.cached_tokens == 0
    assert len(router.held) == 3
    assert not any(b"hunter" in namespace for namespace in router.held)
