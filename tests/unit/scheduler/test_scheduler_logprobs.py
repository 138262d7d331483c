"""Log-probabilities through the scheduler: one entry a token and one a wanted prompt position, whatever the chunks, caches,
loops and neighbours; and results that do not match are found."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jackfield.hookspecs import Logprobs, WorkerLimits
from jackfield.ipc.messages import LogprobParams, TokenLogprobs
from jackfield.managers.scheduler.logprobs import BadLogprobs
from jackfield.testing.page_cache import NoSharingCache, PageCache
from jackfield.testing.scheduler_fakes import FakeWorker, extend_hash
from jackfield.testing.scheduler_harness import Answer, SchedulerHarness
from jackfield.testing.scheduler_logprobs import Entry, LogprobWorker, expected_entry
from jackfield_scheduler_loops.overlap import OverlapLoop

VOCAB = 500


def harness(page_size: int = 1, width: int = 1, cache: Any = PageCache, **config: Any) -> SchedulerHarness:
    limits = WorkerLimits(
        max_rows=6, max_context=96, total_slots=256, page_size=page_size, vocab_size=VOCAB, max_tokens=64
    )
    settings = {
        "context_length": 96,
        "max_running_requests": 5,
        "vocab_size": VOCAB,
        "max_prefill_tokens": 64,
        **config,
    }
    return SchedulerHarness(worker=LogprobWorker(limits, width=width), cache=cache(page_size), **settings)


def unpack(entries: list[TokenLogprobs], top: int, ids: int) -> list[Entry]:
    found: list[Entry] = []
    for part in entries:
        chosen = np.frombuffer(part.chosen, "<f4")
        n = len(chosen)
        values = np.frombuffer(part.top_values, "<f4").reshape(n, top)
        tokens = np.frombuffer(part.top_ids, "<i4").reshape(n, top)
        others = np.frombuffer(part.ids_values, "<f4").reshape(n, ids)
        for i in range(n):
            likeliest = list(zip(values[i].tolist(), tokens[i].tolist(), strict=True))
            found.append((float(chosen[i]), likeliest, others[i].tolist()))
    return found


def expected(tokens: list[int], begin: int, wanted: LogprobParams) -> list[Entry]:
    """The entries of tokens[begin:]."""
    found, state = [], 0
    for position, token in enumerate(tokens):
        if position >= begin:
            found.append(expected_entry(state, token, wanted.top, wanted.ids, VOCAB))
        state = extend_hash(state, token)
    return found


def check(answer: Answer, prompt: list[int], wanted: LogprobParams | None, whole: bool = True) -> None:
    outputs = [entry.logprobs for entry in answer.entries if entry.logprobs is not None]
    prompts = [entry.prompt_logprobs for entry in answer.entries if entry.prompt_logprobs is not None]
    if wanted is None:
        assert not outputs
        assert not prompts
        return
    for entry in answer.entries:
        assert len(entry.ids) == (0 if entry.logprobs is None else len(entry.logprobs.chosen) // 4)
    top, ids = wanted.top, len(wanted.ids)
    assert unpack(outputs, top, ids) == expected([*prompt, *answer.ids], len(prompt), wanted)
    found, right = unpack(prompts, top, ids), expected(prompt, wanted.start + 1, wanted)
    assert found == (right if whole else right[: len(found)])


def test_outputs_only_costs_no_prompt_entry_and_leaves_the_cache_alone() -> None:
    run = harness()
    prompt = list(range(1, 21))
    wanted = LogprobParams(start=20, top=2, ids=(3, 9))
    first = run.submit(prompt, max_new_tokens=4)
    run.run()
    second = run.submit(prompt, max_new_tokens=4, logprobs=wanted)
    run.run()
    check(run.answers[first], prompt, None)
    check(run.answers[second], prompt, wanted)
    assert run.answers[second].last.cached_tokens == 19


@pytest.mark.parametrize("page_size", [1, 4, 16])
@pytest.mark.parametrize("start", [0, 7, 8, 19])
def test_the_cache_serves_a_prompt_up_to_the_first_wanted_entry(start: int, page_size: int) -> None:
    run = harness(page_size)
    prompt = list(range(1, 21))
    run.submit(prompt, max_new_tokens=1)
    run.run()
    wanted = LogprobParams(start=start, top=1)
    rid = run.submit(prompt, max_new_tokens=3, logprobs=wanted)
    run.run()
    check(run.answers[rid], prompt, wanted)
    assert run.answers[rid].last.cached_tokens == start // page_size * page_size


@pytest.mark.parametrize("max_new_tokens", [0, 1, 5])
def test_a_prompt_in_chunks_gives_each_entry_once(max_new_tokens: int) -> None:
    run = harness(max_prefill_tokens=3)
    prompt = [(7 * i) % 90 for i in range(32)]
    wanted = LogprobParams(start=0, top=3, ids=(1,))
    rid = run.submit(prompt, max_new_tokens=max_new_tokens, logprobs=wanted)
    run.run()
    check(run.answers[rid], prompt, wanted)
    assert len([entry for entry in run.answers[rid].entries if entry.prompt_logprobs is not None]) >= 10
    assert len(run.answers[rid].ids) == max_new_tokens


@pytest.mark.parametrize("cache", [PageCache, NoSharingCache])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize(("depth", "width"), [(1, 1), (2, 1), (3, 1), (1, 4), (3, 4)])
def test_entries_are_the_same_in_any_company(depth: int, width: int, page_size: int, cache: Any) -> None:
    run = harness(page_size, width, cache, max_prefill_tokens=13)
    loop = OverlapLoop(run.scheduler, depth)
    rng = random.Random(depth + width)
    sent: dict[str, LogprobParams | None] = {}
    aborted = set()
    while len(sent) < 50:
        if rng.random() < 0.4:
            prompt = [letter for _ in range(rng.randint(1, 4)) for letter in [rng.randint(1, 2)] * 11]
            wanted = None
            if rng.random() < 0.7:
                start = rng.choice([len(prompt), 0, rng.randrange(len(prompt))])
                wanted = LogprobParams(start=start, top=rng.randint(0, 3), ids=tuple(range(rng.randint(0, 3))))
            stops = tuple(range(0, VOCAB, 11)) if rng.random() < 0.5 else ()
            rid = run.submit(prompt, max_new_tokens=rng.randint(0, 12), stop_token_ids=stops, logprobs=wanted)
            sent[rid] = wanted
        if sent and rng.random() < 0.1:
            aborted.add(rng.choice(list(sent)[-4:]))
            run.abort(list(aborted)[-1])
        loop.step()
        run.collect()
    while (state := run.scheduler.state()).running or state.waiting or state.in_flight:
        loop.step()
        run.collect()
    for rid, wanted in sent.items():
        answer = run.answers[rid]
        assert answer.finish is not None
        check(answer, run.prompts[rid], wanted, whole=answer.finish.type != "abort")
    run.assert_at_rest()


def broken(entries: Logprobs, how: str) -> Logprobs | None:
    if how == "none":
        return None
    if how == "rows":
        return replace(entries, starts=entries.starts[:-1])
    if how == "prompt":
        return replace(entries, prompt=entries.prompt - 1)
    if how == "top":
        return replace(entries, top_ids=entries.top_ids[:, :1])
    return replace(entries, ids_starts=np.zeros_like(entries.ids_starts))


@pytest.mark.parametrize("how", ["none", "rows", "prompt", "top", "ids"])
def test_entries_that_do_not_match_stop_the_replica(how: str) -> None:
    run = harness()
    worker: Any = run.worker
    plain = worker.sample

    def sample(launched: Any, masks: Any = None) -> Any:
        pending = plain(launched, masks)
        result = pending.result()
        pending._result = replace(result, logprobs=broken(result.logprobs, how))
        return pending

    worker.sample = sample
    run.submit([1, 2, 3, 4], max_new_tokens=3, logprobs=LogprobParams(start=0, top=2, ids=(5,)))
    with pytest.raises(BadLogprobs):
        run.turn()


def test_a_failed_row_needs_no_entries() -> None:
    run = harness()
    assert isinstance(run.worker, FakeWorker)
    run.worker.failing.add(1)
    wanted = LogprobParams(start=0, top=2)
    bad = run.submit([1, 2, 3], max_new_tokens=3, logprobs=wanted)
    good = run.submit([4, 5, 6], max_new_tokens=3, logprobs=wanted)
    run.run()
    finish = run.answers[bad].finish
    assert finish is not None
    assert finish.status_code == 500
    check(run.answers[good], [4, 5, 6], wanted)


@pytest.mark.parametrize("cache", [PageCache, NoSharingCache])
@pytest.mark.parametrize("page_size", [1, 16])
def test_a_retraction_in_mid_prefill_repeats_and_loses_none(page_size: int, cache: Any) -> None:
    run = harness(page_size, cache=cache, max_prefill_tokens=5)
    rng = random.Random(page_size)
    prompts = [[(7 * i + j) % 90 for i in range(20 + 5 * j)] for j in range(4)]
    wants = [LogprobParams(start=start, top=1) for start in (0, 3, 17, 35)]
    sent = [
        run.submit(prompt, max_new_tokens=6, logprobs=wanted) for prompt, wanted in zip(prompts, wants, strict=True)
    ]
    in_prefill = 0
    while run.scheduler.state().running or run.scheduler.state().waiting or not run.answers:
        run.turn()
        running = run.scheduler._running
        if len(running) and rng.random() < 0.3:
            row = rng.randrange(len(running))
            in_prefill += 0 < running["written"][row] < running["prompt_tokens"][row]
            run.scheduler._retraction.retract(np.array([row], dtype=np.intp), 0, run.clock.now())
            run.scheduler.check_invariants()
    assert in_prefill > 1
    for rid, prompt, wanted in zip(sent, prompts, wants, strict=True):
        check(run.answers[rid], prompt, wanted)
        assert len(run.answers[rid].ids) == 6
    assert sum(run.answers[rid].last.retractions for rid in sent) > 4
    run.assert_at_rest()
