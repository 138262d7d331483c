"""A processor sees rows and logits, so its tests need neither a model nor a server."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from allow_ids_processor.models import AllowIdsOptions, AllowIdsParameters
from allow_ids_processor.plugin import AllowIds
from pydantic import ValidationError

from jackfield.hookspecs import LogitsRow


def opened(processor: AllowIds, row: int, outputs: list[int], **params: object) -> None:
    history = np.array([1, 2, *outputs], dtype=np.int32)
    asked = AllowIdsParameters.model_validate(params)
    processor.opened([LogitsRow(row=row, uid=row, params=asked, history=history, outputs=len(outputs))])


def allowed(processor: AllowIds, *rows: int) -> list[list[int]]:
    logits = torch.zeros(len(rows), 10)
    processor.apply(logits, np.array(rows, dtype=np.int32), np.zeros(len(rows), dtype=np.int64))
    return [line.isfinite().nonzero().flatten().tolist() for line in logits]


def test_only_allowed_ids_and_each_as_often_as_it_may() -> None:
    processor = AllowIds(AllowIdsOptions(), 10)
    opened(processor, 1, [], ids=[3, 4], most=1, then=0)
    opened(processor, 2, [], ids=[5, 99], then=0)
    assert allowed(processor, 2, 1) == [[5], [3, 4]]
    processor.tokens(np.array([1, 2], dtype=np.int32), torch.tensor([3, 5]))
    assert allowed(processor, 1, 2) == [[4], [5]]
    processor.tokens(np.array([1], dtype=np.int32), torch.tensor([4]))
    assert allowed(processor, 1) == [[0]]


def test_a_row_that_begins_again_has_used_what_its_history_says() -> None:
    processor = AllowIds(AllowIdsOptions(), 10)
    opened(processor, 1, [3], ids=[3, 4], most=1, then=0)
    assert allowed(processor, 1) == [[4]]
    processor.closed(np.array([1], dtype=np.int32))
    opened(processor, 1, [], ids=[3, 4], most=1, then=0)
    assert allowed(processor, 1) == [[3, 4]]


def test_bad_parameters_are_refused() -> None:
    for values in ({"ids": [], "then": 0}, {"ids": [1]}, {"ids": [-1], "then": 0}, {"ids": [1], "then": 0, "moist": 1}):
        with pytest.raises(ValidationError):
            AllowIdsParameters.model_validate(values)
