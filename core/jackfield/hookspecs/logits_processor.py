"""Kind `logits_processor`: changes logits between the model and the draw, for the requests that ask for it.

The core's own penalties, logit bias and least length go through the same interface.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from jackfield.hookspecs.common import PluginContext
from jackfield.hookspecs.markers import hookspec

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class LogitsRow:
    """A row that begins and asks for a processor.

    row       its number, until it is closed
    uid       the request's number, never reused
    params    the request's parameters: an instance of the manifest's `parameters` model, or None if it names none
    history   int32, read-only: all tokens known now. After a retraction it holds the outputs so far, so that whatever was
              counted is counted again from here
    outputs   how many of `history`, at its end, are outputs
    """

    row: int
    uid: int
    params: Any
    history: NDArray[np.int32]
    outputs: int = 0


class LogitsProcessor(ABC):
    """One object for a run; it holds what it must remember, by row. Called from the worker's thread alone.

    Order of the calls: `closed` and `opened` before a step's forward; `apply` and then `tokens` when the step is sampled. A
    row of one step is closed at the earliest after that step's `tokens`, or before its `apply`, which is then left out.
    On a GPU the calls come before the device has reached the step: what reads `ids` or `logits` on the host (`tolist`, `item`,
    `cpu`, an `if` over them, an index that is a list or a mask) waits for all work that was enqueued, and holds up the steps of
    all requests, not only of those that ask for the processor. What stays in operations of torch waits for nothing.

    An exception, or a NaN left in the logits, ends the requests of that call with an error and nobody else's; the rows of a
    failed `opened` are not told of again, those of any other failed call are still closed.
    """

    def opened(self, rows: Sequence[LogitsRow]) -> None:  # noqa: B027  a default, not a gap
        """These rows begin."""

    def closed(self, rows: NDArray[np.int32]) -> None:  # noqa: B027  a default, not a gap
        """These rows have ended; int32 [k]. Their numbers may come back in the next `opened`."""

    def tokens(self, rows: NDArray[np.int32], ids: torch.Tensor) -> None:  # noqa: B027  a default, not a gap
        """What was drawn: int32 [k] rows and int64 [k] ids on the logits' device. A row may stand there several times, its
        tokens in order."""

    @abstractmethod
    def apply(self, logits: torch.Tensor, rows: NDArray[np.int32], positions: NDArray[np.int64]) -> None:
        """Change float32 [n, vocab] in place; row i belongs to `rows[i]`, int32 [n], distinct, all of which ask for it.

        positions   int64 [n]: tokens that the row has, which is the position of the one about to be drawn
        -inf forbids a token; one at least must stay finite. NaN and +inf are errors. A row's result must not depend on which
        rows stand beside it. The tensor is the core's: do
        not keep it.
        """


@dataclass(frozen=True, kw_only=True)
class LogitsProcessorContext(PluginContext):
    """device: torch name of the logits' device; max_rows: row numbers are below it; encode: text -> ids with the model's
    tokenizer, no special tokens added, so that a word has other ids at the start of a text than behind a space; None when
    the run has no tokenizer."""

    device: str
    vocab_size: int
    max_rows: int
    eos_ids: tuple[int, ...] = ()
    encode: Callable[[str], list[int]] | None = None


LogitsProcessorFields = Mapping[str, Any]
"""The fields of `LogitsProcessorContext` beyond those of `PluginContext`, which the core adds."""


@dataclass(frozen=True, kw_only=True)
class ProcessorSource:
    """A logits processor of the run, as a worker gets it.

    instance     the name by which `RowOpen.processors` asks for it
    make         makes the processor; called once
    parameters   JSON values that a request gave -> `LogitsRow.params`
    fault        to be told of every exception out of the processor; it returns if the worker may go on
    """

    instance: str
    make: Callable[[LogitsProcessorFields], LogitsProcessor]
    parameters: Callable[[Mapping[str, Any]], Any]
    fault: Callable[[Exception], None]


class LogitsProcessorSpecs:
    @hookspec
    def jackfield_logits_processor(self, context: LogitsProcessorContext) -> LogitsProcessor:  # type: ignore[empty-body]
        """Make the processor.

        Process: scheduler (the worker's side); the main process imports the module too, and the model that the manifest
        names under `parameters`, and checks requests with it: neither may import torch. When: once at start. Cost: any;
        the object's methods are on the path of every token of the requests that ask for it, and of no other. Example:

            @hookimpl
            def jackfield_logits_processor(context: LogitsProcessorContext) -> LogitsProcessor:
                from my_package.allow import AllowList

                return AllowList(context.vocab_size)
        """
