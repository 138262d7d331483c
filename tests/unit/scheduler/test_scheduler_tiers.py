"""KV tiers behind the radix cache, the simulated worker proving every slot that was copied back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jackfield.hookspecs import CacheKey, StepOutcome, TierRule
from jackfield.ipc.messages import FlushCacheRequest
from jackfield.managers.scheduler.tiers.blocks import block_keys
from tests.unit.scheduler.tiered import FINGERPRINT, NAMESPACE, DictTier, TieredRun

RULES = [TierRule(write="through", min_load_tokens=8), TierRule(write="back", min_load_tokens=8)]
A = [7, *range(100, 140)]


def answers(prompts: list[list[int]], count: int) -> list[list[int]]:
    """What each prompt answers without tiers, in a pool that is big enough."""
    run = TieredRun(total=4096)
    rids = [run.submit(prompt, max_new_tokens=count, ignore_eos=True) for prompt in prompts]
    run.run()
    return [run.answers[rid].ids for rid in rids]


def fill(run: TieredRun, number: int = 1) -> None:
    """Other prompts, so long that nothing else stays in the cache."""
    for i in range(number):
        run.submit([20 + i] * 60, max_new_tokens=5, ignore_eos=True)
        run.settle()


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.write)
def test_what_was_evicted_comes_back(rule: TierRule, page_size: int) -> None:
    tier = DictTier(rule)
    run = TieredRun(tier, page_size=page_size)
    first = run.submit(A, max_new_tokens=4, ignore_eos=True)
    run.settle()
    assert bool(tier.blocks) == (rule.write == "through")
    fill(run)
    assert run.check_blocks(tier, [A + run.answers[first].ids, [20] * 60 + run.answers["r2"].ids]) >= 5
    assert run.cache.peek([CacheKey(namespace=run_namespace(), tokens=run_key(A))]).tolist() == [0]
    again = run.submit(A, max_new_tokens=4, ignore_eos=True)
    run.settle()
    assert run.answers[again].ids == run.answers[first].ids == answers([A], 4)[0]
    assert run.answers[again].last.cached_tokens == 40
    assert run.answers[again].last.tier_tokens == {"t0": 40}
    assert run.answers[first].last.tier_tokens == {}
    assert (run.loads["loads"], run.loads["loaded_tokens"]) == (1, 40)
    run.assert_at_rest()


def run_key(tokens: list[int]) -> Any:
    import numpy as np

    return np.array(tokens, dtype=np.int32)


def test_a_loaded_prefix_joins_what_the_cache_still_holds() -> None:
    tier = DictTier(RULES[0])
    run = TieredRun(tier, total=96)
    run.submit(A[:21], max_new_tokens=1, ignore_eos=True)
    run.settle()
    run.submit(A, max_new_tokens=1, ignore_eos=True)
    run.settle()
    run.submit([3] * 70, max_new_tokens=4, ignore_eos=True)  # evicts from the tail of the longest unused
    run.settle()
    before = int(run.cache.peek([CacheKey(namespace=run_namespace(), tokens=run_key(A))])[0])
    assert 0 < before <= 32
    again = run.submit(A, max_new_tokens=4, ignore_eos=True)
    run.settle()
    assert run.answers[again].ids == answers([A], 4)[0]
    assert run.loads["loaded_tokens"] == 40 - before


def run_namespace() -> bytes:
    from tests.unit.scheduler.tiered import NAMESPACE

    return NAMESPACE


def test_no_load_that_does_not_pay() -> None:
    tier = DictTier(TierRule(min_load_tokens=41))
    run = TieredRun(tier)
    run.submit(A, max_new_tokens=4, ignore_eos=True)
    run.settle()
    fill(run)
    run.submit(A, max_new_tokens=4, ignore_eos=True)
    run.settle()
    assert run.loads["loads"] == 0
    assert run.answers["r3"].last.cached_tokens == 0


def test_only_what_was_asked_for_often_enough_is_kept() -> None:
    tier = DictTier(TierRule(write_after=2, min_load_tokens=8))
    run = TieredRun(tier)
    run.submit(A, max_new_tokens=1, ignore_eos=True)
    run.settle()
    assert not tier.blocks
    run.submit([*A[:17], 5, 6, 7, 8, 9, 10, 11], max_new_tokens=1, ignore_eos=True)
    run.settle()
    key = CacheKey(namespace=run_namespace(), tokens=run_key(A))
    assert set(tier.blocks) == set(block_keys(FINGERPRINT, key, 16, 8))


def test_the_first_tier_that_has_a_block_gives_it() -> None:
    slow, fast = DictTier(RULES[0]), DictTier(RULES[0])
    run = TieredRun(fast, slow)
    run.submit(A, max_new_tokens=1, ignore_eos=True)
    run.settle()
    for name in block_keys(FINGERPRINT, CacheKey(namespace=run_namespace(), tokens=run_key(A)), 40, 8)[2:4]:
        del fast.blocks[name]
    fill(run)
    run.submit(A, max_new_tokens=4, ignore_eos=True)
    run.settle()
    numbers = run.tiers.numbers()
    assert (numbers["t0"]["hits"], numbers["t1"]["hits"]) == (3, 2)
    assert run.loads["loaded_tokens"] == 40
    assert run.answers["r3"].ids == answers([A], 4)[0]


@pytest.mark.parametrize("when", ["first", "middle"])
@pytest.mark.parametrize("how", ["raises", "misses"])
def test_a_block_that_cannot_be_had_is_computed(how: str, when: str) -> None:
    calls: list[str] = []

    def plan(what: str) -> bool:
        if what == "get":
            calls.append(what)
            if len(calls) == (1 if when == "first" else 3):
                if how == "raises":
                    raise OSError("the disk is gone")
                return False
        return True

    tier = DictTier(RULES[0], plan)
    run = TieredRun(tier)
    run.submit(A, max_new_tokens=1, ignore_eos=True)
    run.settle()
    fill(run)
    run.submit(A, max_new_tokens=4, ignore_eos=True)
    run.settle()
    assert run.answers["r3"].ids == answers([A], 4)[0]
    assert run.answers["r3"].last.cached_tokens == (0 if when == "first" else 16)
    numbers = run.tiers.numbers()["t0"]
    assert (numbers["misses"], numbers["errors"]) == (1, int(how == "raises"))
    run.assert_at_rest()


def slow_load(**settings: Any) -> tuple[TieredRun, str]:
    """A load of A is under way: 1 s a token."""
    tier = DictTier(RULES[0])
    run = TieredRun(tier, copy_us=1e6, **settings)
    run.submit(A, max_new_tokens=1, ignore_eos=True)
    run.settle()
    fill(run)
    rid = run.submit(A, max_new_tokens=4, ignore_eos=True)
    run.scheduler.ingest()
    run.scheduler.poll()
    assert run.tiers.gate.pending == 1
    assert run.scheduler.state().pending == 40
    return run, rid


def test_others_run_while_a_request_waits_for_its_load() -> None:
    run, rid = slow_load()
    other = run.submit([5, 6], max_new_tokens=8, ignore_eos=True)
    for _ in range(9):
        run.turn()
    assert run.answers[other].finish is not None
    assert run.answers[rid].ids == []
    run.settle()
    assert run.answers[rid].ids == answers([A], 4)[0]
    assert run.answers[rid].last.cached_tokens == 40


def test_who_runs_alone_beside_a_load_may_count_on_its_slots() -> None:
    """The worst case of all is reserved, and the load holds what the only running request needs in the end: it waits for the
    copy."""
    run, rid = slow_load(schedule_conservativeness=11.0)
    other = run.submit([9] * 11, max_new_tokens=20, ignore_eos=True)  # 30 slots, where 64 - 40 are to be had
    run.turn()
    assert (run.scheduler.state().running, run.scheduler.state().pending) == (1, 40)
    run.settle()
    assert run.answers[rid].ids == answers([A], 4)[0]
    assert run.answers[other].ids == answers([[9] * 11], 20)[0]
    assert run.scheduler.state().retractions == 0
    run.assert_at_rest()


def test_an_abort_in_a_load_lets_the_copy_end() -> None:
    run, rid = slow_load()
    run.abort(rid)
    run.scheduler.ingest()
    run.collect()
    assert run.answers[rid].finish is not None
    assert run.scheduler.state().pending == 40
    run.scheduler.check_invariants()
    run.settle()
    run.assert_at_rest()
    assert run.loads["loads"] == 1


def test_an_idle_check_finds_nothing_wrong_with_a_load_that_nobody_wants_any_more() -> None:
    """Its lease on the part that the cache still holds is no leak."""
    tier = DictTier(RULES[0])
    run = TieredRun(tier, copy_us=1e6)
    run.submit(A, max_new_tokens=1, ignore_eos=True)
    run.settle()
    run.submit([8] * 40, max_new_tokens=1, ignore_eos=True)  # the end of A has to go for it
    run.settle()
    kept = int(run.cache.peek([CacheKey(namespace=NAMESPACE, tokens=np.array(A, dtype=np.int32))])[0])
    assert 0 < kept < 40
    rid = run.submit(A, max_new_tokens=4, ignore_eos=True)
    run.scheduler.ingest()
    run.scheduler.poll()
    assert run.tiers.gate.pending == 1
    assert run.scheduler.state().protected > 0
    run.abort(rid)
    run.scheduler.ingest()
    run.scheduler.idle()
    run.scheduler.check_invariants()
    run.settle()
    run.assert_at_rest()


def test_a_flush_waits_for_a_load_that_nobody_wants_any_more() -> None:
    run, rid = slow_load()
    run.inbox.send(FlushCacheRequest(control_id=1))
    run.scheduler.ingest()
    run.collect()
    assert not run.replies[0].ok  # somebody waits
    run.abort(rid)
    run.inbox.send(FlushCacheRequest(control_id=2))
    run.scheduler.ingest()
    run.collect()
    assert len(run.replies) == 1
    run.settle()
    run.collect()
    assert run.replies[1].ok
    state = run.scheduler.state()
    assert state.free == state.total
    assert run.tiers.numbers()["t0"]["blocks"] == 0


def test_a_flush_empties_the_tiers() -> None:
    tier = DictTier(RULES[0])
    run = TieredRun(tier, copy_us=1e6)
    run.submit(A, max_new_tokens=1, ignore_eos=True)
    run.run()
    assert run.tiers.pending  # a copy to the tier is under way
    run.inbox.send(FlushCacheRequest(control_id=1))
    run.settle()
    assert not tier.blocks


def test_memory_that_is_promised_is_not_taken_for_a_load() -> None:
    tier = DictTier(RULES[0])
    run = TieredRun(tier)
    run.submit(A, max_new_tokens=1, ignore_eos=True)
    run.settle()
    fill(run)
    run.submit([9] * 10, max_new_tokens=30, ignore_eos=True)
    run.turn()
    rid = run.submit(A, max_new_tokens=4, ignore_eos=True)
    run.settle()
    assert run.loads["no_room"] == 1
    assert run.answers[rid].ids == answers([A], 4)[0]


def test_a_copy_that_fails_costs_nothing_but_time() -> None:
    failing = False
    run = TieredRun(DictTier(RULES[0]), fails=lambda: failing)
    run.submit(A, max_new_tokens=1, ignore_eos=True)
    run.settle()
    fill(run)
    failing = True
    longer = [*A, *range(200, 210)]  # a block that no tier has: it is copied down, or would be
    rid = run.submit(longer, max_new_tokens=4, ignore_eos=True)
    run.settle()
    assert run.loads["failed"] == 1
    assert run.loads["copies_failed"] >= 1
    assert run.answers[rid].ids == answers([longer], 4)[0]
    run.assert_at_rest()


def test_the_state_tells_the_numbers() -> None:
    run = TieredRun(DictTier(RULES[0]))
    run.submit(A, max_new_tokens=1, ignore_eos=True)
    run.settle()
    data = run.scheduler.state().as_data()
    assert data["tier_t0_writes"] == 5
    assert data["tier__loads"] == 0


def test_close_reaches_the_tiers_with_what_is_under_way() -> None:
    tier = DictTier(RULES[0])
    run = TieredRun(tier, copy_us=1.0)
    run.submit(A, max_new_tokens=1, ignore_eos=True)
    run.run()
    run.scheduler.close()
    assert len(tier.blocks) == 5
    assert tier.closed


def test_close_waits_for_one_copy_behind_the_other() -> None:
    tier = DictTier(RULES[0])
    run = TieredRun(tier, total=256, copy_us=1e5)
    for i in range(3):
        run.submit([50 + i] * 16, max_new_tokens=1, ignore_eos=True)
    run.run()
    assert run.tiers.pending > 1
    run.scheduler.close()
    assert len(tier.blocks) == 6


def unsteady(draw: Callable[[], float], rate: float) -> Callable[[str], bool]:
    def plan(what: str) -> bool:
        drawn = draw()
        if what != "clear" and drawn < rate / 2:
            raise OSError(f"{what} failed")
        return drawn >= rate

    return plan


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_random_lives_with_tiers_that_fail(data: st.DataObject) -> None:
    """Whatever tiers and copies do, answers are those without tiers, sums hold after every step, and every block in a tier
    is right, against a model that knows each sequence's KV."""
    import random

    rng = random.Random(data.draw(st.integers(0, 2**32), label="seed"))
    rate = rng.choice([0.0, 0.1, 0.4])
    tiers = [DictTier(rng.choice(RULES), unsteady(rng.random, rate)) for _ in range(rng.choice([1, 2]))]
    page_size = rng.choice([1, 4])
    run = TieredRun(
        *tiers,
        page_size=page_size,
        total=rng.choice([64, 96]),
        copy_us=rng.choice([0.0, 1e3, 1e5, 1e6]),
        fails=lambda: rng.random() < rate / 2,
        max_prefill_tokens=rng.choice([16, 4096]),
    )
    families = [[i + 1] * 24 + list(range(40, 60)) for i in range(3)]
    wanted: dict[str, tuple[list[int], int]] = {}
    for number in range(30):
        family = rng.choice(families)
        prompt = family[: rng.randint(1, 44)] + [rng.randint(100, 103)] * rng.choice([0, 3, 12])
        count = rng.randint(1, 6)
        rid = run.submit(prompt, max_new_tokens=count, ignore_eos=True)
        wanted[rid] = (prompt, count)
        if rng.random() < 0.15:
            run.abort(rng.choice(sorted(wanted)))
        if rng.random() < 0.05:
            run.inbox.send(FlushCacheRequest(control_id=number))
        for _ in range(rng.choice([0, 1, 3, 8])):
            run.turn()
            run.scheduler.check_invariants()
    run.settle()
    run.assert_at_rest()
    sequences = []
    expected = answers([prompt for prompt, _ in wanted.values()], 6)
    for (rid, (prompt, count)), tokens in zip(wanted.items(), expected, strict=True):
        ids = run.answers[rid].ids
        assert ids == tokens[: len(ids)]
        finish = run.answers[rid].finish
        assert finish is not None
        assert len(ids) == count or finish.type == "abort"
        sequences.append(prompt + tokens)
    for tier in tiers:
        run.check_blocks(tier, sequences)
    TOTALS["loads"] += run.loads["loads"]
    TOTALS["failed"] += run.loads["failed"] + run.loads["gone"]


TOTALS = {"loads": 0, "failed": 0}


def test_the_random_lives_did_load() -> None:
    assert TOTALS["loads"] > 10
    assert TOTALS["failed"] > 0


def test_an_idle_scheduler_with_tiers_has_nothing_to_wait_for() -> None:
    from jackfield.hookspecs import Wake

    run = TieredRun(DictTier(RULES[0]))
    assert run.turn() is StepOutcome.IDLE
    assert run.scheduler.wait() is Wake.NOTHING
