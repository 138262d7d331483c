"""What happens to logits before the draw: formulas, order, sameness in a batch and after a retraction,
and processors that fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import RepetitionPenaltyLogitsProcessor

from jackfield.hookspecs import LogitsProcessor, LogitsRow, ProcessorSource, RowOpen
from jackfield.model_executor.logits_pipeline import LogitsPipeline

VOCAB = 40
ROWS = 9


def opened(row: int, prompt: Sequence[int], outputs: Sequence[int] = (), **fields: Any) -> RowOpen:
    bias: Mapping[int, float] = fields.pop("bias", {})
    return RowOpen(
        row=row,
        uid=100 + row,
        history=np.array([*prompt, *outputs], dtype=np.int32),
        outputs=len(outputs),
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        seed=0,
        bias_ids=np.array(list(bias), dtype=np.int32),
        bias_values=np.array(list(bias.values()), dtype=np.float32),
        end_ids=np.array(fields.pop("end_ids", ()), dtype=np.int32),
        **fields,
    )


def run(pipeline: LogitsPipeline, logits: torch.Tensor, rows: Sequence[int], live: Any = None) -> torch.Tensor:
    live = np.ones(len(rows), dtype=np.bool_) if live is None else live
    at = np.array(rows, dtype=np.int32)
    pipeline.apply(logits, at, np.zeros(len(rows), dtype=np.int64), live)
    return logits


def drawn(pipeline: LogitsPipeline, rows: Sequence[int], ids: Sequence[int]) -> None:
    pipeline.tokens(np.array(rows, dtype=np.int32), torch.tensor(ids, dtype=torch.int64))


def random_logits(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn((count, VOCAB), generator=torch.Generator().manual_seed(seed)) * 5


def by_hand(logits: torch.Tensor, prompt: Sequence[int], outputs: Sequence[int], row: RowOpen) -> torch.Tensor:
    """One row, one token at a time, from the definitions: float32 arithmetic in the order that is promised."""
    out = logits.numpy().copy()
    counts, seen = Counter(outputs), {*prompt, *outputs}
    for token in range(VOCAB):
        if len(outputs) < row.min_new_tokens and token in row.end_ids:
            out[token] = -np.inf
        out[token] -= np.float32(counts[token]) * np.float32(row.frequency_penalty)
        out[token] -= np.float32(counts[token] > 0) * np.float32(row.presence_penalty)
        if token in seen:
            penalty = np.float32(row.repetition_penalty)
            out[token] = out[token] * penalty if out[token] < 0 else out[token] / penalty
    for token, bias in zip(row.bias_ids.tolist(), row.bias_values, strict=True):
        out[token] += bias
    return torch.from_numpy(out)


ids = st.lists(st.integers(0, VOCAB - 1), max_size=12)
penalty = st.sampled_from([0.0, 0.3, -1.5, 2.0])
REQUEST = st.fixed_dictionaries(
    {
        "prompt": st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12),
        "outputs": ids,
        "frequency_penalty": penalty,
        "presence_penalty": penalty,
        "repetition_penalty": st.sampled_from([1.0, 1.3, 0.5]),
        "bias": st.dictionaries(st.integers(0, VOCAB - 1), st.sampled_from([-100.0, 0.7, 100.0]), max_size=4),
        "min_new_tokens": st.integers(0, 6),
        "end_ids": st.lists(st.integers(0, VOCAB - 1), max_size=3, unique=True),
        "retracted_after": st.integers(0, 12),
    }
)


@settings(max_examples=60, deadline=None)
@given(requests=st.lists(REQUEST, min_size=1, max_size=4), data=st.data())
def test_b66_every_row_is_as_the_formulas_say_whatever_stands_beside_it(
    requests: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Rows come and go, get their tokens one by one or several at once, and are opened again with their outputs (R16)."""
    pipeline = LogitsPipeline(ROWS, VOCAB, "cpu")
    rows = data.draw(st.permutations(range(1, ROWS)))[: len(requests)]
    earlier = [
        opened(row, [1, 2, 3], [4], frequency_penalty=1.0, repetition_penalty=1.7, bias={5: 1.0}) for row in rows
    ]
    pipeline.open(earlier)  # whoever had the row before leaves nothing behind
    pipeline.close(np.array(rows, dtype=np.int32))
    for row, request in zip(rows, requests, strict=True):
        fields = dict(request)
        prompt, outputs, again = fields.pop("prompt"), fields.pop("outputs"), fields.pop("retracted_after")
        fields["end_ids"] = tuple(fields["end_ids"])
        pipeline.open([opened(row, prompt, **fields)])
        done = 0
        while done < len(outputs):
            some = outputs[done : done + data.draw(st.integers(1, 3))]
            drawn(pipeline, [row] * len(some), some)
            done += len(some)
            if done >= again:
                pipeline.close(np.array([row], dtype=np.int32))
                pipeline.open([opened(row, prompt, outputs[:done], **fields)])
                again = 99
    logits = random_logits(len(requests))
    changed = run(pipeline, logits.clone(), rows)
    for i, request in enumerate(requests):
        fields = {k: v for k, v in request.items() if k not in ("prompt", "outputs", "retracted_after")}
        settled = opened(rows[i], request["prompt"], **fields)
        wanted = by_hand(logits[i], request["prompt"], request["outputs"], settled)
        assert torch.equal(changed[i], wanted)
        alone = run(pipeline, logits[i : i + 1].clone(), [rows[i]])
        assert torch.equal(alone[0], wanted)


def test_b66_repetition_is_transformers_own() -> None:
    prompt, outputs = [3, 3, 7, 9], [7, 11]
    pipeline = LogitsPipeline(ROWS, VOCAB, "cpu")
    pipeline.open([opened(1, prompt, repetition_penalty=1.3)])
    drawn(pipeline, [1, 1], outputs)
    logits = random_logits(1)
    theirs: Any = RepetitionPenaltyLogitsProcessor(1.3)
    wanted = theirs(torch.tensor([prompt + outputs]), logits.clone())
    assert torch.equal(run(pipeline, logits.clone(), [1]), wanted)


def test_b67_no_bias_brings_an_end_token_back_before_its_time() -> None:
    pipeline = LogitsPipeline(ROWS, VOCAB, "cpu")
    pipeline.open([opened(1, [3], min_new_tokens=2, end_ids=(2, 5), bias={2: 100.0}), opened(2, [3], min_new_tokens=2)])
    for _ in range(2):
        logits = run(pipeline, random_logits(2), [1, 2])
        assert logits[0, [2, 5]].tolist() == [-torch.inf, -torch.inf]
        assert torch.isfinite(logits[1]).all()  # a model without an end token
        drawn(pipeline, [1, 2], [8, 8])
    assert run(pipeline, random_logits(2), [1, 2])[0].argmax() == 2


def test_who_asks_for_nothing_is_not_touched() -> None:
    pipeline = LogitsPipeline(ROWS, VOCAB, "cpu")
    pipeline.open([opened(1, [3]), opened(2, [3])])
    logits = random_logits(2)
    before = logits.clone()
    assert torch.equal(run(pipeline, logits, [1, 2]), before)
    pipeline.open([opened(3, [3], frequency_penalty=1.0), opened(4, [3], bias={1: 5.0})])
    drawn(pipeline, [1, 3, 2, 4], [6, 6, 6, 6])
    logits = random_logits(3)
    before = logits.clone()
    changed = run(pipeline, logits, [1, 3, 4])
    assert torch.equal(changed[0], before[0])
    assert (changed[1] != before[1]).nonzero().flatten().tolist() == [6]
    assert (changed[2] != before[2]).nonzero().flatten().tolist() == [1]


def test_a_row_that_went_to_somebody_else_is_left_alone() -> None:
    pipeline = LogitsPipeline(ROWS, VOCAB, "cpu")
    pipeline.open([opened(1, [3], bias={1: 5.0}), opened(2, [3], bias={1: 5.0})])
    logits = random_logits(2)
    before = logits.clone()
    changed = run(pipeline, logits, [1, 2], live=np.array([False, True]))
    assert torch.equal(changed[0], before[0])
    assert not torch.equal(changed[1], before[1])


class Spy(LogitsProcessor):
    """Writes down its calls, and does to logits what a test says."""

    def __init__(self, act: Callable[[torch.Tensor], Any] = lambda logits: None) -> None:
        self.act = act
        self.calls: list[Any] = []
        self.fail_in = ""

    def _called(self, name: str, *what: Any) -> None:
        self.calls.append((name, *what))
        if self.fail_in == name:
            raise RuntimeError(f"broken in {name}")

    def opened(self, rows: Sequence[LogitsRow]) -> None:
        self._called("opened", [(row.row, row.params, row.history.tolist(), row.outputs) for row in rows])

    def closed(self, rows: NDArray[np.int32]) -> None:
        self._called("closed", rows.tolist())

    def tokens(self, rows: NDArray[np.int32], ids: torch.Tensor) -> None:
        self._called("tokens", rows.tolist(), ids.tolist())

    def apply(self, logits: torch.Tensor, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        self._called("apply", rows.tolist())
        returned: Any = self.act(logits)
        return returned  # type: ignore[no-any-return]


def with_spies(**spies: Spy) -> tuple[LogitsPipeline, list[tuple[str, str]]]:
    faults: list[tuple[str, str]] = []

    def source(name: str, spy: Spy) -> ProcessorSource:
        return ProcessorSource(
            instance=name,
            make=lambda fields: spy,
            parameters=lambda values: dict(values) or None,
            fault=lambda error: faults.append((name, str(error))),
        )

    return LogitsPipeline(ROWS, VOCAB, "cpu", [source(name, spy) for name, spy in spies.items()]), faults


def test_a_processor_hears_of_its_own_rows_alone() -> None:
    spy = Spy(lambda logits: logits.fill_(1.0))
    pipeline, _ = with_spies(p=spy)
    pipeline.open(
        [opened(1, [3, 4], [5], processors={"p": {"a": 1}}), opened(2, [3]), opened(3, [6], processors={"p": {}})]
    )
    logits = random_logits(3)
    before = logits.clone()
    changed = run(pipeline, logits, [3, 2, 1])
    assert torch.equal(changed[1], before[1])
    assert bool((changed[[0, 2]] == 1).all())
    drawn(pipeline, [3, 2, 1], [7, 8, 9])
    pipeline.close(np.array([2, 1], dtype=np.int32))
    assert spy.calls == [
        ("opened", [(1, {"a": 1}, [3, 4, 5], 1), (3, None, [6], 0)]),
        ("apply", [3, 1]),
        ("tokens", [3, 1], [7, 9]),
        ("closed", [1]),
    ]


def test_a_processor_cannot_change_what_was_drawn() -> None:
    class Vandal(Spy):
        def tokens(self, rows: NDArray[np.int32], ids: torch.Tensor) -> None:
            rows[:] = 0
            ids[:] = 0

    last = Spy()
    pipeline, _ = with_spies(first=Vandal(), last=last)
    pipeline.open([opened(row, [3], processors={"first": {}, "last": {}}) for row in (1, 2)])
    rows, ids = np.array([1, 2], dtype=np.int32), torch.tensor([7, 8])
    pipeline.tokens(rows, ids)
    assert (rows.tolist(), ids.tolist()) == ([1, 2], [7, 8])
    assert last.calls[-1] == ("tokens", [1, 2], [7, 8])


def test_processors_come_after_the_bias_and_in_their_order() -> None:
    first, second = Spy(lambda logits: logits.mul_(2)), Spy(lambda logits: logits.add_(1))
    pipeline, _ = with_spies(first=first, second=second)
    pipeline.open([opened(1, [3], bias={4: 3.0}, processors={"second": {}, "first": {}})])
    logits = random_logits(1)
    assert torch.equal(run(pipeline, logits.clone(), [1])[0, 4], (logits[0, 4] + 3) * 2 + 1)


def test_a_processor_that_this_run_does_not_have_is_refused_before_anything_changes() -> None:
    pipeline, _ = with_spies(p=Spy())
    with pytest.raises(ValueError, match="'q'"):
        pipeline.check([opened(1, [3], processors={"q": {}})])


@pytest.mark.parametrize("where", ["opened", "apply", "tokens"])
def test_an_exception_ends_the_requests_of_that_call_and_nobody_elses(where: str) -> None:
    bad, good = Spy(), Spy()
    bad.fail_in = where
    pipeline, faults = with_spies(bad=bad, good=good)
    pipeline.open([opened(1, [3], processors={"bad": {}, "good": {}}), opened(2, [3], processors={"good": {}})])
    run(pipeline, random_logits(2), [1, 2])
    drawn(pipeline, [1, 2], [7, 8])
    assert set(pipeline.failed) == {1}
    assert "'bad' failed: RuntimeError" in pipeline.failed[1]
    assert faults == [("bad", f"broken in {where}")]
    run(pipeline, random_logits(2), [1, 2])  # the scheduler may not know yet
    assert len(faults) == 1
    assert good.calls[-1] == ("apply", [2])
    bad.fail_in = ""
    pipeline.close(np.array([1], dtype=np.int32))
    assert pipeline.failed == {}
    assert (("closed", [1]) in bad.calls) == (where != "opened")
    pipeline.open([opened(1, [3], processors={"bad": {}})])
    run(pipeline, random_logits(1), [1])
    assert pipeline.failed == {}


def test_parameters_that_cannot_be_read_end_their_request_alone() -> None:
    spy = Spy()
    pipeline, faults = with_spies(p=spy)
    pipeline._stages[-1].wanted = lambda row: {} if row.row == 2 else 1 / 0
    pipeline.open([opened(1, [3], processors={"p": {}}), opened(2, [3], processors={"p": {}})])
    assert set(pipeline.failed) == {1}
    assert [name for name, _ in faults] == ["p"]
    assert [row[0] for row in spy.calls[0][1]] == [2]


def test_a_failing_close_ends_nobody() -> None:
    spy = Spy()
    spy.fail_in = "closed"
    pipeline, faults = with_spies(p=spy)
    pipeline.open([opened(1, [3], processors={"p": {}}), opened(2, [3], processors={"p": {}})])
    pipeline.close(np.array([1], dtype=np.int32))
    assert (pipeline.failed, faults) == ({}, [("p", "broken in closed")])


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (lambda logits: logits[:, 3].fill_(torch.nan), "NaN"),
        (lambda logits: logits[:, 3].fill_(torch.inf), "infinity"),
        (lambda logits: logits.fill_(-torch.inf), "no token"),
    ],
)
def test_logits_that_nothing_can_be_drawn_from_are_the_processors_fault(act: Any, told: str) -> None:
    def change(logits: torch.Tensor) -> None:
        act(logits[1:])  # row 2 of 1 and 2

    pipeline, faults = with_spies(p=Spy(change))
    pipeline.open([opened(1, [3], processors={"p": {}}), opened(2, [3], processors={"p": {}})])
    run(pipeline, random_logits(2), [1, 2])
    assert set(pipeline.failed) == {2}
    assert told in faults[0][1]


def test_a_models_own_nan_is_not_the_processors_fault() -> None:
    pipeline, faults = with_spies(p=Spy())
    pipeline.open([opened(1, [3], processors={"p": {}})])
    logits = random_logits(1)
    logits[0, 0] = torch.nan
    run(pipeline, logits, [1])
    assert (pipeline.failed, faults) == ({}, [])


def test_what_is_not_changed_in_place_is_told_of() -> None:
    pipeline, faults = with_spies(p=Spy(lambda logits: logits + 1), q=Spy(lambda logits: logits.resize_(1, 3)))
    pipeline.open([opened(1, [3], processors={"p": {}}), opened(2, [3], processors={"q": {}})])
    logits = random_logits(2)
    before = logits.clone()
    changed = run(pipeline, logits, [1, 2])
    assert set(pipeline.failed) == {1, 2}
    assert "in place" in faults[0][1]
    assert torch.equal(changed, before)  # what fails leaves nothing behind


def test_a_late_look_tells_the_same_and_leaves_the_logits_as_they_were() -> None:
    """For a device that runs beside the host."""
    faults: list[str] = []

    def source(name: str, act: Callable[[torch.Tensor], Any]) -> ProcessorSource:
        return ProcessorSource(
            instance=name,
            make=lambda fields: Spy(act),
            parameters=lambda values: None,
            fault=lambda error: faults.append(name),
        )

    def breaks(logits: torch.Tensor) -> None:
        logits[1].fill_(torch.nan)

    sources = [source("breaks", breaks), source("adds", lambda logits: logits.add_(1))]
    pipeline = LogitsPipeline(ROWS, VOCAB, "cpu", sources, looks_late=True)
    both: dict[str, Any] = {"breaks": {}, "adds": {}}
    pipeline.open([opened(1, [3]), opened(2, [3], processors=both), opened(3, [3], processors=both)])
    logits = random_logits(3)
    logits[1, 0] = torch.nan  # the model's own
    logits = torch.cat((logits, random_logits(1)))
    pipeline.open([opened(4, [3], processors=both)])
    before = logits.clone()
    changed = run(pipeline, logits, [1, 2, 3, 4])
    assert torch.equal(changed[0], before[0])
    assert torch.equal(changed[2:], before[2:] + 1)
    assert (faults, pipeline.failed) == ([], {})
    first, second = pipeline.late_checks()
    assert pipeline.late_checks() == []
    assert first.at[first.broken.numpy()].tolist() == [2]
    assert second.at[second.broken.numpy()].tolist() == []
    assert "'breaks' failed: ValueError: apply left a NaN" in first.blame()
    assert faults == ["breaks"]
