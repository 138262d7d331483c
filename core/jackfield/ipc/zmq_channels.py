"""Channels between processes: ZeroMQ PUSH and PULL over `ipc://` sockets in the run's private directory.

Policies
- Nothing is dropped that one of our own processes sent. `blocks=True`: a full queue stops the sender until the receiver has
  caught up (scheduler and detokenizer, so that a slow reader slows generation down). `blocks=False`: the queue has no limit.
  The main process sends so: every message of it belongs to a request that was let in at the door, and if it blocked, the
  three processes could wait for each other in a ring.
- What arrives and is no message that is expected here (a foreign blob, several parts) is counted, logged once and dropped.
- A frame above `LARGEST_FRAME` is refused where it is sent; a peer that sends one nevertheless is cut off.
- What is unsent when a socket closes is discarded: whoever ends a replica has emptied it before.

A socket belongs to one thread at a time; `wake` alone may be called from any.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path
from typing import Any

import zmq

from jackfield.ipc.codec import BadMessage, Codec

log = logging.getLogger(__name__)

LARGEST_FRAME = 64 * 2**20
"""Bytes. A million token ids take five of them each at most."""

HIGH_WATER_MARK = 1000
"""Messages that wait on either side of a blocking channel; one is a whole step."""

RECONNECT_MS = 20
"""Between two tries to connect to a socket that its process has not bound yet."""

HANDSHAKE_MS = 5000
"""A connection that has not said what it is by then is closed."""


class FrameTooLarge(ValueError):
    """A message above the cap."""


class ZmqSender:
    """`channels.Sender` to the socket at `path`, which may be bound later."""

    def __init__(self, context: zmq.Context[Any], path: Path, types: Any, *, blocks: bool) -> None:
        self._codec = Codec(types)
        self._socket = context.socket(zmq.PUSH)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.SNDHWM, HIGH_WATER_MARK if blocks else 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._socket.connect(_address(path))

    def send(self, message: Any) -> None:
        """Raises FrameTooLarge, and zmq.ZMQError once the channel is closed."""
        frame = self._codec.encode(message)
        if len(frame) > LARGEST_FRAME:
            raise FrameTooLarge(
                f"a {type(message).__name__} of {len(frame)} bytes is above the limit of {LARGEST_FRAME} bytes"
            )
        self._socket.send(frame)

    def close(self) -> None:
        self._socket.close(0)


class ZmqReceiver:
    """`channels.BlockingReceiver` at the socket `path`, which it binds with mode 0600.

    bad_frames   how many were dropped
    """

    def __init__(self, context: zmq.Context[Any], path: Path, types: Any) -> None:
        self.bad_frames = 0
        self.path = path
        self._codec = Codec(types)
        self._socket = context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, HIGH_WATER_MARK)
        self._socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_FRAME)
        self._socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        self._socket.bind(_address(path))
        os.chmod(path, 0o600)
        self._bell_out, self._bell_in = os.pipe()
        os.set_blocking(self._bell_out, False)
        os.set_blocking(self._bell_in, False)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._bell_out, zmq.POLLIN)
        self._closed = False
        # Reentrant, because signal handlers and finalizers ring too. It keeps a late ring off a descriptor number that is
        # somebody else's by then.
        self._ringing = threading.RLock()

    def receive(self) -> Any | None:
        while True:
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return None
            if self._socket.getsockopt(zmq.RCVMORE):
                while self._socket.getsockopt(zmq.RCVMORE):
                    self._socket.recv()
                self._drop(f"a message of several parts, the first of {len(frame)} bytes")
                continue
            try:
                return self._codec.decode(frame)
            except BadMessage as error:
                self._drop(str(error))

    def wait(self, timeout: float | None = None) -> bool:
        """Block until a message may be there (True), or until `wake` or `timeout` seconds (False). Sleeps, never spins."""
        # Rounded up, so that a deadline has passed when it is said to have.
        ready = dict(self._poller.poll(None if timeout is None else -int(-timeout * 1000 // 1)))
        if self._bell_out in ready:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._bell_out, 4096):
                    pass
        return self._socket in ready

    def wake(self) -> None:
        """Make `wait` return, this time or the next. Any thread, signal handlers and finalizers too."""
        with self._ringing:
            if not self._closed:
                with contextlib.suppress(BlockingIOError):  # full: it will wake anyway
                    os.write(self._bell_in, b"\0")

    def close(self) -> None:
        """A second call does nothing."""
        with self._ringing:
            if self._closed:
                return
            self._closed = True
            os.close(self._bell_out)
            os.close(self._bell_in)
        self._socket.close(0)
        self.path.unlink(missing_ok=True)

    def _drop(self, why: str) -> None:
        self.bad_frames += 1
        if self.bad_frames == 1:
            log.warning("dropped what came to %s: %s (further ones are only counted)", self.path.name, why)


def _address(path: Path) -> str:
    return f"ipc://{path}"
