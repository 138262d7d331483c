"""Where messages go. The in-memory channel encodes and decodes like a socket, so that inline runs prove the messages."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from jackfield.ipc.codec import Codec


class Sender(Protocol):
    def send(self, message: Any) -> None: ...


class Receiver(Protocol):
    def receive(self) -> Any | None:
        """The next message, or None at once if none waits."""
        ...


class BlockingReceiver(Receiver, Protocol):
    """Between processes, where somebody else's work makes the messages. On an in-memory channel there is nothing to block
    on: whoever would wait is the one who must work."""

    def wait(self, timeout: float | None = None) -> bool:
        """Block until a message may be there (True), or until `wake` or `timeout` seconds (False)."""
        ...

    def wake(self) -> None:
        """Make `wait` return. Any thread."""
        ...


class InMemoryChannel:
    """One direction between two parts of one process. `deque` operations are atomic, so any thread may use either end."""

    def __init__(self, types: Any) -> None:
        self._codec = Codec(types)
        self._frames: deque[bytes] = deque()

    def send(self, message: Any) -> None:
        self._frames.append(self._codec.encode(message))

    def receive(self) -> Any | None:
        try:
            frame = self._frames.popleft()
        except IndexError:
            return None
        return self._codec.decode(frame)

    def __len__(self) -> int:
        return len(self._frames)
