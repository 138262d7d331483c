"""The simulated worker by hand-made batches: tokens, scripts, time, and every misuse that it must find."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from jackfield.hookspecs import (
    Launched,
    ModelWorker,
    ModelWorkerBatch,
    RowOpen,
    RowWrites,
    Shard,
    WorkerContext,
    WorkerOp,
    WorkerResult,
)
from jackfield.observability.clock import ManualClock
from jackfield.testing.conformance import WorkerConformance
from jackfield_worker_simulated.errors import SimulationError
from jackfield_worker_simulated.options import SimulatedOptions
from jackfield_worker_simulated.simulated import jackfield_model_worker
from jackfield_worker_simulated.worker import SimulatedWorker

VOCAB = 100
EOS = (2, 3)


class TestConformance(WorkerConformance):
    plugin = "simulated"


def ints(values: Sequence[int]) -> NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


def make(
    *,
    page_size: int = 1,
    clock: ManualClock | None = None,
    encode: Callable[[str], list[int]] | None = None,
    eos_ids: tuple[int, ...] = EOS,
    max_total_tokens: int | None = 512,
    **options: Any,
) -> ModelWorker:
    return jackfield_model_worker(
        WorkerContext(
            kind="worker",
            name="simulated",
            instance="simulated",
            options=SimulatedOptions(**options),
            shard=Shard(),
            device="cpu",
            dtype="float32",
            seed=0,
            page_size=page_size,
            max_running=4,
            max_total_tokens=max_total_tokens,
            max_context=64,
            max_tokens=48,
            vocab_size=VOCAB,
            eos_ids=eos_ids,
            encode=encode,
            clock=clock,
        )
    )


def opening(row: int, uid: int, history: Sequence[int], **sampling: Any) -> RowOpen:
    values: dict[str, Any] = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 0}
    return RowOpen(row=row, uid=uid, history=ints(history), **(values | sampling))


def writing(*runs: tuple[int, int, Sequence[int]]) -> RowWrites:
    """Runs of (row, start, slots)."""
    return RowWrites(
        rows=ints([row for row, _, _ in runs]),
        starts=ints([start for _, start, _ in runs]),
        lengths=ints([len(slots) for _, _, slots in runs]),
        slots=ints([slot for _, _, slots in runs for slot in slots]),
    )


def batch(
    step: int,
    *parts: tuple[int, int, Sequence[int]],
    relay: Sequence[bool] | None = None,
    sample: Sequence[bool] | None = None,
    **more: Any,
) -> ModelWorkerBatch:
    """Parts of (row, computed, token ids)."""
    return ModelWorkerBatch(
        step=step,
        rows=ints([row for row, _, _ in parts]),
        computed=ints([computed for _, computed, _ in parts]),
        new_tokens=ints([len(ids) for _, _, ids in parts]),
        token_ids=ints([token for _, _, ids in parts for token in ids]),
        relay=np.array([False] * len(parts) if relay is None else relay, dtype=np.bool_),
        sample=np.array([True] * len(parts) if sample is None else sample, dtype=np.bool_),
        **more,
    )


def run(worker: ModelWorker, what: ModelWorkerBatch) -> list[list[int]]:
    return split(worker.sample(worker.launch(what)).result())


def split(result: WorkerResult) -> list[list[int]]:
    return [part.tolist() for part in np.split(result.tokens, result.starts[1:-1])]


def generate(
    worker: ModelWorker, prompt: Sequence[int], count: int, *, row: int = 1, uid: int = 1, **fields: Any
) -> list[int]:
    """One request alone, in row `row`, in slots of its own, closed again."""
    base = row * 64
    made = run(
        worker,
        batch(
            uid * 1000,
            (row, 0, prompt),
            opened=(opening(row, uid, prompt, **fields),),
            writes=writing((row, 0, range(base, base + len(prompt)))),
        ),
    )[0]
    for i in range(count - 1):
        at = len(prompt) + i
        made += run(worker, batch(uid * 1000 + i + 1, (row, at, [made[-1]]), writes=writing((row, at, [base + at]))))[0]
    run(worker, batch(uid * 1000 + count, closed=ints([row])))
    return made


PROMPT = [11, 12, 13, 14, 15, 16]


# tokens


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


# what must be found


def started(**options: Any) -> SimulatedWorker:
    """Row 1 holds uid 1 with PROMPT computed into slots 10..15 and one token sampled."""
    worker = make(**options)
    assert isinstance(worker, SimulatedWorker)
    run(worker, batch(1, (1, 0, PROMPT), opened=(opening(1, 1, PROMPT),), writes=writing((1, 0, range(10, 16)))))
    return worker


NEXT = generate(make(), PROMPT, 1)[0]
PLACE = writing((1, 6, [16]))

BAD: dict[str, tuple[ModelWorkerBatch, str]] = {
    "wrong computed": (batch(2, (1, 5, [PROMPT[5], NEXT]), writes=PLACE), "from 5 computed tokens and has 6"),
    "wrong token": (batch(2, (1, 6, [NEXT + 1]), writes=PLACE), "the batch says"),
    "no slot": (batch(2, (1, 6, [NEXT])), "no slot at position 6"),
    "beyond": (batch(2, (1, 6, [NEXT, 5]), writes=writing((1, 6, [16, 17]))), "beyond the 7 tokens"),
    "relay placeholder": (batch(2, (1, 6, [NEXT]), relay=[True], writes=PLACE), "placeholder 0"),
    "closed row": (batch(2, (2, 0, [5])), "row 2 is in the batch and is not open"),
    "same step": (batch(1, (1, 6, [NEXT]), writes=PLACE), "step 1 is launched after step 1"),
    "row twice": (batch(2, (1, 6, [NEXT]), (1, 6, [NEXT]), writes=PLACE), "twice"),
    "dummy row": (batch(2, (0, 0, [5])), "outside 1 .. 4"),
    "no such row": (batch(2, (5, 0, [5])), "outside 1 .. 4"),
    "negative id": (batch(2, (1, 6, [-1]), writes=PLACE), "outside 0 .. 99"),
    "id too high": (batch(2, (1, 6, [VOCAB]), writes=PLACE), "outside 0 .. 99"),
    "no tokens": (batch(2, (1, 6, [])), "no token"),
    "too long": (batch(2, (1, 60, [1, 2, 3, 4, 5])), "grows to 65"),
    "too many": (batch(2, (1, 6, [1] * 49)), "49 new tokens"),
    "closes a closed row": (batch(2, closed=ints([2])), "row 2 is closed, and it is not open"),
    "closes twice": (batch(2, closed=ints([1, 1])), "closed twice"),
    "opens an open row": (batch(2, opened=(opening(1, 2, [5]),)), "uid 1 has it still"),
    "opens a uid twice": (batch(2, opened=(opening(2, 1, [5]),)), "has row 1 already"),
    "empty history": (batch(2, opened=(opening(2, 2, []),)), "0 tokens"),
    "bad history": (batch(2, opened=(opening(2, 2, [5, VOCAB]),)), "history has a token"),
    "bad temperature": (batch(2, opened=(opening(2, 2, [5], temperature=float("nan")),)), "temperature nan"),
    "bad top_p": (batch(2, opened=(opening(2, 2, [5], top_p=0.0),)), "top_p 0.0"),
    "bad seed": (batch(2, opened=(opening(2, 2, [5], seed=1 << 64),)), "64 bits"),
    "dummy page": (batch(2, (1, 6, [NEXT]), writes=writing((1, 6, [0]))), "outside 1 .. 512"),
    "beyond the pool": (batch(2, (1, 6, [NEXT]), writes=writing((1, 6, [513]))), "outside 1 .. 512"),
    "write beyond the row": (batch(2, (1, 6, [NEXT]), writes=writing((1, 63, [16, 17]))), "ends at position 65"),
    "write into a closed row": (batch(2, writes=writing((2, 0, [16]))), "row 2, which is not open"),
    "own slot again": (batch(2, (1, 6, [NEXT]), writes=writing((1, 6, [15]))), "row 1 position 5, row 1 position 6"),
    "rewritten wrongly": (batch(2, writes=writing((1, 0, [20]))), "slot 20, which holds nothing"),
    "rewritten in a wrong order": (batch(2, writes=writing((1, 0, [11]))), "holds another prefix"),
    "somebody else's slot": (
        batch(2, (2, 0, [5]), opened=(opening(2, 2, [5]),), writes=writing((2, 0, [12]))),
        "into slot 12, which the open rows use 2 times",
    ),
    "a wrong prefix": (
        batch(2, (2, 2, [5]), opened=(opening(2, 2, [11, 13, 5]),), writes=writing((2, 0, [10, 11]), (2, 2, [20]))),
        "token 1 from slot 11, which holds another prefix",
    ),
    "a prefix of another adapter": (
        batch(
            2,
            (2, 2, [5]),
            opened=(opening(2, 2, [11, 12, 5], adapter=1),),
            writes=writing((2, 0, [10, 11]), (2, 2, [20])),
        ),
        "token 0 from slot 10, which holds another prefix",
    ),
    "a prefix never computed": (
        batch(2, (2, 1, [12]), opened=(opening(2, 2, [11, 12]),), writes=writing((2, 0, [40, 41]))),
        "holds nothing",
    ),
    "relay of a prompt token": (
        batch(2, (2, 0, [0]), relay=[True], opened=(opening(2, 2, [5]),), writes=writing((2, 0, [20]))),
        "not sampled here",
    ),
    "samples a middle chunk": (
        batch(2, (2, 0, [5]), opened=(opening(2, 2, [5, 6]),), writes=writing((2, 0, [20]))),
        "samples before all of its 2 tokens",
    ),
    "waits for copies": (batch(2, (1, 6, [NEXT]), writes=PLACE, wait_for=(1,)), "waits for copies"),
    "inexact beginning": (
        batch(2, (2, 0, [5]), opened=(opening(2, 2, [5]),), writes=writing((2, 0, [20])), exact=False),
        "not exact",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_batch_is_found(name: str) -> None:
    bad, message = BAD[name]
    with pytest.raises(SimulationError, match=message):
        started().launch(bad)


def test_a_right_batch_is_not_refused() -> None:
    """The twin of the test above: what its batches deviate from does pass."""
    worker = started(verify="all")
    assert len(run(worker, batch(2, (1, 6, [NEXT]), writes=PLACE))[0]) == 1
    upper_bound = batch(3, (1, 8, [0]), relay=[True], writes=writing((1, 7, [17])), exact=False)
    assert len(run(worker, upper_bound)[0]) == 1


@pytest.mark.parametrize("field", ["rows", "new_tokens", "computed", "token_ids", "relay", "sample", "closed"])
def test_a_wrong_dtype_is_found(field: str) -> None:
    good = batch(2, (1, 6, [NEXT]), writes=PLACE)
    values = {name: getattr(good, name) for name in good.__dataclass_fields__}
    values[field] = values[field].astype(np.float64)
    with pytest.raises(SimulationError, match=f"{field} is float64"):
        started().launch(ModelWorkerBatch(**values))


def test_b55_overwriting_what_an_open_row_reads_is_found() -> None:
    """B55: eviction gave a leased slot to another request, while the first one still runs."""
    worker = started()
    thief = batch(2, (2, 0, [5, 6]), opened=(opening(2, 2, [5, 6]),), writes=writing((2, 0, [20, 13])))
    with pytest.raises(SimulationError, match="row 1 position 3, row 2 position 1"):
        worker.launch(thief)


def test_an_overwritten_prefix_is_found_at_its_next_use() -> None:
    """The cache handed out slots that it had lost in the meantime."""
    worker = started()
    run(worker, batch(2, closed=ints([1])))
    run(worker, batch(3, (2, 0, [5]), opened=(opening(2, 2, [5]),), writes=writing((2, 0, [11]))))
    reuse = batch(4, (1, 2, PROMPT[2:]), opened=(opening(1, 3, PROMPT),), writes=writing((1, 0, range(10, 16))))
    with pytest.raises(SimulationError, match="token 1 from slot 11, which holds another prefix"):
        worker.launch(reuse)


def test_rewriting_a_row_to_equal_content_is_fine_and_frees_the_old_slots() -> None:
    """What a commit with duplicates does: row 2 computed the same prefix and is pointed at row 1's slots."""
    worker = started(verify="all")
    same = batch(2, (2, 0, PROMPT), opened=(opening(2, 2, PROMPT),), writes=writing((2, 0, range(20, 26))))
    assert run(worker, same) == [[NEXT]]
    rewrite = batch(
        3,
        (2, 6, [NEXT]),
        (3, 0, [5]),
        opened=(opening(3, 3, [5]),),
        writes=writing((2, 0, range(10, 16)), (2, 6, [26]), (3, 0, [20])),
    )
    assert len(run(worker, rewrite)) == 2


def test_overlapping_runs_of_one_row_are_applied_in_order() -> None:
    worker = started()
    twice = batch(2, (1, 6, [NEXT]), writes=writing((1, 6, [30, 31]), (1, 6, [16]), (1, 7, [17])))
    run(worker, twice)
    run(worker, batch(3, (2, 0, [5, 6]), opened=(opening(2, 2, [5, 6]),), writes=writing((2, 0, [30, 31]))))


def test_slots_must_lie_in_whole_pages() -> None:
    def first(slots: Sequence[int]) -> ModelWorkerBatch:
        return batch(1, (1, 0, PROMPT), opened=(opening(1, 1, PROMPT),), writes=writing((1, 0, slots)))

    run(make(page_size=4), first([8, 9, 10, 11, 20, 21]))
    with pytest.raises(SimulationError, match="not its place in a page of 4"):
        make(page_size=4).launch(first([9, 10, 11, 12, 20, 21]))
    with pytest.raises(SimulationError, match="token 4 has slot 21"):
        make(page_size=4).launch(first([8, 9, 10, 11, 21, 22]))
    with pytest.raises(SimulationError, match="token 5 has slot 25"):
        make(page_size=4).launch(first([8, 9, 10, 11, 20, 25]))
    with pytest.raises(SimulationError, match=r"outside 4 \.\. 515"):
        make(page_size=4).launch(first([0, 1, 2, 3, 20, 21]))


def test_verify_off_looks_at_no_slots_and_still_at_tokens() -> None:
    worker = make(verify="off")
    what = batch(1, (1, 0, PROMPT), opened=(opening(1, 1, PROMPT),))
    assert run(worker, what) == [[NEXT]]
    with pytest.raises(SimulationError, match="the batch says"):
        worker.launch(batch(2, (1, 6, [NEXT + 1])))


def test_verify_all_rereads_every_row() -> None:
    """A slot that changes under a row without anybody writing it through a table: only `all` looks."""
    for verify, found in (("new", False), ("all", True)):
        worker = started(verify=verify)
        assert worker._kv is not None
        worker._kv._content[12] += np.uint64(1)
        step = batch(2, (1, 6, [NEXT]), writes=PLACE)
        if found:
            with pytest.raises(SimulationError, match="token 2 from slot 12"):
                worker.launch(step)
        else:
            worker.launch(step)


def test_each_launch_is_sampled_once_and_in_order() -> None:
    worker = started()
    other = Launched()
    with pytest.raises(SimulationError, match="not one of this worker"):
        worker.sample(other)
    two = [
        worker.launch(batch(2, (1, 6, [NEXT]), writes=PLACE)),
        worker.launch(batch(3, (2, 0, [5]), opened=(opening(2, 2, [5]),), writes=writing((2, 0, [20])))),
    ]
    with pytest.raises(SimulationError, match="step 3 is sampled before step 2"):
        worker.sample(two[1])
    worker.sample(two[0])
    with pytest.raises(SimulationError, match="twice"):
        worker.sample(two[0])
    with pytest.raises(SimulationError, match="masks"):
        worker.sample(two[1], masks=object())
    worker.sample(two[1])


def test_relaying_before_the_step_was_sampled_is_found() -> None:
    worker = started()
    worker.launch(batch(2, (1, 6, [NEXT]), writes=PLACE))
    early = batch(3, (1, 7, [0]), relay=[True], writes=writing((1, 7, [17])))
    with pytest.raises(SimulationError, match="nothing was sampled for it yet"):
        worker.launch(early)


def test_a_row_closed_in_flight_does_not_disturb_its_successor() -> None:
    worker = started()
    in_flight = worker.launch(batch(2, (1, 6, [NEXT]), writes=PLACE))
    successor = batch(3, (1, 0, [5]), closed=ints([1]), opened=(opening(1, 2, [5]),), writes=writing((1, 0, [30])))
    after = worker.launch(successor)
    assert len(worker.sample(in_flight).result().tokens) == 1
    assert split(worker.sample(after).result()) == [generate(make(), [5], 1)]
    assert worker.open_rows == 1


def test_a_closed_worker_launches_nothing() -> None:
    worker = started()
    worker.close()
    with pytest.raises(SimulationError, match="after close"):
        worker.launch(batch(2, (1, 6, [NEXT]), writes=PLACE))
