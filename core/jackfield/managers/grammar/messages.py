"""What a scheduler and its compiler's process tell each other. Closed msgspec types over one socket, and no pickle.

The order: `CompilerOrders`, then from the process `Warm` or `StartFailed`; then any number of `Compile`, each of which is
answered once, unless a `Cancel` came first. The end of the socket ends the process.
"""

from __future__ import annotations

from typing import Literal

from jackfield.hookspecs.grammar import GrammarSpec
from jackfield.ipc.messages import Message
from jackfield.stack.resolved import SelectedPlugin

MAX_WORDS = 2000
"""Characters of a message that come out of a compilation."""


class CompilerOrders(Message, frozen=True, kw_only=True):
    """vocab: as `GrammarContext.vocab` gives it; special_ids: as there; timeout in seconds, memory in bytes, for one compilation;
    side_by_side: most at once; sys_path: where the scheduler's process imports from."""

    plugin: SelectedPlugin
    vocab_size: int
    stop_ids: tuple[int, ...]
    vocab: list[bytes]
    special_ids: dict[str, int] = {}  # noqa: RUF012 - msgspec copies it
    timeout: float
    memory: int
    side_by_side: int
    sys_path: list[str]


class Compile(Message, frozen=True, kw_only=True):
    job: int
    spec: GrammarSpec


class Cancel(Message, frozen=True, kw_only=True):
    """Nobody waits for it any more. Not answered, nor is its `Compile`, unless its answer was on the way."""

    job: int


class Warm(Message, frozen=True, kw_only=True):
    """Ready to compile. seconds: that it took to become so."""

    seconds: float


class StartFailed(Message, frozen=True, kw_only=True):
    """The backend could not be made or warmed; the process ends."""

    words: str


class Compiled(Message, frozen=True, kw_only=True):
    job: int
    data: bytes
    seconds: float


class Refused(Message, frozen=True, kw_only=True):
    """The backend's GrammarError."""

    job: int
    message: str
    keyword: str
    seconds: float


class Failed(Message, frozen=True, kw_only=True):
    """timeout, memory: a limit of `CompilerOrders`; error: an exception that is no GrammarError; crash: the compilation's own
    process died. words: for the log."""

    job: int
    why: Literal["timeout", "memory", "error", "crash"]
    words: str
    seconds: float


ToCompiler = CompilerOrders | Compile | Cancel
FromCompiler = Warm | StartFailed | Compiled | Refused | Failed
