"""Typed messages over a connected stream socket: a length, then msgpack. The link between a process and its parent.

The end of the stream is news of its own: the peer has died, or closed its end.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Any

from jackfield.ipc.codec import BadMessage, Codec

LARGEST_FRAME = 64 * 2**20
_PIECE = 65536
_HEAD = struct.Struct("<I")


class FramedLink:
    """Sends any message; receives those of `types`. Sending is safe from any thread, receiving is one thread's."""

    def __init__(self, connection: socket.socket, types: Any) -> None:
        self._connection = connection
        self._codec = Codec(types)
        self._buffer = bytearray()
        self._sending = threading.Lock()
        self._unsent = bytearray()

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: Any) -> bool:
        """False if the peer has gone."""
        frame = self._framed(message)
        with self._sending:
            try:
                self._connection.sendall(frame)
            except OSError:
                return False
        return True

    def post(self, message: Any) -> None:
        """Have a message sent by `flush`, so that who must go on receiving is not held up by a peer that is itself sending.
        For a link whose sender is one thread; not beside `send`, unless nothing is `unsent`."""
        self._unsent += self._framed(message)

    @property
    def unsent(self) -> bool:
        """Whether `flush` has something to send."""
        return bool(self._unsent)

    def flush(self) -> bool:
        """Send as much as the peer takes now, without waiting. False if it has gone."""
        try:
            while self._unsent:
                sent = self._connection.send(memoryview(self._unsent)[:_PIECE], socket.MSG_DONTWAIT)
                del self._unsent[:sent]
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _framed(self, message: Any) -> bytes:
        frame = self._codec.encode(message)
        if len(frame) > LARGEST_FRAME:
            raise BadMessage(f"a {type(message).__name__} of {len(frame)} bytes is above {LARGEST_FRAME}")
        return _HEAD.pack(len(frame)) + frame

    def receive(self) -> Any | None:
        """The next message; blocks. None at the end of the stream. Raises BadMessage."""
        while (message := self.next()) is None:
            if not self.fill():
                return None
        return message

    def fill(self, *, block: bool = True) -> bool:
        """Read what is there, blocking for the first byte if so wished. False at the end, or if nothing is there."""
        try:
            piece = self._connection.recv(_PIECE, 0 if block else socket.MSG_DONTWAIT)
        except OSError:
            return False
        self._buffer += piece
        return bool(piece)

    def next(self) -> Any | None:
        """The next message of those read already. Raises BadMessage."""
        if len(self._buffer) < _HEAD.size:
            return None
        (length,) = _HEAD.unpack_from(self._buffer)
        if length > LARGEST_FRAME:
            raise BadMessage(f"a frame of {length} bytes is announced; the limit is {LARGEST_FRAME}")
        end = _HEAD.size + length
        if len(self._buffer) < end:
            return None
        frame = bytes(self._buffer[_HEAD.size : end])
        del self._buffer[:end]
        return self._codec.decode(frame)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.close()
