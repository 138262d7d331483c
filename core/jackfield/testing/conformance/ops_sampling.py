"""The checks of `Ops.sample`: the rules that its docstring states, one by one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from jackfield.hookspecs import Ops
from jackfield.stack.discovery.manifest import ANY_LAYOUT
from jackfield.stack.selection.layouts import known_layouts
from jackfield.testing.conformance.device import ComputingConformance
from jackfield.testing.sampling_twin import Draw, sampling_rows, some_streams, survivors, twin

VOCAB = 40
STREAMS = some_streams(120)


class SamplingConformance(ComputingConformance):
    """How a provider is made, and how it draws; `OpsConformance` has the other operators."""

    kind = "ops"

    def layout(self) -> str:
        listed = self.manifest().layouts
        return next(iter(known_layouts(self.catalogue()))) if not listed or ANY_LAYOUT in listed else listed[0]

    def ops(self, dtype: str, **fields: Any) -> Ops:
        made: Ops = self.make(**{"device": self.here(), "dtype": dtype, "layout": self.layout(), **fields})
        return made

    def streams(self) -> list[int]:
        """Few where an interpreter takes a hundredth of a second for each."""
        return STREAMS[:4] if self.interpreted() else STREAMS

    def drawn(self, logits: torch.Tensor, draws: list[Draw]) -> list[int]:
        tokens = self.ops(self.dtypes()[0]).sample(logits.to(self.here()).clone(), sampling_rows(draws, self.here()))
        assert tokens.dtype == torch.int64, f"sample gives {tokens.dtype}, not int64"
        found: list[int] = tokens.tolist()
        return found

    def logits(self, rows: int = 1, seed: int = 0, scale: float = 4.0) -> torch.Tensor:
        return torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed)) * scale

    def test_sample_greedy(self) -> None:
        """Temperature 0 takes the largest logit, of equals the lowest id; other rows of the batch do not matter."""
        logits = self.logits(4)
        logits[1] = 0.0
        logits[1, [7, 30]] = 3.0
        logits[3] = logits[1]
        greedy = Draw(temperature=0.0)
        wanted = [int(logits[0].argmax()), 7, int(logits[2].argmax()), 7]
        assert self.drawn(logits, [greedy] * 4) == wanted
        mixed = self.drawn(logits, [greedy, greedy, Draw(stream=STREAMS[0]), greedy])
        assert [mixed[i] for i in (0, 1, 3)] == [wanted[i] for i in (0, 1, 3)], "greedy among sampled rows"

    @pytest.mark.parametrize(
        "draw",
        [
            Draw(),
            Draw(temperature=0.3),
            Draw(temperature=3.0),
            Draw(top_k=5),
            Draw(top_p=0.8),
            Draw(min_p=0.05),
            Draw(temperature=1.7, top_k=9, top_p=0.9, min_p=0.02),
            Draw(temperature=0.7, top_k=2, top_p=0.5),
        ],
        ids=lambda draw: f"{draw.temperature}-{draw.top_k}-{draw.top_p}-{draw.min_p}",
    )
    def test_sample_race(self, draw: Draw) -> None:
        """Draws exactly the token of the exponential race that `Ops.sample` defines, with temperature and every filter."""
        draws = draw.over(self.streams())
        logits = self.logits(len(draws), seed=5, scale=2.0)
        for row, (found, one) in enumerate(zip(self.drawn(logits, draws), draws, strict=True)):
            wanted, margin = twin(logits[row].tolist(), one)
            assert found == wanted or margin <= 1e-5, f"{one} drew {found}, the race gives {wanted}"

    def test_sample_filters(self) -> None:
        """top-k, top-p and min-p leave what they should: of equals the lower ids, and a tight one the most likely alone."""
        even, one = torch.zeros(1, VOCAB), self.logits(seed=3)
        two = torch.full((1, VOCAB), -math.inf)
        two[0, [4, 9]] = 1.0
        best = {int(one.argmax())}
        cases: list[tuple[torch.Tensor, Draw, set[int]]] = [
            (even, Draw(top_k=3), {0, 1, 2}),
            (even, Draw(top_k=1), {0}),
            (one, Draw(top_k=1), best),
            (one, Draw(top_p=0.0), best),
            (one, Draw(min_p=1.0), best),
            (two, Draw(), {4, 9}),
            (two, Draw(temperature=100.0), {4, 9}),
            (two, Draw(top_p=0.5), {4, 9}),
            (two, Draw(top_p=0.4999), {4}),
            (one, Draw(top_p=0.9), set(survivors(one[0].tolist(), Draw(top_p=0.9))[0])),
        ]
        for logits, draw, wanted in cases:
            draws = draw.over(self.streams())
            found = set(self.drawn(logits.expand(len(draws), -1), draws))
            assert found <= wanted, f"{draw} drew {sorted(found - wanted)}, and only {sorted(wanted)} are left"
            if len(wanted) < 4 and len(draws) > 100:
                assert found == wanted, f"{draw} never drew {sorted(wanted - found)}"

    def test_sample_extremes(self) -> None:
        """Any temperature above 0 is safe, a tiny one acts greedy; and the neighbours are left alone."""
        logits = self.logits(1, seed=1, scale=1e3).expand(6, -1)
        best = int(logits[0].argmax())
        usual = Draw(temperature=0.8, stream=STREAMS[0])
        odd = [Draw(temperature=t, stream=STREAMS[1]) for t in (1e-45, 1e-38, 1e-6, 1e-3)]
        found = self.drawn(logits, [usual, *odd, Draw(temperature=1e30, stream=STREAMS[1])])
        assert found[1:5] == [best] * 4
        assert 0 <= found[5] < VOCAB
        assert found[:1] == self.drawn(logits[:1], [usual])

    def test_sample_broken_rows(self) -> None:
        """A row with a NaN, with +inf or with nothing finite gives -1, and its neighbours what they gave before."""
        for temperature in (0.0, 1.0):
            for draw in (Draw(temperature=temperature), Draw(temperature=temperature, top_k=3, top_p=0.5, min_p=0.1)):
                draws = draw.over(STREAMS[:3])
                logits = self.logits(3, seed=4)
                good = self.drawn(logits, draws)
                for name, at, value in (("nan", 5, math.nan), ("inf", 5, math.inf), ("-inf", slice(None), -math.inf)):
                    spoilt = logits.clone()
                    spoilt[1, at] = value
                    assert self.drawn(spoilt, draws) == [good[0], -1, good[2]], f"{name}, {draw}"

    def test_sample_rows_apart(self) -> None:
        """A row's draw depends on its own logits, parameters and stream alone: alone, among others, in any order."""
        draws = [
            replace(draw, stream=stream)
            for draw, stream in zip(
                [Draw(), Draw(top_k=4), Draw(temperature=0.0), Draw(top_p=0.7), Draw(min_p=0.1), Draw(temperature=2.0)],
                STREAMS,
                strict=False,
            )
        ]
        logits = self.logits(len(draws), seed=9)
        together = self.drawn(logits, draws)
        assert together == [self.drawn(logits[i : i + 1], [draw])[0] for i, draw in enumerate(draws)]
        order = [3, 5, 0, 2, 4, 1]
        assert self.drawn(logits[order], [draws[i] for i in order]) == [together[i] for i in order]
        assert self.drawn(torch.empty(0, VOCAB), []) == []
