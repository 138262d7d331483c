"""Schedulers whose requests are bound by patterns over a small vocabulary."""

from __future__ import annotations

import re
from typing import Any

from jackfield.hookspecs.grammar import GrammarSpec
from jackfield.managers.scheduler.grammar.gate import GrammarSetup
from jackfield.testing.grammar_compilers import HandCompiler
from jackfield.testing.scheduler_harness import SchedulerHarness

EOS = 1
VOCAB = [b"", b"", *(bytes([byte]) for byte in b"abcdefghijklmnopqrstuvwxyz0123456789{}"), b"ab", b"bc", b"xyz", b"12"]
SIZE = len(VOCAB) + 3  # ids without a token; no whole number of a mask's words


def vocabulary() -> list[bytes]:
    return [*VOCAB, b"", b"", b""]


def regex(source: str) -> GrammarSpec:
    return GrammarSpec(form="regex", source=source)


def text(ids: list[int]) -> str:
    """Without a last end token."""
    return b"".join(vocabulary()[token] for token in ids).decode()


def ids(word: str) -> list[int]:
    return [VOCAB.index(letter.encode()) for letter in word]


def harness(
    compiler: HandCompiler | None = None, *, cache_bytes: int = 1 << 20, max_waiting: int = 8, **more: Any
) -> Any:
    """A `SchedulerHarness` with the attribute `compiler`."""
    compiler = compiler or HandCompiler(vocabulary(), (EOS,))
    setup = GrammarSetup(compiler=compiler, cache_bytes=cache_bytes, max_waiting=max_waiting, plugin="grammar.twin")
    run: Any = SchedulerHarness(grammars=setup, **{"vocab_size": SIZE, "eos_token_ids": (EOS,), **more})
    run.compiler = compiler
    return run


def check(run: SchedulerHarness, rid: str, pattern: str) -> None:
    """The answer ended by itself and matches."""
    answer = run.answers[rid]
    assert answer.finish is not None
    assert answer.finish.type == "stop", answer.finish
    assert re.fullmatch(pattern, text(answer.ids)), (pattern, text(answer.ids))
