"""Every misuse of slots, rows and steps that the simulated worker must find."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from plugins.worker.simulated.tests.batches import (
    PROMPT,
    VOCAB,
    batch,
    generate,
    ints,
    make,
    opening,
    run,
    split,
    writing,
)

from jackfield.hookspecs import Launched, ModelWorkerBatch, TokenMasks
from jackfield_worker_simulated.errors import SimulationError
from jackfield_worker_simulated.worker import SimulatedWorker

WORDS = -(-VOCAB // 32)


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
    worker.sample(two[1])


@pytest.mark.parametrize(
    ("rows", "bits", "message"),
    [
        ([1], np.zeros((1, 2), dtype=np.uint32), "uint32"),
        ([1], np.full((1, WORDS), 1, dtype=np.int32), "int32"),
        ([7], np.full((1, WORDS), 1, dtype=np.uint32), "row 7, which is not sampled"),
        ([1, 1], np.full((2, WORDS), 1, dtype=np.uint32), "two token masks"),
        ([1], np.zeros((1, WORDS), dtype=np.uint32), "allows nothing"),
        ([1], np.full((1, WORDS), 0xFFFFFFFF, dtype=np.uint32), "beyond the vocabulary"),
    ],
)
def test_masks_that_do_not_fit(rows: list[int], bits: Any, message: str) -> None:
    worker = started()
    step = worker.launch(batch(2, (1, 6, [NEXT]), writes=PLACE))
    with pytest.raises(SimulationError, match=message):
        worker.sample(step, TokenMasks(rows=np.array(rows, dtype=np.int32), bits=bits))


def test_a_mask_chooses_for_its_row_alone() -> None:
    worker = started()
    bits = np.zeros((1, WORDS), dtype=np.uint32)
    bits[0, 1] = 1 << 5
    masks = TokenMasks(rows=np.array([1], dtype=np.int32), bits=bits)
    assert worker.sample(worker.launch(batch(2, (1, 6, [NEXT]), writes=PLACE)), masks).result().tokens.tolist() == [37]


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
