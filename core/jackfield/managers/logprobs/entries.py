"""Entries of log-probabilities on their way to the client: cut and joined as bytes, and read as numbers at the end.

Knows the arrays of `TokenLogprobs`; not which API an answer is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from jackfield.ipc.messages import LogprobParams, TextOutput, TokenLogprobs, TokenOutput

CONTEXT = 8
"""Prompt ids that a decoder needs at the seam to read the first output tokens right."""


class PendingEntries:
    """Entries that the detokenizer holds until they are told, with the ids that they belong to."""

    __slots__ = ("_outputs", "_prompt")

    def __init__(self) -> None:
        self._outputs: list[TokenLogprobs] = []
        self._prompt: list[TokenLogprobs] = []

    def add(self, output: TokenOutput, kept: int) -> None:
        """kept: how many of the output's ids, from the first, belong to the answer: entries go with their ids."""
        if output.prompt_logprobs is not None:
            self._prompt.append(output.prompt_logprobs)
        if output.logprobs is not None and kept:
            self._outputs.append(_first(output.logprobs, kept, len(output.ids)))

    def take(self) -> tuple[TokenLogprobs | None, TokenLogprobs | None]:
        """(of output ids, of prompt tokens) since the last time."""
        outputs, prompt = _joined(self._outputs), _joined(self._prompt)
        self._outputs, self._prompt = [], []
        return outputs, prompt


def _first(entries: TokenLogprobs, kept: int, given: int) -> TokenLogprobs:
    if kept == given:
        return entries
    return TokenLogprobs(**{name: part[: len(part) // given * kept] for name, part in _parts(entries).items()})


def _joined(entries: Sequence[TokenLogprobs]) -> TokenLogprobs | None:
    if len(entries) < 2:
        return entries[0] if entries else None
    parts = [_parts(one) for one in entries]
    return TokenLogprobs(**{name: b"".join(part[name] for part in parts) for name in parts[0]})


def _parts(entries: TokenLogprobs) -> dict[str, bytes]:
    return {name: getattr(entries, name) for name in entries.__struct_fields__}


@dataclass(frozen=True, slots=True)
class Entry:
    """One token's. value: None where the model says nothing (the first token that a prompt's entries begin with).

    top   (value, id), likeliest first; None where `value` is
    ids   (value, id) of the chosen ids; None where `value` is
    """

    token: int
    value: float | None
    top: list[tuple[float, int]] | None
    ids: list[tuple[float, int]] | None


@dataclass(slots=True)
class _Chunk:
    chosen: NDArray[np.float32]
    top_values: NDArray[np.float32]
    top_ids: NDArray[np.int32]
    ids_values: NDArray[np.float32]

    @classmethod
    def of(cls, entries: TokenLogprobs, wanted: LogprobParams) -> _Chunk:
        chosen = np.frombuffer(entries.chosen, "<f4")
        n = len(chosen)
        return cls(
            chosen=chosen,
            top_values=np.frombuffer(entries.top_values, "<f4").reshape(n, wanted.top),
            top_ids=np.frombuffer(entries.top_ids, "<i4").reshape(n, wanted.top),
            ids_values=np.frombuffer(entries.ids_values, "<f4").reshape(n, len(wanted.ids)),
        )


@dataclass
class LogprobLog:
    """All entries of one answer. They stay arrays; what is read of them becomes numbers.

    wanted    what the request asked for
    prompt    the prompt's ids from `wanted.start` on; context: its last few
    """

    wanted: LogprobParams
    prompt: Sequence[int]
    context: Sequence[int] = ()
    _outputs: list[tuple[_Chunk, int]] = field(default_factory=list)
    _inputs: list[tuple[_Chunk, int]] = field(default_factory=list)
    _ids: list[int] = field(default_factory=list)

    def fresh(self) -> LogprobLog:
        """One for another answer to the same prompt."""
        return LogprobLog(self.wanted, self.prompt, self.context)

    def __len__(self) -> int:
        """Output tokens with an entry."""
        return len(self._outputs)

    def mean(self) -> float:
        """Of the output tokens' own values; 0 without any."""
        if not self._outputs:
            return 0.0
        return sum(float(chunk.chosen[j]) for chunk, j in self._outputs) / len(self._outputs)

    def take(self, output: TextOutput) -> None:
        if output.prompt_logprobs is not None:
            self._add(self._inputs, output.prompt_logprobs)
        if output.logprobs is not None:
            self._add(self._outputs, output.logprobs)
            self._ids += output.ids

    def outputs(self, begin: int = 0) -> list[Entry]:
        """Of output tokens, from number `begin` on."""
        return [
            self._entry(chunk, j, token)
            for (chunk, j), token in zip(self._outputs[begin:], self._ids[begin:], strict=True)
        ]

    def inputs(self) -> list[Entry]:
        """Of the prompt's tokens from `wanted.start` on, as far as they have come: all, unless the request was aborted."""
        if not self.prompt:
            return []
        entries = [
            self._entry(chunk, j, token) for (chunk, j), token in zip(self._inputs, self.prompt[1:], strict=False)
        ]
        return [Entry(self.prompt[0], None, None, None), *entries]

    def _add(self, to: list[tuple[_Chunk, int]], entries: TokenLogprobs) -> None:
        chunk = _Chunk.of(entries, self.wanted)
        to.extend((chunk, j) for j in range(len(chunk.chosen)))

    def _entry(self, chunk: _Chunk, j: int, token: int) -> Entry:
        return Entry(
            token=token,
            value=float(chunk.chosen[j]),
            top=list(zip(chunk.top_values[j].tolist(), chunk.top_ids[j].tolist(), strict=True)),
            ids=list(zip(chunk.ids_values[j].tolist(), self.wanted.ids, strict=True)),
        )
