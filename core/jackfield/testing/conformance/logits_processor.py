"""The conformance suite of kind `logits_processor`: rows that begin, get tokens, are retracted and end, on made-up logits.

What it does to the logits is its own business. torch is imported by the checks, not by loading the plugin.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import BaseModel

from jackfield.hookspecs import LogitsProcessor, LogitsRow
from jackfield.stack.loading.parameters import parameters_model, parse_parameters
from jackfield.testing.conformance.guards import bytecodes
from jackfield.testing.conformance.schema_values import Unmade, made_values
from jackfield.testing.conformance.suite import Conformance

if TYPE_CHECKING:
    import torch

VOCAB, ROWS = 64, 8
HISTORY = [3, 5, 7, 3, 5, 7, 3, 5]
DRAWN = [7, 3, 9, 3, 5]


class LogitsProcessorConformance(Conformance):
    """parameters: what requests give, one after the other; None: made up from the model that the manifest names."""

    kind = "logits_processor"
    parameters: ClassVar[Sequence[Mapping[str, Any]] | None] = None

    def processor(self) -> LogitsProcessor:
        made: LogitsProcessor = self.make(
            device=self.device,
            vocab_size=VOCAB,
            max_rows=ROWS,
            eos_ids=(1,),
            encode=lambda text: [ord(text[0]) % VOCAB],
        )
        return made

    def asked(self, number: int) -> BaseModel | None:
        """The parameters of a request, as the processor gets them."""
        model = parameters_model(self.loaded().selected)
        values = self.parameters
        if values is None:
            try:
                values = [{} if model is None else made_values(model)]
            except Unmade as error:
                self.cannot_run(f"{error}; set `parameters` in a subclass to what requests give")
        return parse_parameters(model, values[number % len(values)])

    def open(self, processor: LogitsProcessor, *rows: int, outputs: Sequence[int] = ()) -> None:
        """Begin these rows, each with a history of its own; outputs: of a retracted request."""
        opened = []
        for row in rows:
            history = np.array([*HISTORY, row, *outputs], dtype=np.int32)
            history.flags.writeable = False
            opened.append(LogitsRow(row=row, uid=row, params=self.asked(row), history=history, outputs=len(outputs)))
        processor.opened(opened)

    def applied(self, processor: LogitsProcessor, *rows: int) -> torch.Tensor:
        """Logits of these rows after `apply`; before it those of one row are the same whoever stands beside it."""
        logits = logits_of(rows, self.device)
        positions = np.full(len(rows), len(HISTORY) + 1, dtype=np.int64)
        processor.apply(logits, np.array(rows, dtype=np.int32), positions)
        return logits

    def test_a_row_s_result_is_its_own(self) -> None:
        """What comes of a row does not depend on which rows stand beside it, nor on their order."""
        together = self.processor()
        self.open(together, 1, 2, 3)
        whole = self.applied(together, 1, 2, 3)
        mixed = self.processor()
        self.open(mixed, 3, 1)
        self.open(mixed, 2)
        turned = self.applied(mixed, 3, 1, 2)
        for i, row in enumerate((1, 2, 3)):
            alone = self.processor()
            self.open(alone, row)
            assert same(self.applied(alone, row)[0], whole[i]), f"row {row} alone and beside others differ"
            assert same(turned[(3, 1, 2).index(row)], whole[i]), f"row {row} differs in another order"

    def test_logits_stay_usable(self) -> None:
        """In place, without NaN or +inf, and with one finite logit at least: something can still be drawn."""
        import torch

        processor = self.processor()
        self.open(processor, 1, 2)
        for token in (None, *DRAWN):
            if token is not None:
                tell(processor, [1, 2], [token, token], self.device)
            logits = self.applied(processor, 1, 2)
            assert logits.shape == (2, VOCAB)
            assert not bool(torch.isnan(logits).any()), "it leaves a NaN"
            assert not bool(torch.isposinf(logits).any()), "it leaves +inf"
            assert bool(torch.isfinite(logits).any(dim=1).all()), "it forbids every token of a row"

    def test_a_retracted_row_goes_on_as_it_was(self) -> None:
        """A row that opens again with its outputs in the history is as if it had been told of them one by one."""
        told, opened = self.processor(), self.processor()
        self.open(told, 1)
        for token in DRAWN:
            tell(told, [1], [token], self.device)
        self.open(opened, 1, outputs=DRAWN)
        assert same(self.applied(told, 1), self.applied(opened, 1)), "after a retraction the logits differ"

    def test_several_tokens_in_one_call(self) -> None:
        """A row may stand several times in `tokens`, its tokens in order, others between them."""
        single, several = self.processor(), self.processor()
        for processor in (single, several):
            self.open(processor, 1, 2)
        for token in DRAWN:
            tell(single, [1], [token], self.device)
        tell(single, [2, 2], [4, 4], self.device)
        rows = [1, 2, 1, 1, 2, 1, 1]
        ids = [DRAWN[0], 4, DRAWN[1], DRAWN[2], 4, DRAWN[3], DRAWN[4]]
        tell(several, rows, ids, self.device)
        assert same(self.applied(single, 1, 2), self.applied(several, 1, 2))

    def test_a_row_that_ends_leaves_nothing(self) -> None:
        """Its number may come back at once: the next request finds nothing of the one before it."""
        used, fresh = self.processor(), self.processor()
        self.open(used, 1, 2)
        tell(used, [1, 1, 1], [7, 7, 7], self.device)
        self.applied(used, 1, 2)
        used.closed(np.array([1], dtype=np.int32))
        for processor in (used, fresh):
            self.open(processor, 1, outputs=[9])
        assert same(self.applied(used, 1), self.applied(fresh, 1)), "the row before it shows"

    def test_the_last_row_and_no_row(self) -> None:
        """Row numbers up to the last one are fine, and so are calls about nobody."""
        processor = self.processor()
        processor.opened([])
        processor.closed(np.empty(0, dtype=np.int32))
        self.open(processor, ROWS - 1)
        self.applied(processor, ROWS - 1)
        processor.closed(np.array([ROWS - 1], dtype=np.int32))

    def test_it_keeps_no_tensor(self) -> None:
        """The logits are the core's: nothing holds them after `apply`."""
        processor = self.processor()
        self.open(processor, 1)
        logits = self.applied(processor, 1)
        held = weakref.ref(logits)
        del logits
        assert held() is None, "something still holds the logits after apply"

    def test_two_processors_are_apart(self) -> None:
        """Used twice in one stack, each knows its own rows alone."""
        one, two = self.processor(), self.processor()
        self.open(two, 1)
        before = self.applied(two, 1)
        self.open(one, 1, outputs=DRAWN)
        tell(one, [1], [9], self.device)
        assert same(self.applied(two, 1), before), "what one was told shows in the other"

    def test_what_a_row_costs(self) -> None:
        """Bytecodes of `apply` for each row; a measurement, which nothing is held against."""
        processor = self.processor()
        self.open(processor, 1, 2, 3, 4)
        self.applied(processor, 1, 2, 3, 4)
        logits, rows = logits_of((1, 2, 3, 4), self.device), np.arange(1, 5, dtype=np.int32)
        positions = np.full(4, len(HISTORY) + 1, dtype=np.int64)
        self.measured("bytecodes of apply, each row", bytecodes(lambda: processor.apply(logits, rows, positions)) // 4)


def logits_of(rows: Sequence[int], device: str) -> torch.Tensor:
    """float32 [n, VOCAB], drawn by the row's number."""
    import torch

    lines = [torch.randn(VOCAB, generator=torch.Generator().manual_seed(row)) for row in rows]
    return torch.stack(lines).to(device)


def tell(processor: LogitsProcessor, rows: Sequence[int], ids: Sequence[int], device: str) -> None:
    import torch

    processor.tokens(np.array(rows, dtype=np.int32), torch.tensor(ids, dtype=torch.int64, device=device))


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit."""
    import torch

    return torch.equal(one, other)
