"""`python -m jackfield.managers.grammar.child DESCRIPTOR`: the compiler's process, started by `process.py` only.

It imports and warms the backend once, and compiles in forks of itself: what a compilation breaks, leaks or never ends is gone
with its fork, and the next one is as warm as the first. It ends when the descriptor does, whatever ended the scheduler.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time
from collections import deque

from jackfield.hookspecs.grammar import GrammarBackend
from jackfield.ipc.framed_link import FramedLink
from jackfield.managers.grammar.compilation import Compilation
from jackfield.managers.grammar.messages import Cancel, Compile, CompilerOrders, StartFailed, ToCompiler, Warm
from jackfield.stack.loading.imports import told
from jackfield.stack.loading.load import INLINE, load_stack
from jackfield.stack.resolved import ResolvedStack


def main(argv: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's Ctrl-C is the server's to understand
    os.dup2(2, 1)  # standard output belongs to the parent's answers
    descriptor = int(argv[0])
    os.set_inheritable(descriptor, False)
    link = FramedLink(socket.socket(fileno=descriptor), ToCompiler)
    orders = link.receive()
    if not isinstance(orders, CompilerOrders):
        return 1
    sys.path[:] = orders.sys_path
    began = time.monotonic()
    try:
        backend = make_backend(orders)
        backend.warm_up()
    except BaseException as error:
        link.send(StartFailed(words=told(error)))
        return 1
    gc.collect()
    gc.freeze()  # a fork's collector need not touch, and so copy, what is here already
    link.send(Warm(seconds=time.monotonic() - began))
    Work(link, orders, backend).serve()
    return 0


def make_backend(orders: CompilerOrders) -> GrammarBackend:
    """Raises PluginLoadError, or ConfigurationError for its options."""
    loaded = load_stack(ResolvedStack(plugins=(orders.plugin,)), INLINE)
    backend: GrammarBackend = loaded.make(
        "grammar",
        vocab_size=orders.vocab_size,
        stop_ids=orders.stop_ids,
        vocab=lambda: orders.vocab,
        special_ids=orders.special_ids,
    )
    return backend


class Work:
    """The compilations under way, and those that wait for a place."""

    def __init__(self, link: FramedLink, orders: CompilerOrders, backend: GrammarBackend) -> None:
        self._link = link
        self._orders = orders
        self._backend = backend
        self._waiting: deque[Compile] = deque()
        self._running: dict[int, Compilation] = {}  # by pipe

    def serve(self) -> None:
        """Until the link ends."""
        while True:
            while self._waiting and len(self._running) < self._orders.side_by_side:
                self._begin(self._waiting.popleft())
            for pipe in self._readable():
                if pipe == self._link.fileno():
                    if not self._link.fill(block=False):
                        self._end()
                        return
                elif (answer := self._running[pipe].read()) is not None:
                    del self._running[pipe]
                    self._link.send(answer)
            while (message := self._link.next()) is not None:
                self._obey(message)
            now = time.monotonic()
            for pipe, compilation in list(self._running.items()):
                if compilation.deadline <= now:
                    del self._running[pipe]
                    self._link.send(compilation.kill())

    def _begin(self, order: Compile) -> None:
        compilation = Compilation(order, self._backend, timeout=self._orders.timeout, memory=self._orders.memory)
        self._running[compilation.pipe] = compilation

    def _obey(self, message: Compile | Cancel | CompilerOrders) -> None:
        if isinstance(message, Compile):
            self._waiting.append(message)
        elif isinstance(message, Cancel):
            self._waiting = deque(order for order in self._waiting if order.job != message.job)
            for pipe, compilation in list(self._running.items()):
                if compilation.job == message.job:
                    del self._running[pipe]
                    compilation.kill()

    def _readable(self) -> list[int]:
        """Wait for the link, a pipe, or the next deadline. By poll: select knows no descriptor above 1023, and the link has the
        number that it had in a server of many connections."""
        watched = select.poll()
        for number in (self._link.fileno(), *self._running):
            watched.register(number, select.POLLIN)
        rest = self._rest()
        return [number for number, _ in watched.poll(None if rest is None else rest * 1000)]

    def _rest(self) -> float | None:
        """Seconds until the next compilation has had its time."""
        if not self._running:
            return None
        return max(0.0, min(one.deadline for one in self._running.values()) - time.monotonic())

    def _end(self) -> None:
        for compilation in self._running.values():
            compilation.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
