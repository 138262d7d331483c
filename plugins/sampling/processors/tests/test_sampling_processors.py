"""Each processor against a reference: transformers' own, or the definition written out token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from transformers import NoRepeatNGramLogitsProcessor

from jackfield.hookspecs import LogitsProcessor, LogitsProcessorContext, LogitsRow
from jackfield_sampling_processors import device_ngrams, dry, no_repeat_ngram
from jackfield_sampling_processors.dry import LONGEST, DryParameters
from jackfield_sampling_processors.no_repeat_ngram import NoRepeatNgramParameters

VOCAB = 5
tokens = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=70)


def context(name: str, **more: Any) -> LogitsProcessorContext:
    return LogitsProcessorContext(
        kind="logits_processor", name=name, instance=name, device="cpu", vocab_size=VOCAB, max_rows=4, **more
    )


def logits_of(count: int) -> torch.Tensor:
    return torch.randn((count, VOCAB), generator=torch.Generator().manual_seed(3))


def open_row(processor: LogitsProcessor, row: int, history: Sequence[int], params: Any) -> None:
    read_only = np.array(history, dtype=np.int32)
    read_only.flags.writeable = False
    processor.opened([LogitsRow(row=row, uid=row, params=params, history=read_only)])


def applied(processor: LogitsProcessor, logits: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
    changed = logits.clone()
    processor.apply(changed, np.array(rows, dtype=np.int32), np.zeros(len(rows), dtype=np.int64))
    return changed


def told(processor: LogitsProcessor, row: int, ids: Sequence[int]) -> None:
    processor.tokens(np.full(len(ids), row, dtype=np.int32), torch.tensor(ids, dtype=torch.int64))


@settings(max_examples=80, deadline=None)
@given(
    first=tokens,
    drawn=st.lists(st.integers(0, VOCAB - 1), max_size=20),
    size=st.integers(1, 4),
    other=tokens,
    on_device=st.booleans(),
    at_once=st.sampled_from([1, 7, 1 << 24]),
)
def test_no_repeat_ngram_is_transformers_own(
    first: list[int], drawn: list[int], size: int, other: list[int], on_device: bool, at_once: int
) -> None:
    """As on a GPU, too, whose tensors lie on the CPU here."""
    processor: LogitsProcessor = no_repeat_ngram.jackfield_logits_processor(context("no-repeat-ngram"))
    if on_device:
        processor = device_ngrams.DeviceNgrams(4, "cpu")
    params = NoRepeatNgramParameters(ngram_size=size)
    open_row(processor, 1, first, params)
    open_row(processor, 2, other, params)
    told(processor, 1, drawn)
    logits = logits_of(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_ngrams, "_AT_ONCE", at_once)
        changed = applied(processor, logits, [2, 1])
    theirs: Any = NoRepeatNGramLogitsProcessor(size)
    assert torch.equal(changed[0:1], theirs(torch.tensor([other]), logits[0:1].clone()))
    assert torch.equal(changed[1:2], theirs(torch.tensor([first + drawn]), logits[1:2].clone()))


def dry_by_hand(history: list[int], params: DryParameters, breakers: set[int]) -> dict[int, float]:
    """Every earlier place, and every length, from the definition."""
    seen = history[-params.range :] if params.range else history
    longest: dict[int, int] = {}
    for end in range(len(seen) - 1):
        n = 0
        while n < min(LONGEST, end + 1) and seen[end - n] == seen[-1 - n] and seen[end - n] not in breakers:
            n += 1
        if n:
            longest[seen[end + 1]] = max(n, longest.get(seen[end + 1], 0))
    return {
        token: params.multiplier * params.base ** (n - params.allowed_length)
        for token, n in longest.items()
        if n >= params.allowed_length
    }


@settings(max_examples=120, deadline=None)
@given(
    history=st.one_of(tokens, st.lists(st.integers(0, 1), min_size=1, max_size=130)),
    drawn=st.lists(st.integers(0, VOCAB - 1), max_size=10),
    allowed=st.integers(1, 4),
    reach=st.sampled_from([0, 3, 20]),
    breakers=st.sampled_from([None, [], [1], [0, 4]]),
)
def test_dry_is_what_its_definition_says(
    history: list[int], drawn: list[int], allowed: int, reach: int, breakers: list[int] | None
) -> None:
    texts = {"\n": [3], ":": [0, 1], '"': [2], "*": [2, 2]}  # one that is two tokens breaks nothing
    processor = dry.jackfield_logits_processor(context("dry", encode=lambda text: texts[text]))
    params = DryParameters(multiplier=0.8, allowed_length=allowed, range=reach, breakers=breakers)
    open_row(processor, 1, history, params)
    told(processor, 1, drawn)
    logits = logits_of(1)
    wanted = logits.clone()
    for token, lost in dry_by_hand(history + drawn, params, {3, 2} if breakers is None else set(breakers)).items():
        wanted[0, token] -= lost
    assert torch.equal(applied(processor, logits, [1]), wanted)
    assert bool(torch.isfinite(wanted).all())


def test_the_strongest_penalty_stays_finite() -> None:
    processor = dry.jackfield_logits_processor(context("dry"))
    open_row(processor, 1, [1] * 200, DryParameters(multiplier=100, base=4, allowed_length=1))
    assert bool(torch.isfinite(applied(processor, logits_of(1), [1])).all())


def test_where_the_logits_are_decides_where_ngrams_are_looked_for() -> None:
    made = no_repeat_ngram.jackfield_logits_processor
    assert type(made(context("x"))) is no_repeat_ngram.NoRepeatNgram
    assert type(made(replace(context("x"), device="meta"))) is device_ngrams.DeviceNgrams


@pytest.mark.parametrize("module", [dry, no_repeat_ngram, device_ngrams])
def test_a_row_that_ends_leaves_nothing_to_the_next(module: Any) -> None:
    processor = (
        device_ngrams.DeviceNgrams(4, "cpu")
        if module is device_ngrams
        else module.jackfield_logits_processor(context("x"))
    )
    params: Any = DryParameters(multiplier=1) if module is dry else NoRepeatNgramParameters(ngram_size=2)
    open_row(processor, 1, [1, 2, 3, 1, 2, 3, 1, 2], params)
    logits = logits_of(1)
    assert not torch.equal(applied(processor, logits, [1]), logits)
    processor.closed(np.array([1], dtype=np.int32))
    open_row(processor, 1, [4], params)
    assert torch.equal(applied(processor, logits, [1]), logits)


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (NoRepeatNgramParameters, {}),
        (NoRepeatNgramParameters, {"ngram_size": 0}),
        (NoRepeatNgramParameters, {"ngram_size": 2, "size": 2}),
        (DryParameters, {"multiplier": float("nan")}),
        (DryParameters, {"multiplier": 1, "base": 0.5}),
        (DryParameters, {"multiplier": 1, "breakers": list(range(300))}),
        (DryParameters, {"multiplier": 1, "breakers": [10**18]}),
        (DryParameters, {"multiplier": 1, "breakers": [-1]}),
        (DryParameters, {"multiplier": 1, "breakers": [True]}),
    ],
)
def test_bad_parameters_are_refused(model: Any, values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model(**values)
