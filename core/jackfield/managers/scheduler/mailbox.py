"""The messages that wait for the scheduler. Looking whether there is one takes it off the channel, so it is kept here."""

from __future__ import annotations

from collections import deque
from typing import Any

from jackfield.ipc.channels import Receiver


class Mailbox:
    def __init__(self, inbox: Receiver) -> None:
        self._inbox = inbox
        self._seen: deque[Any] = deque()

    def receive(self) -> Any | None:
        """The oldest message; None if there is none."""
        return self._seen.popleft() if self._seen else self._inbox.receive()

    def peek(self) -> bool:
        """Whether a message waits."""
        if not self._seen and (message := self._inbox.receive()) is not None:
            self._seen.append(message)
        return bool(self._seen)
