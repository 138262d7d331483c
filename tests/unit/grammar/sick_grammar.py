"""A one-file plugin whose compilations do what their pattern says: hang, die, ask for memory, raise, and the like; else it is the
brute-force backend. What comes from it into other processes is told by files, which the pattern names."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from jackfield.hookspecs import CompiledGrammar, GrammarBackend, GrammarContext, GrammarError, GrammarSpec, hookimpl

PLUGIN = {
    "kind": "grammar",
    "name": "sick",
    "summary": "Compilations that go wrong",
    "contract": {"grammar": "0.1"},
    "features": ["regex"],
}


class SickBackend(GrammarBackend):
    def __init__(self, twin: GrammarBackend) -> None:
        self._twin = twin
        self._warm = False

    def warm_up(self) -> None:
        self._warm = True

    def check(self, spec: GrammarSpec) -> None:
        self._twin.check(spec)

    def compile(self, spec: GrammarSpec) -> Any:
        assert self._warm, "compile before warm_up"
        act, _, rest = spec.source.partition(":")
        if act == "hang":
            while True:
                signal.pause()
        if act == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "exits":
            os._exit(3)
        if act == "memory":
            return bytes(int(rest))
        if act == "raise":
            raise ZeroDivisionError("internals")
        if act == "text":
            return "no bytes"
        if act == "refuse":
            raise GrammarError("uniqueItems is not supported", keyword="/a/uniqueItems")
        if act == "unloadable":
            return b"unloadable"
        if act == "large":  # both ways: the pattern and what becomes of it
            return b"large" + bytes(len(rest))
        if act == "count":  # notes each compilation, and waits until it may end
            with Path(rest, "seen").open("a") as file:
                file.write("x")
            with Path(rest, "go").open() as gate:
                gate.read()
            return self._twin.compile(GrammarSpec(form="regex", source="a"))
        return self._twin.compile(spec)

    def load(self, compiled: bytes) -> CompiledGrammar:
        if compiled == b"unloadable":
            raise ZeroDivisionError("internals")
        if compiled.startswith(b"large"):
            compiled = self._twin.compile(GrammarSpec(form="regex", source="a"))
        return self._twin.load(compiled)


@hookimpl
def jackfield_grammar_backend(context: GrammarContext) -> GrammarBackend:
    from jackfield.testing.grammar_twin import TwinBackend

    return SickBackend(TwinBackend(context.vocab, context.stop_ids))
