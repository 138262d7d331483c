"""The simulated worker by hand-made batches: tokens, scripts and time."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from plugins.worker.simulated.tests.batches import (
    EOS,
    PROMPT,
    VOCAB,
    batch,
    generate,
    ints,
    make,
    opening,
    run,
    writing,
)
from pydantic import ValidationError

from jackfield.hookspecs import (
    WorkerOp,
)
from jackfield.observability.clock import ManualClock
from jackfield.testing.conformance import WorkerConformance
from jackfield_worker_simulated.errors import SimulationError
from jackfield_worker_simulated.options import SimulatedOptions


class TestConformance(WorkerConformance):
    plugin = "simulated"


def test_the_same_request_gets_the_same_tokens_and_another_one_others() -> None:
    worker = make()
    made = generate(worker, PROMPT, 12)
    assert all(0 <= token < VOCAB and token not in EOS for token in made)
    assert generate(worker, PROMPT, 12, row=2, uid=2) == made
    assert generate(make(), PROMPT, 12, row=3, uid=9) == made
    assert generate(worker, [*PROMPT[:-1], 17], 12, uid=5) != made
    assert len(set(made)) > 4


def test_draws_cover_the_vocabulary_evenly_and_leave_out_end_tokens() -> None:
    worker = make()
    seen = [token for uid in range(1, 30) for token in generate(worker, [uid], 40, uid=uid)]
    assert set(seen).isdisjoint(EOS)
    assert len(set(seen)) > 90


def test_chunks_batching_and_a_shared_prefix_change_nothing() -> None:
    expected = generate(make(), PROMPT, 3)
    other = generate(make(), [50, 51], 2)
    worker = make(verify="all")
    first = batch(
        1,
        (1, 0, PROMPT[:2]),
        (2, 0, [50, 51]),
        sample=[False, True],
        opened=(opening(1, 1, PROMPT), opening(2, 2, [50, 51])),
        writes=writing((1, 0, [10, 11]), (2, 0, [30, 31])),
    )
    chunk, made_other = run(worker, first)
    assert chunk == []
    second = batch(
        2,
        (1, 2, PROMPT[2:]),
        (2, 2, made_other),
        writes=writing((1, 2, [12, 13, 14, 15]), (2, 2, [32])),
    )
    made, more_other = run(worker, second)
    assert made_other + more_other == other
    assert made == expected[:1]
    # A third request reads the first one's prefix and computes the rest; the first goes on by relay.
    third = batch(
        3,
        (1, 6, [0]),
        (3, 4, PROMPT[4:]),
        relay=[True, False],
        opened=(opening(3, 3, PROMPT),),
        writes=writing((1, 6, [16]), (3, 0, [10, 11, 12, 13]), (3, 4, [40, 41])),
    )
    assert run(worker, third) == [expected[1:2], expected[:1]]


def test_a_row_that_reopens_with_its_outputs_goes_on_as_before() -> None:
    expected = generate(make(), PROMPT, 5)
    assert generate(make(), [*PROMPT, *expected[:2]], 3, uid=7) == expected[2:]


def test_seeds_count_above_temperature_0_only() -> None:
    worker = make()

    def first(uid: int, **sampling: Any) -> int:
        opened = (opening(1, uid, PROMPT, **sampling),)
        made = run(worker, batch(uid, (1, 0, PROMPT), opened=opened, writes=writing((1, 0, range(10, 16)))))[0][0]
        run(worker, batch(uid + 1, closed=ints([1])))
        return made

    greedy = first(1)
    assert first(10, seed=5) == greedy
    warm = [first(20 + 10 * seed, temperature=0.7, seed=seed) for seed in range(6)]
    assert len(set(warm)) > 3
    assert first(200, temperature=0.7, seed=2) == warm[2]


def test_ragged_results_stand_in_batch_order() -> None:
    worker = make()
    what = batch(
        1,
        (3, 0, [1]),
        (1, 0, [1, 2]),
        (2, 0, [1]),
        sample=[True, False, True],
        opened=(opening(1, 1, [1, 2, 3]), opening(2, 2, [1]), opening(3, 3, [1])),
        writes=writing((1, 0, [10, 11]), (2, 0, [20]), (3, 0, [30])),
    )
    result = worker.sample(worker.launch(what)).result()
    assert result.starts.tolist() == [0, 1, 1, 2]
    assert result.tokens.dtype == result.starts.dtype == np.int32
    assert result.tokens[0] == result.tokens[1]


# scripts


def test_a_script_of_ids_and_texts_is_played_by_request_number() -> None:
    def encode(text: str) -> list[int]:
        return [ord(c) - 64 for c in text]

    worker = make(script=[[7, 8], "AZ"], encode=encode)
    assert generate(worker, PROMPT, 4, uid=1) == [7, 8, 2, 2]
    assert generate(worker, PROMPT, 4, uid=2) == [1, 26, 2, 2]
    assert generate(worker, [5], 3, uid=3) == [7, 8, 2]
    assert generate(make(script="BB", encode=encode), [5], 3, uid=6) == [2, 2, 2]
    assert generate(make(script="", encode=encode), [5], 1, uid=6) == [2]


def test_b67_a_script_ends_nobody_before_their_time() -> None:
    worker = make(script=[[7]])
    held = generate(worker, [5], 6, min_new_tokens=4, end_ids=ints([2, 9]))
    assert held[0] == 7
    assert not {2, 9} & set(held[:4])
    assert held[4:] == [2, 2]
    assert generate(make(script=[[7]]), [5], 6, min_new_tokens=4, end_ids=ints([2, 9])) == held
    assert generate(worker, [5], 3, uid=2) == [7, 2, 2]  # nothing of it is left in the row


def test_b67_a_draw_ends_nobody_before_their_time_after_a_retraction_neither() -> None:
    free = generate(make(), PROMPT, 4)
    held = generate(make(), PROMPT, 4, min_new_tokens=2, end_ids=ints(free))
    assert not set(free) & set(held[:2])
    again = [*PROMPT, held[0]]
    what = batch(
        1,
        (2, 0, again),
        opened=(opening(2, 4, again, outputs=1, min_new_tokens=2, end_ids=ints(free)),),
        writes=writing((2, 0, range(20, 27))),
    )
    assert run(make(), what) == [[held[1]]]


def test_a_request_that_every_token_would_end_too_early_fails_alone() -> None:
    worker = make()
    everything = ints(range(VOCAB))
    what = batch(
        1,
        (1, 0, [5]),
        (2, 0, [6]),
        opened=(opening(1, 1, [5]), opening(2, 2, [6], min_new_tokens=1, end_ids=everything)),
        writes=writing((1, 0, [10]), (2, 0, [11])),
    )
    assert set(worker.sample(worker.launch(what)).result().errors) == {1}


def test_a_script_goes_on_after_a_retraction() -> None:
    worker = make(script=[[7, 8, 9]])
    run(
        worker,
        batch(1, (1, 0, PROMPT), opened=(opening(1, 4, PROMPT),), writes=writing((1, 0, range(10, 16)))),
    )
    again = [*PROMPT, 7]
    what = batch(
        2, (2, 0, again), closed=ints([1]), opened=(opening(2, 4, again),), writes=writing((2, 0, range(20, 27)))
    )
    assert run(worker, what) == [[8]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"script": "text"}, "no tokenizer"),
        ({"script": [[1], [VOCAB]]}, "entry 1 has id 100"),
        ({"script": [[-1]]}, "entry 0 has id -1"),
        ({"script": []}, "empty"),
        ({"script": [[1]], "eos_ids": ()}, "no end token"),
        ({"realtime": True, "clock": ManualClock()}, "virtual clock"),
        ({"page_size": 16, "max_total_tokens": 15}, "less than one page"),
    ],
)
def test_options_that_cannot_work_stop_the_start(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.parametrize("options", [{"base_us": -1}, {"base_us": float("inf")}, {"verify": "most"}, {"scirpt": "a"}])
def test_ill_typed_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SimulatedOptions(**options)


# time


def test_steps_take_their_time_on_the_virtual_clock() -> None:
    clock = ManualClock(5.0)
    worker = make(
        clock=clock,
        base_us=1000,
        prefill_us_per_token=100,
        prefill_us_per_million_pairs=1e6,
        decode_us_per_row=10,
        kv_us_per_context_token=1,
    )
    prefill = batch(1, (1, 0, PROMPT), opened=(opening(1, 1, PROMPT),), writes=writing((1, 0, range(10, 17))))
    pending = worker.sample(worker.launch(prefill))
    took = (1000 + 6 * 100 + 21 + 6) / 1e6
    assert not pending.ready()
    assert clock.now() == 5.0
    token = int(pending.result().tokens[0])
    assert pending.ready()
    assert clock.now() == pytest.approx(5.0 + took, abs=1e-12)

    decode = worker.sample(worker.launch(batch(2, (1, 6, [token]))))
    clock.advance(0.0001)
    second = worker.sample(worker.launch(batch(3, (1, 7, [0]), relay=[True], writes=writing((1, 7, [17])))))
    with pytest.raises(TimeoutError):
        second.result(timeout=0.001)
    assert clock.now() == pytest.approx(5.0 + took + 0.0011, abs=1e-12)
    decode.result()
    second.result()  # it began when the first had ended
    assert clock.now() == pytest.approx(5.0 + took + (1000 + 10 + 7) / 1e6 + (1000 + 10 + 8) / 1e6, abs=1e-12)
    second.result()
    assert clock.now() == pytest.approx(5.0 + took + 0.002035, abs=1e-12)


def test_without_a_clock_no_time_passes() -> None:
    worker = make(base_us=1e9)
    what = batch(1, (1, 0, [5]), opened=(opening(1, 1, [5]),), writes=writing((1, 0, [10])))
    pending = worker.sample(worker.launch(what))
    assert pending.ready()
    assert len(pending.result(timeout=0).tokens) == 1


def test_realtime_waits_on_the_wall_clock() -> None:
    what = batch(1, (1, 0, [5]), opened=(opening(1, 1, [5]),), writes=writing((1, 0, [10])))
    hours = make(base_us=1e12, realtime=True)
    pending = hours.sample(hours.launch(what))
    assert not pending.ready()
    with pytest.raises(TimeoutError):
        pending.result(timeout=0)
    moment = make(base_us=1000, realtime=True)
    pending = moment.sample(moment.launch(what))
    pending.result()
    assert pending.ready()


def test_a_prefill_with_a_cached_prefix_costs_less_than_a_cold_one() -> None:
    from jackfield_worker_simulated.cost import step_seconds

    options = SimulatedOptions()
    cold = step_seconds(options, ints([1000]), ints([0]))
    warm = step_seconds(options, ints([200]), ints([800]))
    assert warm < cold
    assert step_seconds(options, ints([1] * 8), ints([100] * 8)) < 8 * step_seconds(options, ints([1]), ints([100]))


# limits, control, imports


def test_limits_say_what_the_context_asked_for() -> None:
    limits = make(page_size=16, max_total_tokens=100).limits
    assert (limits.max_rows, limits.max_context, limits.total_slots, limits.page_size) == (5, 64, 96, 16)
    assert (limits.vocab_size, limits.max_tokens, limits.kv_bytes_per_slot) == (VOCAB, 48, 0)
    assert make(max_total_tokens=None).limits.total_slots == 65536


def test_reset_forgets_the_contents_but_not_under_open_rows() -> None:
    worker = make()
    run(worker, batch(1, (1, 0, [5]), opened=(opening(1, 1, [5, 6]),), sample=[False], writes=writing((1, 0, [10]))))
    refused = worker.control(WorkerOp(name="reset"))
    assert not refused.ok
    assert "1 rows" in refused.message
    run(worker, batch(2, closed=ints([1])))
    assert worker.control(WorkerOp(name="reset")).ok
    reuse = batch(3, (1, 1, [6]), opened=(opening(1, 2, [5, 6]),), writes=writing((1, 0, [10, 11])))
    with pytest.raises(SimulationError, match="holds nothing"):
        worker.launch(reuse)
    unknown = worker.control(WorkerOp(name="capture"))
    assert not unknown.ok
    assert "capture" in unknown.message
    worker.close()
    worker.close()


def test_no_torch_is_imported() -> None:
    code = (
        "import sys, jackfield_worker_simulated.simulated, jackfield_worker_simulated.worker\n"
        "assert not {'torch', 'transformers'} & set(sys.modules), 'torch was imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
