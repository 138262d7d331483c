"""What stops a start that records graphs, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from jackfield.model_executor.out_of_memory import is_lack_of_memory

_WITHOUT = "--disable-cuda-graph runs without graphs; --decode-attention-backend and --ops name other plugins"


class GraphFailed(RuntimeError):
    """A decode step could not be recorded."""


class GraphMismatch(RuntimeError):
    """A replayed step does not give what the same step gives without a graph."""

    def __init__(self, rows: int, at: str, error: float, allowed: float, attention: str) -> None:
        super().__init__(
            f"the recorded decode step of {rows} rows does not give what the same step gives without a graph: {at} is off by "
            f"{error:.2%} of its logits' size, {allowed:.2%} is allowed. The attention plugin {attention!r} and the ops plugin "
            f'declare the feature "graph"; one of them is wrong: tell its author. {_WITHOUT}'
        )


@contextmanager
def told(rows: int, attention: str) -> Iterator[None]:
    """Errors of a recording, in words; a lack of memory passes as what it is."""
    try:
        yield
    except RuntimeError as error:
        why = _first(error)
        if is_lack_of_memory(why):
            raise why from error
        raise GraphFailed(
            f"the decode step of {rows} rows could not be recorded with the attention plugin {attention!r}: {why}. {_WITHOUT}"
        ) from error


def _first(error: RuntimeError) -> RuntimeError:
    """What broke the recording: ending a broken one raises again, and says nothing of the cause."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return error
